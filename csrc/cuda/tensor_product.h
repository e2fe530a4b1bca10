// A matrix of a half type that stays on chip, and its product on tensor cores with 16 rows that are
// in shared memory. The same interface as ChunkedProduct.
#pragma once

#include "cuda/device_math.h"
#include "cuda/platform.h"
#include "cuda/shapes.h"

namespace rotcell::cuda {

// See TensorMatrix for how the matrix is shared out.
template <class T>
class TensorProduct {
 public:
  using Storage = T;
  using A = float;
  using Matrix = TensorMatrix;

  template <class Element>
  ROTCELL_DEVICE void load(const Matrix& matrix, unsigned char* shared, Element element) {
    matrix_ = matrix;
    weights_ = reinterpret_cast<T*>(shared);
    const int tiles = matrix.result_rows() / kSide, warp = static_cast<int>(threadIdx.x) / kWarp;
    tile_ = warp % tiles;
    slice_ = warp / tiles;
    const int columns = matrix.leading_dimension();
    for (int i = static_cast<int>(threadIdx.x); i < matrix.result_rows() * columns;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / columns, column = i % columns;
      weights_[i] =
          row < matrix.rows && column < matrix.depth ? element(row, column) : to_storage<T>(0.0f);
    }
  }

  ROTCELL_DEVICE void clear() { nvcuda::wmma::fill_fragment(sums_, 0.0f); }

  ROTCELL_DEVICE void accumulate(const T* rows, int stride, int begin, int end) {
    namespace wmma = nvcuda::wmma;
    if (slice_ >= matrix_.slices) return;
    const T* weights = weights_ + tile_ * kSide * matrix_.leading_dimension();
    for (int column = begin + slice_ * kSide; column < end; column += matrix_.granule()) {
      wmma::fragment<wmma::matrix_a, kSide, kSide, kSide, T, wmma::row_major> values;
      wmma::fragment<wmma::matrix_b, kSide, kSide, kSide, T, wmma::col_major> columns;
      wmma::load_matrix_sync(values, rows + column - begin, stride);
      wmma::load_matrix_sync(columns, weights + column, matrix_.leading_dimension());
      wmma::mma_sync(sums_, values, columns, sums_);
    }
  }

  // results [slices, 16, result rows]
  ROTCELL_DEVICE void store(A* results) const {
    if (slice_ >= matrix_.slices) return;
    nvcuda::wmma::store_matrix_sync(
        results + slice_ * kSide * matrix_.result_rows() + tile_ * kSide, sums_,
        matrix_.result_rows(), nvcuda::wmma::mem_row_major);
  }

 private:
  static constexpr int kSide = Tiles::kTensorSide;
  static constexpr int kWarp = Tiles::kWarp;

  Matrix matrix_;
  T* weights_;
  int tile_;
  int slice_;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kSide, kSide, kSide, float> sums_;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// These tensor cores do not know the type: the plan never asks them to.
template <>
class TensorProduct<__nv_bfloat16> {
 public:
  using Storage = __nv_bfloat16;
  using A = float;
  using Matrix = TensorMatrix;
  template <class Element>
  ROTCELL_DEVICE void load(const Matrix&, unsigned char*, Element) {}
  ROTCELL_DEVICE void clear() {}
  ROTCELL_DEVICE void accumulate(const __nv_bfloat16*, int, int, int) {}
  ROTCELL_DEVICE void store(float*) const {}
};
#endif

}  // namespace rotcell::cuda
