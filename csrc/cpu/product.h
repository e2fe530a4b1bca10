// The matrix product of a timestep: rows [rows, depth] times packed weights [depth, columns].
//
// Weights are packed once per sequence into panels: all of a panel's columns for depth 0, then for
// depth 1, and so on, so the innermost loop reads them as one stream. A register tile of a few rows
// and one panel's columns stays in registers over the whole depth.
#pragma once

#include <cstdint>

#include "cpu/simd.h"

namespace rotcell::cpu::ROTCELL_ISA {

struct Tile {
  static constexpr int kRows = 6;
  static constexpr int kVectors = kVectorRegisters == 32 ? 4 : 2;
  // Accumulators, the weights of one depth, one broadcast row element.
  static_assert(kRows * kVectors + kVectors + 1 <= kVectorRegisters);
};

template <class T>
constexpr int64_t kPanelColumns = Tile::kVectors * kLanes<T>;

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class T>
constexpr int64_t panel_elements(int64_t depth, int64_t columns) {
  return depth * divide_up(columns, kLanes<T>) * kLanes<T>;
}

template <class T>
struct Panels {
  const T* data;  // [ceil(columns / kPanelColumns)] panels, each [depth, its columns rounded up to
                  // lanes]
  int64_t depth;
  int64_t columns;
};

// Packs the weights whose element (k, column) is at weights[k * depth_stride + column *
// column_stride].
template <class T>
void pack_panels(const T* weights, int64_t depth_stride, int64_t column_stride, int64_t depth,
                 int64_t columns, T* packed) {
  for (int64_t first = 0; first < columns; first += kPanelColumns<T>) {
    const int64_t here = columns - first < kPanelColumns<T> ? columns - first : kPanelColumns<T>;
    const int64_t width = divide_up(here, kLanes<T>) * kLanes<T>;
    const T* source = weights + first * column_stride;
    for (int64_t column = 0; column < width; ++column) {
      for (int64_t k = 0; k < depth; ++k) {
        packed[k * width + column] =
            column < here ? source[k * depth_stride + column * column_stride] : T(0);
      }
    }
    packed += depth * width;
  }
}

// One register tile: ROWS rows, VECTORS vectors of columns of which the first `columns` exist.
template <class T, int ROWS, int VECTORS>
void multiply_tile(const T* rows,  // [ROWS, depth], row stride row_stride
                   int64_t row_stride,
                   const T* panel,  // [depth, VECTORS * kLanes]
                   int64_t depth,
                   T* result,  // [ROWS, columns], row stride result_stride
                   int64_t result_stride, int64_t columns, bool accumulate) {
  constexpr int L = kLanes<T>;
  Vec<T> sum[ROWS][VECTORS];
  for (int r = 0; r < ROWS; ++r) {
    for (int v = 0; v < VECTORS; ++v) {
      sum[r][v] =
          accumulate ? load_first(result + r * result_stride + v * L, columns - v * L) : Vec<T>{};
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec<T> weight[VECTORS];
    for (int v = 0; v < VECTORS; ++v) weight[v] = load(panel + v * L);
    for (int r = 0; r < ROWS; ++r) {
      const Vec<T> x = broadcast(rows[r * row_stride + k]);
      for (int v = 0; v < VECTORS; ++v) sum[r][v] += x * weight[v];
    }
    panel += VECTORS * L;
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int v = 0; v < VECTORS; ++v) {
      store_first(result + r * result_stride + v * L, sum[r][v], columns - v * L);
    }
  }
}

template <class T>
using TileFunction = void (*)(const T*, int64_t, const T*, int64_t, T*, int64_t, int64_t, bool);

// Tile functions by number of rows and vectors, each minus one.
template <class T, int ROWS, int... V>
constexpr TileFunction<T> tile_function(int vectors, std::integer_sequence<int, V...>) {
  constexpr TileFunction<T> table[] = {multiply_tile<T, ROWS, V + 1>...};
  return table[vectors - 1];
}

template <class T, int... R>
constexpr TileFunction<T> tile_function(int rows, int vectors, std::integer_sequence<int, R...>) {
  using Vectors = std::make_integer_sequence<int, Tile::kVectors>;
  TileFunction<T> found = nullptr;
  ((rows == R + 1 ? void(found = tile_function<T, R + 1>(vectors, Vectors{})) : void()), ...);
  return found;
}

// result (+)= rows x panels.
template <class T>
void multiply(const T* rows,  // [row_count, panels.depth], row stride row_stride
              int64_t row_stride, int64_t row_count, const Panels<T>& panels,
              T* result,  // [row_count, panels.columns], row stride result_stride
              int64_t result_stride, bool accumulate) {
  using RowCounts = std::make_integer_sequence<int, Tile::kRows>;
  const T* panel = panels.data;
  for (int64_t first = 0; first < panels.columns; first += kPanelColumns<T>) {
    const int64_t left = panels.columns - first;
    const int64_t columns = left < kPanelColumns<T> ? left : kPanelColumns<T>;
    const int vectors = static_cast<int>(divide_up(columns, kLanes<T>));
    for (int64_t row = 0; row < row_count; row += Tile::kRows) {
      const int tile_rows =
          static_cast<int>(row_count - row < Tile::kRows ? row_count - row : Tile::kRows);
      tile_function<T>(tile_rows, vectors, RowCounts{})(
          rows + row * row_stride, row_stride, panel, panels.depth,
          result + row * result_stride + first, result_stride, columns, accumulate);
    }
    panel += panels.depth * vectors * kLanes<T>;
  }
}

}  // namespace rotcell::cpu::ROTCELL_ISA
