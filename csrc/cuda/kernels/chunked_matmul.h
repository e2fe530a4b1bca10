// A matrix that stays on chip, and its matmul with rows that are in shared memory: y = M v.
#pragma once

#include "cuda/kernels/device_math.h"
#include "cuda/kernels/shapes.h"
#include "cuda/platform/platform.h"

namespace rotcell::cuda {

// 16 bytes, loaded and stored at once.
template <class T>
struct alignas(Tiles::kChunkBytes) WeightChunk {
  static constexpr int kElements = Tiles::kChunkBytes / sizeof(T);
  T elements[kElements];
};

// Which threads have the slices of a row of the matrix.
enum class Slices {
  kApart,    // any number of them: added up through shared memory
  kInLanes,  // neighbors in a warp, so a power of two: added up by shuffles
};

// See ChunkedMatrix for how the matrix is shared out. kRows rows are multiplied at once; the first
// kRegisterChunks chunks of a thread's row are in its registers.
template <class T, int kRows, int kRegisterChunks, Slices kSlices>
class ChunkedMatmul {
 public:
  using Storage = T;
  using A = Compute<T>;
  using Matrix = ChunkedMatrix;

  // Brings the matrix on chip; rows(row)(column) is asked for inside it only.
  template <class Rows>
  ROTCELL_DEVICE void load(const Matrix& matrix, unsigned char* shared, Rows rows) {
    matrix_ = matrix;
    const int thread = static_cast<int>(threadIdx.x);
    slice_ = kSlices == Slices::kApart ? thread / matrix.rows : thread % matrix.slices;
    row_ = kSlices == Slices::kApart ? thread % matrix.rows : thread / matrix.slices;
    has_work_ = thread < matrix.threads();
    in_shared_ = reinterpret_cast<WeightChunk<T>*>(shared);
    if (!has_work_) return;
    const auto row = rows(row_);
    const int count = matrix_.chunks_per_slice();
#pragma unroll
    for (int i = 0; i < kRegisterChunks; ++i) {
      if (i < count) in_registers_[i] = gathered(i, row);
    }
    for (int i = kRegisterChunks; i < count; ++i) shared_chunk(i) = gathered(i, row);
  }

  ROTCELL_DEVICE void clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums_[r] = A(0);
    next_chunk_ = kRegisterChunks;
  }

  // Adds the matmul with a stage of the rows: columns [begin, end) of the padded depth, both
  // multiples of the granule, stage after stage. The rows lie `stride` elements apart.
  ROTCELL_DEVICE void accumulate(const T* rows, int stride, int begin, int end) {
    if (!has_work_) return;
    const int granule = matrix_.slices * WeightChunk<T>::kElements;  // matrix_ would divide
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

  // Slices apart: results [slices, kRows, rows], to be added up after a barrier.
  ROTCELL_DEVICE void store(A* results) const {
    static_assert(kSlices == Slices::kApart);
    if (!has_work_) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      results[(slice_ * kRows + r) * matrix_.rows + row_] = sums_[r];
    }
  }

  // Slices in lanes: hands out whole sums, body(row that was multiplied, sum), each to one lane of
  // those that have the row of the matrix. All lanes of a warp take part.
  template <class Body>
  ROTCELL_DEVICE void for_sums(Body body) {
    static_assert(kSlices == Slices::kInLanes);
    for (int distance = 1; distance < matrix_.slices; distance *= 2) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums_[r] += __shfl_xor_sync(0xffffffff, sums_[r], distance);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (hands_out(r)) body(r, sums_[r]);
    }
  }
  // Whether this lane is handed the sum of row r, of the matrix' row row().
  ROTCELL_DEVICE bool hands_out(int r) const {
    return has_work_ && (r & (matrix_.slices - 1)) == slice_;
  }
  ROTCELL_DEVICE int row() const { return row_; }

 private:
  // Unrolled further, what is loaded for all rows would not fit the registers.
  static constexpr int kUnrolled = sizeof(T) == 2 ? 1 : 2;

  ROTCELL_DEVICE WeightChunk<T>& shared_chunk(int i) const {
    return in_shared_[(i - kRegisterChunks) * matrix_.threads() + static_cast<int>(threadIdx.x)];
  }

  template <class Row>
  ROTCELL_DEVICE WeightChunk<T> gathered(int i, const Row& row) const {
    WeightChunk<T> chunk;
    const int column = (i * matrix_.slices + slice_) * WeightChunk<T>::kElements;
#pragma unroll
    for (int e = 0; e < WeightChunk<T>::kElements; ++e) {
      chunk.elements[e] = column + e < matrix_.depth ? row(column + e) : to_storage<T>(A(0));
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
