// A matrix of fp16 or bf16 that stays on chip, and its matmul on tensor cores with 16 rows that are
// in shared memory. The same interface as ChunkedMatmul.
#pragma once

#include "cuda/kernels/device_math.h"
#include "cuda/kernels/shapes.h"
#include "cuda/platform/platform.h"

namespace rotcell::cuda {

// Two neighbors in a row, as an instruction for tensor cores wants them: the first is the low
// half.
template <class T>
ROTCELL_DEVICE unsigned in_one_register(T first, T second) {
  const T both[] = {first, second};
  unsigned bits;
  memcpy(&bits, both, sizeof bits);
  return bits;
}

// See TensorMatrix for how the matrix is shared out; the first kRegisterTiles tiles of a warp are
// in its registers.
template <class T, int kRegisterTiles>
class TensorCoreMatmul {
 public:
  using Storage = T;
  using A = float;
  using Matrix = TensorMatrix;

  template <class Rows>
  ROTCELL_DEVICE void load(const Matrix& matrix, unsigned char* shared, Rows rows) {
    matrix_ = matrix;
    const int row_tiles = matrix.result_rows() / kSide;
    const int warp = static_cast<int>(threadIdx.x) / Tiles::kWarp;
    row_tile_ = warp % row_tiles;
    slice_ = warp / row_tiles;
    has_work_ = slice_ < matrix.slices;
    in_shared_ = reinterpret_cast<WeightTile*>(shared);
    if (!has_work_) return;
    const int above = row_tile_ * kSide + lane_row(), below = above + kQuarter;
    const auto above_row = rows(smaller(above, matrix.rows - 1));
    const auto below_row = rows(smaller(below, matrix.rows - 1));
    const auto gathered = [&](int tile) {
      const int column = (tile * matrix_.slices + slice_) * kSide + lane_column();
      return WeightTile{{two_weights(above_row, above, column),
                         two_weights(above_row, above, column + kQuarter),
                         two_weights(below_row, below, column),
                         two_weights(below_row, below, column + kQuarter)}};
    };
    const int count = matrix_.tiles_per_slice();
#pragma unroll
    for (int group = 0; group < kRegisterTiles; group += kGroup) {
      if (group >= count) break;
#pragma unroll
      for (int i = group; i < group + kGroup; ++i) in_registers_[i] = gathered(i);
    }
    for (int i = kRegisterTiles; i < count; ++i) shared_tile(i) = gathered(i);
  }

  ROTCELL_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums_[0][i] = sums_[1][i] = 0;
    next_tile_ = kRegisterTiles;
  }

  ROTCELL_DEVICE void accumulate(const T* rows, int stride, int begin, int end) {
    if (!has_work_) return;
    const int granule = matrix_.granule();
    // Each lane points at a row of one of the operand's four quarters: first those of columns 0 to
    // 7, then those of columns 8 to 15.
    const T* operand =
        rows + lane() % kSide * stride + lane() / kSide * kQuarter + slice_ * kSide - begin;
    int column = 0;
#pragma unroll
    for (int group = 0; group < kRegisterTiles; group += kGroup, column += kGroup * granule) {
      if (column >= end) break;
      if (column < begin) continue;
      const T* first = operand + column;
      const int left = end - column;
      if (left >= kGroup * granule) {
        // All are loaded before the first is multiplied.
        unsigned values[kGroup][4];
#pragma unroll
        for (int i = 0; i < kGroup; ++i) ldmatrix_x4(values[i], first + i * granule);
#pragma unroll
        for (int i = 0; i < kGroup; ++i) add(values[i], in_registers_[group + i]);
      } else {
#pragma unroll
        for (int i = 0; i < kGroup - 1; ++i) {
          if (i * granule < left) add_tile(first + i * granule, in_registers_[group + i]);
        }
      }
    }
#pragma unroll 2
    for (column = larger(begin, kRegisterTiles * granule); column < end; column += granule) {
      add_tile(operand + column, shared_tile(next_tile_++));
    }
  }

  // results [slices, 16, result rows]
  ROTCELL_DEVICE void store(A* results) const {
    if (!has_work_) return;
    A* first = results + (slice_ * kSide + lane_row()) * matrix_.result_rows() + row_tile_ * kSide +
               lane_column();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      A* to = first + half * kQuarter;
      *reinterpret_cast<float2*>(to) = {sums_[half][0], sums_[half][1]};
      *reinterpret_cast<float2*>(to + kQuarter * matrix_.result_rows()) = {sums_[half][2],
                                                                           sums_[half][3]};
    }
  }

 private:
  static constexpr int kSide = Tiles::kTensorSide;
  static constexpr int kQuarter = kSide / 2;  // a tile is worked on in quarters of 8 x 8
  static constexpr int kGroup = Tiles::kTensorGroup;
  static_assert(kRegisterTiles % kGroup == 0);

  // A lane's share of a tile of 16 rows and 16 columns of the matrix: of rows 0 to 7 the first and
  // the last columns, then of rows 8 to 15.
  struct alignas(Tiles::kChunkBytes) WeightTile {
    unsigned registers[4];
  };

  static ROTCELL_DEVICE int lane() { return static_cast<int>(threadIdx.x) % Tiles::kWarp; }
  // Which element of a quarter, and its right neighbor, a lane has.
  static ROTCELL_DEVICE int lane_row() { return lane() / 4; }
  static ROTCELL_DEVICE int lane_column() { return lane() % 4 * 2; }

  ROTCELL_DEVICE WeightTile& shared_tile(int i) const {
    return in_shared_[(i - kRegisterTiles) * matrix_.threads() + static_cast<int>(threadIdx.x)];
  }

  // The weight at row and column and the one to its right, or zeros beyond the matrix.
  template <class Row>
  ROTCELL_DEVICE unsigned two_weights(const Row& weights, int row, int column) const {
    const auto weight = [&](int at) {
      return row < matrix_.rows && at < matrix_.depth ? weights(at) : to_storage<T>(0.0f);
    };
    return in_one_register(weight(column), weight(column + 1));
  }

  ROTCELL_DEVICE void add_tile(const T* operand, const WeightTile& weights) {
    unsigned values[4];
    ldmatrix_x4(values, operand);
    add(values, weights);
  }

  ROTCELL_DEVICE void add(const unsigned (&values)[4], const WeightTile& weights) {
    mma_m16n8k16<T>(sums_[0], values, weights.registers[0], weights.registers[1]);
    mma_m16n8k16<T>(sums_[1], values, weights.registers[2], weights.registers[3]);
  }

  Matrix matrix_;
  int row_tile_;
  int slice_;
  bool has_work_;
  int next_tile_;  // in shared memory
  WeightTile* in_shared_;
  WeightTile in_registers_[kRegisterTiles];
  float sums_[2][4];  // of rows 0 to 7 and 8 to 15 of the matrix
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// These tensor cores do not know the type: the plan never asks them to.
template <int kRegisterTiles>
class TensorCoreMatmul<__nv_bfloat16, kRegisterTiles> {
 public:
  using Storage = __nv_bfloat16;
  using A = float;
  using Matrix = TensorMatrix;
  template <class Rows>
  ROTCELL_DEVICE void load(const Matrix&, unsigned char*, Rows) {}
  ROTCELL_DEVICE void clear() {}
  ROTCELL_DEVICE void accumulate(const __nv_bfloat16*, int, int, int) {}
  ROTCELL_DEVICE void store(float*) const {}
};
#endif

}  // namespace rotcell::cuda
