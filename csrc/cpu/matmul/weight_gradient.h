// The weight gradient of some tokens: [w_ih, w_hh] += grads^T x [x, h], where grads are the
// gradients of the gates. [x, h] is packed into panels, as the weights of other matmuls are; a
// block of rows of grads^T at a time is brought into the order in which register tiles read it.
#pragma once

#include <cstring>

#include "cpu/loops/kernels.h"
#include "cpu/matmul/packed.h"

namespace rotcell::cpu::ROTCELL_ISA {

// Not std::min: no function of the C++ library is compiled for this instruction set.
ROTCELL_INLINE constexpr int64_t min(int64_t a, int64_t b) { return b < a ? b : a; }
ROTCELL_INLINE constexpr int64_t max(int64_t a, int64_t b) { return a < b ? b : a; }

template <class T>
ROTCELL_INLINE void clear(T* elements, int64_t count) {
  std::memset(static_cast<void*>(elements), 0, count * sizeof(T));
}

// Packs `count` rows, `width` elements each, as columns and depths of the panels that `place` says.
// What is behind the last column becomes zero with the rows that have this column.
template <class T>
void pack_factors(const T* rows, int64_t count, int64_t width, const FactorPlace& place, T* packed,
                  Slice slice) {
  const PanelCut<T> cut{place.columns};
  for (int64_t panel = slice.begin(cut.panels); panel < slice.end(cut.panels); ++panel) {
    const int64_t panel_begin = cut.begin(panel), columns = cut.columns_of(panel);
    const int64_t panel_width = cut.vectors_of(panel) * kLanes<T>;
    const int64_t begin = max(place.first_column, panel_begin) - panel_begin;
    const int64_t end = min(place.first_column + width, panel_begin + columns) - panel_begin;
    if (begin >= end) continue;
    const T* source = rows + panel_begin + begin - place.first_column;
    T* target = packed + place.depth * panel_begin + place.first_depth * panel_width;
    if (begin == 0 && end == columns) {
      copy_to_panel(source, width, count, columns, target, panel_width);
      continue;
    }
    for (int64_t k = 0; k < count; ++k, source += width, target += panel_width) {
      std::memcpy(target + begin, source, (end - begin) * sizeof(T));
      if (end == columns) clear(target + columns, panel_width - columns);
    }
  }
}

// The same in pairs of rows. A row whose partner is not among these, because it is packed with
// others, leaves the partner's place as it is; the last of an odd number has zeros next to it.
template <>
inline void pack_factors(const BFloat16* rows, int64_t count, int64_t width,
                         const FactorPlace& place, BFloat16* packed, Slice slice) {
  const PanelCut<BFloat16> cut{place.columns};
  const int64_t end_depth = place.first_depth + count;
  for (int64_t panel = slice.begin(cut.panels); panel < slice.end(cut.panels); ++panel) {
    const int64_t panel_begin = cut.begin(panel), columns = cut.columns_of(panel);
    const int64_t panel_width = cut.vectors_of(panel) * kLanes<BFloat16>;
    const int64_t begin = max(place.first_column, panel_begin) - panel_begin;
    const int64_t end = min(place.first_column + width, panel_begin + columns) - panel_begin;
    if (begin >= end) continue;
    const BFloat16* source = rows + panel_begin + begin - place.first_column;
    BFloat16* of_panel = packed + packed_depth<BFloat16>(place.depth) * panel_begin + 2 * begin;
    for (int64_t k = place.first_depth; k < end_depth; ++k, source += width) {
      BFloat16* target = of_panel + k / 2 * 2 * panel_width;
      const bool is_even = k % 2 == 0;
      if (is_even && k + 1 < end_depth) {
        interleave_rows(source, source + width, end - begin, target);
        ++k;
        source += width;
      } else if (is_even && k + 1 == place.depth) {
        interleave_rows(source, nullptr, end - begin, target);
      } else {
        for (int64_t i = 0; i < end - begin; ++i) target[2 * i + k % 2] = source[i];
      }
    }
  }
}

// A register tile: ROWS rows of grads^T, packed [depth, ROWS], times a panel of VECTORS vectors, of
// which `columns` columns exist. The old sums are asked for before the matmul and added behind it.
template <class T, int ROWS, int VECTORS>
void add_gradient_tile(const T* grads, const T* panel, int64_t depth, MathType<T>* gradient,
                       int64_t stride, int64_t columns, Accumulate start) {
  constexpr int L = kLanes<T>;
  Vec<T> sum[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      sum[r][v] = Vec<T>{};
      if (v * L < columns) __builtin_prefetch(gradient + r * stride + v * L, 1);
    }
  }
  add_matmuls(grads, Factors<T>::kDepths, ROWS, packed_depth<T>(depth), panel, sum);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      MathType<T>* at = gradient + r * stride + v * L;
      if (start == Accumulate::kAdd) sum[r][v] += load_first(at, columns - v * L);
      store_first(at, sum[r][v], columns - v * L);
    }
  }
}

