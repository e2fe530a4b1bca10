// Matmuls with weights as torch keeps them, for so few rows that packing all weights would take
// longer than the matmul.
#pragma once

#include "cpu/matmul/packed.h"

namespace rotcell::cpu::ROTCELL_ISA {

// A few rows, one after the other, each read along with the rows of the weights [columns, depth]:
// result += rows x weights^T.
template <class T>
void add_unpacked_by_row(const Rows<T>& rows, int64_t row_count, const T* weights, int64_t columns,
                         T* result, int64_t result_stride) {
  constexpr int L = kLanes<T>;
  const int64_t depth = rows.depth;
  for (int64_t first = 0; first < columns; first += L) {
    const int64_t here = columns - first;
    const T* column[L];  // of those that do not exist the last one again
    for (int i = 0; i < L; ++i) column[i] = weights + (first + (i < here ? i : here - 1)) * depth;
    for (int64_t row = 0; row < row_count; ++row) {
      const T* x = rows.data + row * rows.stride;
      Vec<T> sum[L] = {};
      int64_t k = 0;
      for (; k + L <= depth; k += L) {
        const Vec<T> factor = load(x + k);
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) sum[i] += factor * load(column[i] + k);
      }
      if (k < depth) {
        const Vec<T> factor = load_first(x + k, depth - k);
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) sum[i] += factor * load_first(column[i] + k, depth - k);
      }
      transpose<T>(sum);
      T* target = result + row * result_stride + first;
      Vec<T> total = load_first(target, here);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) total += sum[i];
      store_first(target, total, here);
    }
  }
}

// A panel on the stack, which the first-level cache holds.
template <class T>
struct Piece {
  static constexpr int64_t kDepth = 512 / sizeof(T);
  static constexpr int64_t kColumns = Tile::kVectors * kLanes<T>;
};

// The same for more rows: these, not the weights, become panels, and their matmuls with a few rows
// of the weights are turned on their way to the result.
template <class T>
void add_unpacked_by_panel(const Rows<T>& rows, int64_t row_count, const T* weights,
                           int64_t columns, T* result, int64_t result_stride) {
  using TileShapes = std::make_integer_sequence<int, Tile::kRows * Tile::kVectors>;
  constexpr int L = kLanes<T>;
  alignas(kVectorBytes) T panel[Piece<T>::kDepth * Piece<T>::kColumns];
  alignas(kVectorBytes) T matmuls[L * Piece<T>::kColumns];
  const int64_t depth = rows.depth;
  for (int64_t first = 0; first < row_count; first += Piece<T>::kColumns) {
    const int64_t rows_left = row_count - first;
    const int64_t rows_here = rows_left < Piece<T>::kColumns ? rows_left : Piece<T>::kColumns;
    const int vectors = static_cast<int>(divide_up(rows_here, L));
    const int64_t width = vectors * L;
    for (int64_t k = 0; k < depth; k += Piece<T>::kDepth) {
      const int64_t depth_here = depth - k < Piece<T>::kDepth ? depth - k : Piece<T>::kDepth;
      transpose_to_panel(rows.data + first * rows.stride + k, rows.stride, depth_here, rows_here,
                         panel, width);
      for (int64_t column = 0; column < columns; column += L) {
        const int64_t columns_left = columns - column;
        const int here = static_cast<int>(columns_left < L ? columns_left : L);
        for (int c = 0; c < here; c += Tile::kRows) {
          const Rows<T> weight_rows{weights + (column + c) * depth + k, depth, depth_here};
          const int count = here - c < Tile::kRows ? here - c : Tile::kRows;
          tile_function<T>(count, vectors, TileShapes{})(weight_rows, {weight_rows.data, 0, 0},
                                                         panel, Addend<T>{}, matmuls + c * width,
                                                         width, width);
        }
        for (int v = 0; v < vectors; ++v) {
          Vec<T> block[L];
          for (int i = 0; i < L; ++i) {
            block[i] = i < here ? load(matmuls + i * width + v * L) : Vec<T>{};
          }
          transpose<T>(block);
          for (int i = 0; i < L && v * L + i < rows_here; ++i) {
            T* target = result + (first + v * L + i) * result_stride + column;
            store_first(target, load_first(target, here) + block[i], here);
          }
        }
      }
    }
  }
}

