// A matrix that stays on chip, and its product with rows that are in shared memory: y = M v.
#pragma once

#include "cuda/device_math.h"
#include "cuda/platform.h"
#include "cuda/shapes.h"

namespace rotcell::cuda {

// 16 bytes, loaded and stored at once.
template <class T>
struct alignas(Tiles::kChunkBytes) WeightChunk {
  static constexpr int kElements = Tiles::kChunkBytes / sizeof(T);
  T elements[kElements];
};

// See ChunkedMatrix for how the matrix is shared out. kRows rows are multiplied at once; the first
// kRegisterChunks chunks of a thread's row are in its registers.
template <class T, int kRows, int kRegisterChunks>
class ChunkedProduct {
 public:
  using Storage = T;
  using A = Compute<T>;
  using Matrix = ChunkedMatrix;

  // Brings the matrix on chip; element(row, column) is asked for inside it only.
  template <class Element>
  ROTCELL_DEVICE void load(const Matrix& matrix, unsigned char* shared, Element element) {
    matrix_ = matrix;
    slice_ = static_cast<int>(threadIdx.x) / matrix.rows;
    row_ = static_cast<int>(threadIdx.x) % matrix.rows;
    has_work_ = slice_ < matrix.slices;
    in_shared_ = reinterpret_cast<WeightChunk<T>*>(shared);
    if (!has_work_) return;
    const int count = matrix_.chunks_per_slice();
#pragma unroll
    for (int i = 0; i < kRegisterChunks; ++i) {
      if (i < count) in_registers_[i] = gathered(i, element);
    }
    for (int i = kRegisterChunks; i < count; ++i) shared_chunk(i) = gathered(i, element);
  }

  ROTCELL_DEVICE void clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums_[r] = A(0);
    next_chunk_ = kRegisterChunks;
  }

  // Adds the product with a stage of the rows: columns [begin, end) of the padded depth, both
  // multiples of the granule, stage after stage. The rows lie `stride` elements apart.
  ROTCELL_DEVICE void accumulate(const T* rows, int stride, int begin, int end) {
    if (!has_work_) return;
    const int granule = matrix_.granule();
    const T* operand = rows + slice_ * WeightChunk<T>::kElements;
#pragma unroll
    for (int i = 0; i < kRegisterChunks; ++i) {
      if (i * granule < end) add(in_registers_[i], operand + i * granule, stride);
    }
#pragma unroll kUnrolled
    for (int column = larger(begin, kRegisterChunks * granule); column < end; column += granule) {
      add(shared_chunk(next_chunk_++), operand + column - begin, stride);
    }
  }

  // results [slices, kRows, rows]: to be added up after a barrier.
  ROTCELL_DEVICE void store(A* results) const {
    if (!has_work_) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      results[(slice_ * kRows + r) * matrix_.rows + row_] = sums_[r];
    }
  }

  // The whole of one result, for a thread that needs few of them.
  static ROTCELL_DEVICE A result(const Matrix& matrix, const A* results, int batch_row, int row) {
    A sum(0);
    for (int slice = 0; slice < matrix.slices; ++slice) {
      sum += results[(slice * kRows + batch_row) * matrix.rows + row];
    }
    return sum;
  }

 private:
  // Unrolled further, what is loaded for all rows would not fit the registers.
  static constexpr int kUnrolled = sizeof(T) == 2 ? 1 : 2;

  ROTCELL_DEVICE WeightChunk<T>& shared_chunk(int i) const {
    return in_shared_[((i - kRegisterChunks) * matrix_.slices + slice_) * matrix_.rows + row_];
  }

  template <class Element>
  ROTCELL_DEVICE WeightChunk<T> gathered(int i, Element element) const {
    WeightChunk<T> chunk;
    const int column = (i * matrix_.slices + slice_) * WeightChunk<T>::kElements;
#pragma unroll
    for (int e = 0; e < WeightChunk<T>::kElements; ++e) {
      chunk.elements[e] =
          column + e < matrix_.depth ? element(row_, column + e) : to_storage<T>(A(0));
    }
    return chunk;
  }

  ROTCELL_DEVICE void add(const WeightChunk<T>& weights, const T* operand, int stride) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const WeightChunk<T> values = *reinterpret_cast<const WeightChunk<T>*>(operand + r * stride);
#pragma unroll
      for (int e = 0; e < WeightChunk<T>::kElements; ++e) {
        sums_[r] += to_compute(weights.elements[e]) * to_compute(values.elements[e]);
      }
    }
  }

  Matrix matrix_;
  int slice_;
  int row_;
  bool has_work_;
  int next_chunk_;  // in shared memory
  WeightChunk<T>* in_shared_;
  WeightChunk<T> in_registers_[kRegisterChunks > 0 ? kRegisterChunks : 1];
  A sums_[kRows];
};

}  // namespace rotcell::cuda