template <class T>
using GradientTileFunction = void (*)(const T*, const T*, int64_t, MathType<T>*, int64_t, int64_t,
                                      Accumulate);

// The tile function for a number of rows and vectors.
template <class T, int... RV>
GradientTileFunction<T> gradient_tile_function(int64_t rows, int vectors,
                                               std::integer_sequence<int, RV...>) {
  static constexpr GradientTileFunction<T> table[] = {
      add_gradient_tile<T, RV / Tile::kVectors + 1, RV % Tile::kVectors + 1>...};
  return table[(rows - 1) * Tile::kVectors + vectors - 1];
}

// Brings the columns of grads [depth, columns], `stride` apart, into tiles [depth, Tile::kRows], of
// which the last may be narrower, and adds up each column. Sums in blocks of 16 to limit rounding
// error. `scratch` [columns].
template <class T>
void pack_grads(const T* grads, int64_t stride, int64_t depth, int64_t columns, T* packed, T* sums,
                T* scratch) {
  constexpr int64_t kSummed = 16, R = Tile::kRows;
  const int64_t whole = columns / R * R, of_last = columns - whole;
  clear(sums, columns);
  for (int64_t begin = 0; begin < depth; begin += kSummed) {
    clear(scratch, columns);
    for (int64_t k = begin; k < min(begin + kSummed, depth); ++k) {
      const T* row = grads + k * stride;
      for (int64_t i = 0; i < whole; i += R) {
        std::memcpy(packed + i * depth + k * R, row + i, R * sizeof(T));
      }
      std::memcpy(packed + whole * depth + k * of_last, row + whole, of_last * sizeof(T));
      for (int64_t i = 0; i < columns; ++i) scratch[i] += row[i];
    }
    for (int64_t i = 0; i < columns; ++i) sums[i] += scratch[i];
  }
}

// The same with tiles [depth / 2, Tile::kRows, 2].
inline void pack_grads(const BFloat16* grads, int64_t stride, int64_t depth, int64_t columns,
                       BFloat16* packed, float* sums, float* scratch) {
  constexpr int64_t kSummed = 16, R = Tile::kRows;
  const int64_t whole = columns / R * R, of_last = columns - whole;
  const int64_t tile_depth = packed_depth<BFloat16>(depth);
  clear(sums, columns);
  for (int64_t begin = 0; begin < depth; begin += kSummed) {
    clear(scratch, columns);
    for (int64_t k = begin; k < min(begin + kSummed, depth); k += 2) {
      const BFloat16 *even = grads + k * stride, *odd = k + 1 < depth ? even + stride : nullptr;
      for (int64_t i = 0; i < whole; i += R) {
        interleave_rows(even + i, odd ? odd + i : nullptr, R, packed + i * tile_depth + k * R);
      }
      interleave_rows(even + whole, odd ? odd + whole : nullptr, of_last,
                      packed + whole * tile_depth + k * of_last);
      for (int64_t i = 0; i < columns; ++i) scratch[i] += even[i];
      if (!odd) continue;
      for (int64_t i = 0; i < columns; ++i) scratch[i] += odd[i];
    }
    for (int64_t i = 0; i < columns; ++i) sums[i] += scratch[i];
  }
}

