// What the inner loop of a matmul multiplies at once: one depth of a panel, or, for storage types
// of half a lane, a pair of depths, whose products an instruction adds up.
//
// Such panels hold pairs of depths [depth / 2, columns, 2]; an odd depth is filled up with zeros.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/simd/vectors.h"

namespace rotcell::cpu::ROTCELL_ISA {

template <class T>
struct Factors {
  static constexpr int kDepths = 1;
  using Vector = Vec<T>;

  static ROTCELL_INLINE Vector of_panel(const T* p) { return load(p); }
  static ROTCELL_INLINE Vector of_row(const T* p) { return broadcast(*p); }
  static ROTCELL_INLINE void multiply_add(Vec<T>& sum, Vector row, Vector panel) {
    sum += row * panel;
  }
};

// As vdpbf16ps does it: denormals are zero, before and after each of two additions that round to
// nearest even. That of the odd depths comes first.
template <>
struct Factors<BFloat16> {
  static constexpr int kDepths = 2;
  using Vector = Bits<float>;

  static ROTCELL_INLINE Vector of_panel(const BFloat16* p) {
    Vector pairs;
    std::memcpy(&pairs, p, sizeof pairs);
    return pairs;
  }
  static ROTCELL_INLINE Vector of_row(const BFloat16* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return pair - Vector{};
  }
  // The last element of a row of odd depth.
  static ROTCELL_INLINE Vector of_row_end(const BFloat16* p) {
    return static_cast<int32_t>(p->bits) - Vector{};
  }
  static ROTCELL_INLINE void multiply_add(Vec<float>& sum, Vector row, Vector panel) {
#if defined(__AVX512BF16__)
    sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(row), reinterpret_cast<__m512bh>(panel));
#else
    constexpr int32_t kUpper = static_cast<int32_t>(0xffff0000u);
    // A product of two elements is exact unless it is below the normal floats, so that nothing
    // else rounds.
    sum = flushed(flushed(sum) + normal(row & kUpper) * normal(panel & kUpper));
    sum = flushed(sum + normal(row << 16) * normal(panel << 16));
#endif
  }

 private:
  static ROTCELL_INLINE Vec<float> normal(Vector bits) {
    return flushed(reinterpret_cast<Vec<float>>(bits));
  }
  static ROTCELL_INLINE Vec<float> flushed(Vec<float> x) {
    const Vector bits = reinterpret_cast<Vector>(x), sign = bits & INT32_MIN;
    const Vector denormal = (bits & INT32_MAX) < 0x00800000;
    return reinterpret_cast<Vec<float>>((denormal & sign) | (~denormal & bits));
  }
};

// Depths of a panel, filled up.
template <class T>
constexpr int64_t packed_depth(int64_t depth) {
  constexpr int64_t kDepths = Factors<T>::kDepths;
  return (depth + kDepths - 1) / kDepths * kDepths;
}

// `columns` columns of two rows, side by side: to [columns, 2]. No second row is one of zeros.
ROTCELL_INLINE void interleave_rows(const BFloat16* even, const BFloat16* odd, int64_t columns,
                                    BFloat16* pairs) {
  constexpr int L = kLanes<BFloat16>;
  for (int64_t c = 0; c < columns; c += L) {
    Bits<float> both = load_low_halves(even + c, columns - c);
    if (odd) both |= load_low_halves(odd + c, columns - c) << 16;
    store_first(reinterpret_cast<float*>(pairs + 2 * c), reinterpret_cast<Vec<float>>(both),
                columns - c);
  }
}

// The first n elements as pairs; the other lanes are zero.
ROTCELL_INLINE Vec<float> load_pairs_of_depths(const BFloat16* p, int64_t n) {
#if defined(__AVX512F__)
  const __mmask32 first = n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1;
  return reinterpret_cast<Vec<float>>(_mm512_maskz_loadu_epi16(first, p));
#else
  constexpr int64_t kElements = 2 * kLanes<BFloat16>;
  Vec<float> v{};
  if (n > 0) std::memcpy(&v, p, (n < kElements ? n : kElements) * sizeof(BFloat16));
  return v;
#endif
}

// As copy_to_panel and transpose_to_panel of packed.h.
inline void copy_to_panel(const BFloat16* weights, int64_t stride, int64_t depth, int64_t columns,
                          BFloat16* panel, int64_t width) {
  constexpr int L = kLanes<BFloat16>;
  for (int64_t k = 0; k < depth; k += 2, weights += 2 * stride, panel += 2 * width) {
    interleave_rows(weights, k + 1 < depth ? weights + stride : nullptr, columns, panel);
    for (int64_t c = columns; c < width && c % L != 0; ++c) panel[2 * c] = panel[2 * c + 1] = 0.0f;
  }
}

inline void transpose_to_panel(const BFloat16* weights, int64_t stride, int64_t depth,
                               int64_t columns, BFloat16* panel, int64_t width) {
  constexpr int L = kLanes<BFloat16>;
  for (int64_t column = 0; column < columns; column += L) {
    const BFloat16* rows = weights + column * stride;
    for (int64_t k = 0; k < depth; k += 2 * L) {
      Vec<float> block[L];
      if (columns - column >= L && depth - k >= 2 * L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) block[i] = load_pairs_of_depths(rows + i * stride + k, 2 * L);
      } else {
        for (int i = 0; i < L; ++i) {
          block[i] = column + i < columns ? load_pairs_of_depths(rows + i * stride + k, depth - k)
                                          : Vec<float>{};
        }
      }
      transpose<float>(block);
      BFloat16* target = panel + k * width + 2 * column;
      for (int i = 0; i < L && k + 2 * i < depth; ++i) {
        std::memcpy(static_cast<void*>(target + 2 * i * width), &block[i], sizeof block[i]);
      }
    }
  }
}

}  // namespace rotcell::cpu::ROTCELL_ISA