// Whether rows are multiplied one by one or in panels. Within either way, the bits of a row do not
// depend on the other rows, so threads may split them. The two ways differ in bits.
enum class UnpackedRows { kFew, kMany };

constexpr UnpackedRows unpacked_rows(int64_t count) {
  return count < kManyUnpackedRows ? UnpackedRows::kFew : UnpackedRows::kMany;
}

template <class T>
void add_unpacked(const Rows<T>& rows, int64_t row_count, const T* weights, int64_t columns,
                  T* result, int64_t result_stride, UnpackedRows number_of_rows) {
  const auto add =
      number_of_rows == UnpackedRows::kFew ? add_unpacked_by_row<T> : add_unpacked_by_panel<T>;
  add(rows, row_count, weights, columns, result, result_stride);
}

// A single row in the backward pass: result = addend + row x weights, the weights being [depth,
// columns], row stride weight_stride. Takes as many columns as VECTORS vectors hold, again and
// again, and gives the number of those that are done.
template <class T, int VECTORS>
int64_t multiply_row_unpacked_back(const T* row, int64_t depth, const T* weights,
                                   int64_t weight_stride, int64_t first, int64_t columns,
                                   const T* addend, T* result) {
  constexpr int L = kLanes<T>;
  for (; first + VECTORS * L <= columns; first += VECTORS * L) {
    Vec<T> sum[VECTORS];
#pragma GCC unroll 16
    for (int v = 0; v < VECTORS; ++v) {
      sum[v] = addend ? load(addend + first + v * L) : Vec<T>{};
    }
    for (int64_t k = 0; k < depth; ++k) {
      const Vec<T> factor = broadcast(row[k]);
#pragma GCC unroll 16
      for (int v = 0; v < VECTORS; ++v) {
        sum[v] += factor * load(weights + k * weight_stride + first + v * L);
      }
    }
#pragma GCC unroll 16
    for (int v = 0; v < VECTORS; ++v) store(result + first + v * L, sum[v]);
  }
  return first;
}

// result = addend + rows x weights, for rows of any number. All but a single row, which reads the
// weights as they are, takes pieces of them into panels.
template <class T>
void multiply_unpacked_back(const Rows<T>& rows, int64_t row_count, const T* weights,
                            int64_t weight_stride, int64_t columns, const Addend<T>& addend,
                            T* result, int64_t result_stride) {
  int64_t first = 0;
  if (row_count == 1) {
    const auto take = [&](auto vectors) {
      first = multiply_row_unpacked_back<T, vectors()>(
          rows.data, rows.depth, weights, weight_stride, first, columns, addend.data, result);
    };
    if constexpr (kVectorRegisters == 32) take(Constant<int, 16>{});
    take(Constant<int, 8>{});
    take(Constant<int, 4>{});
  }
  alignas(kVectorBytes) T panel[Piece<T>::kDepth * Piece<T>::kColumns];
  for (; first < columns; first += Piece<T>::kColumns) {
    const int64_t left = columns - first;
    const int64_t here = left < Piece<T>::kColumns ? left : Piece<T>::kColumns;
    Addend<T> before{addend.data ? addend.data + first : nullptr, addend.stride};
    for (int64_t k = 0; k == 0 || k < rows.depth; k += Piece<T>::kDepth) {
      const int64_t depth_left = rows.depth - k;
      const int64_t depth = depth_left < Piece<T>::kDepth ? depth_left : Piece<T>::kDepth;
      const int64_t width = divide_up(here, kLanes<T>) * kLanes<T>;
      copy_to_panel(weights + k * weight_stride + first, weight_stride, depth, here, panel, width);
      multiply(Rows<T>{rows.data + k, rows.stride, depth}, row_count, Panels<T>{panel, depth, here},
               before, result + first, result_stride);
      before = {result + first, result_stride};
    }
  }
}

}  // namespace rotcell::cpu::ROTCELL_ISA