// Some columns of one tile's sums [rows, width], added to a gradient.
template <class T>
void add_columns(const T* sums, int64_t width, int64_t rows, int64_t columns, T* gradient,
                 int64_t stride, Accumulate start) {
  for (int64_t row = 0; row < rows; ++row, sums += width, gradient += stride) {
    if (start == Accumulate::kOverwrite) clear(gradient, columns);
    for (int64_t i = 0; i < columns; ++i) gradient[i] += sums[i];
  }
}

// What a tile of `rows` rows of grads^T, packed, and a panel add.
template <class T>
void add_panel(const GradientPiece<T>& p, const PanelCut<T>& cut, int64_t panel, int64_t row,
               int64_t rows, const T* grads) {
  using TileShapes = std::make_integer_sequence<int, Tile::kRows * Tile::kVectors>;
  const int64_t column = cut.begin(panel), columns = cut.columns_of(panel);
  const T* factors = p.factors + packed_depth<T>(p.tokens) * column;
  const auto add = gradient_tile_function<T>(rows, cut.vectors_of(panel), TileShapes{});
  // Only where such columns are: a gradient without columns may be null.
  const auto w_ih = [&] { return p.w_ih + row * p.inputs + column; };
  if (column + columns <= p.inputs) {
    if (!p.w_ih) return;
    add(grads, factors, p.tokens, w_ih(), p.inputs, columns, p.start);
  } else if (column >= p.inputs) {
    if (!p.w_hh) return;
    MathType<T>* w_hh = p.w_hh + row * p.outputs + (column - p.inputs);
    add(grads, factors, p.tokens, w_hh, p.outputs, columns, p.start);
  } else {
    constexpr int64_t kWidth = Tile::kVectors * kLanes<T>;
    MathType<T> sums[Tile::kRows * kWidth];
    const int64_t of_w_ih = p.inputs - column;
    add(grads, factors, p.tokens, sums, kWidth, columns, Accumulate::kOverwrite);
    if (p.w_ih) add_columns(sums, kWidth, rows, of_w_ih, w_ih(), p.inputs, p.start);
    if (p.w_hh) {
      add_columns(sums + of_w_ih, kWidth, rows, columns - of_w_ih, p.w_hh + row * p.outputs,
                  p.outputs, p.start);
    }
  }
}

template <class T>
void add_gradients(const GradientPiece<T>& p) {
  // Rows that are packed at once: with a panel they stay in the second-level cache.
  constexpr int64_t kMostRows = 64, kMostElements = kMostRows * kMostPieceTokens / 2;
  constexpr int64_t R = Tile::kRows;
  alignas(64) T packed[kMostElements];
  MathType<T> sums[kMostRows], scratch[kMostRows];
  const int64_t depth = packed_depth<T>(p.tokens);
  const PanelCut<T> cut{p.inputs + p.outputs};
  const int64_t block_rows = min(kMostRows, kMostElements / depth / R * R);
  for (int64_t block = 0; block < p.rows; block += block_rows) {
    const int64_t rows = min(block_rows, p.rows - block);
    pack_grads(p.grads + block, p.stride, p.tokens, rows, packed, sums, scratch);
    add_columns(sums, rows, 1, rows, p.bias + block, rows, p.start);
    for (int64_t panel = 0; panel < cut.panels; ++panel) {
      for (int64_t row = 0; row < rows; row += R) {
        add_panel(p, cut, panel, block + row, min(R, rows - row), packed + row * depth);
      }
    }
  }
}

}  // namespace rotcell::cpu::ROTCELL_ISA
