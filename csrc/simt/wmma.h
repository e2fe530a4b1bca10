// nvcuda::wmma for 16x16x16 tiles. CUDA does not say which lane holds which element; here each
// holds half a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "simt/half.h"
#include "simt/intrinsics.h"

namespace nvcuda::wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;

enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static constexpr bool sums = std::is_same_v<Use, accumulator>;
  static_assert(M == 16 && N == 16 && K == 16, "the executor knows 16x16x16 tiles only");
  static_assert(sums ? std::is_same_v<T, float>
                     : std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
  static_assert(sums == std::is_void_v<Layout>);

  static constexpr int num_elements = rotcell::simt::tile_share;
  T x[num_elements];

  fragment() { fill(std::numeric_limits<float>::quiet_NaN()); }
  void fill(float value) {
    for (T& element : x) element = T(value);
  }
};

}  // namespace nvcuda::wmma

namespace rotcell::simt {

template <class T>
void check_tile(const T* tile, unsigned stride, Site site) {
  require(reinterpret_cast<uintptr_t>(tile) % 32 == 0,
          "wmma: the pointer is not aligned to 32 bytes", site);
  require(stride * sizeof(T) % 16 == 0, "wmma: the leading dimension is not a multiple of 16 bytes",
          site);
  meet_full_warp(site);
}

// Where an element of the running lane lies in memory.
inline size_t tile_offset(int element, bool rows, unsigned stride) {
  const size_t row = lane() / 2, column = lane() % 2 * tile_share + element;
  return rows ? row * stride + column : column * stride + row;
}

}  // namespace rotcell::simt

namespace nvcuda::wmma {

template <class Use, class T, class Layout>
void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& tile, float value) {
  tile.fill(value);
}

template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& tile, const T* from, unsigned stride,
                      rotcell::simt::Site site = rotcell::simt::here()) {
  rotcell::simt::check_tile(from, stride, site);
  for (int i = 0; i < tile.num_elements; ++i)
    tile.x[i] = from[rotcell::simt::tile_offset(i, std::is_same_v<Layout, row_major>, stride)];
}

inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, float>& tile, const float* from,
                             unsigned stride, layout_t layout,
                             rotcell::simt::Site site = rotcell::simt::here()) {
  rotcell::simt::check_tile(from, stride, site);
  for (int i = 0; i < tile.num_elements; ++i)
    tile.x[i] = from[rotcell::simt::tile_offset(i, layout == mem_row_major, stride)];
}

inline void store_matrix_sync(float* to, const fragment<accumulator, 16, 16, 16, float>& tile,
                              unsigned stride, layout_t layout,
                              rotcell::simt::Site site = rotcell::simt::here()) {
  rotcell::simt::check_tile(to, stride, site);
  for (int i = 0; i < tile.num_elements; ++i)
    to[rotcell::simt::tile_offset(i, layout == mem_row_major, stride)] = tile.x[i];
}

template <class T, class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, 16, 16, 16, float>& d,
              const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
              const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b,
              const fragment<accumulator, 16, 16, 16, float>& c,
              rotcell::simt::Site site = rotcell::simt::here()) {
  rotcell::simt::TileShares shares;
  for (int i = 0; i < d.num_elements; ++i) {
    shares.a[i] = static_cast<float>(a.x[i]);
    shares.b[i] = static_cast<float>(b.x[i]);
    shares.c[i] = c.x[i];
  }
  rotcell::simt::multiply_tiles(shares, site);
  for (int i = 0; i < d.num_elements; ++i) d.x[i] = shares.c[i];
}

}  // namespace nvcuda::wmma
