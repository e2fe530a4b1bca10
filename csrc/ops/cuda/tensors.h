// What the GPU ops do with tensors besides their kernels.
#pragma once

#include "ops/arguments.h"
#include "ops/sequence.h"
#include "ops/tensor.h"

namespace rotcell::ops::gpu {

// The address of a row; null for an undefined tensor. Kernels that only read take it as well.
void* row(const Tensor& tensor, int64_t index = 0);

// The first rows of a matrix. The view is made anew only when their number changes.
class FirstRows {
 public:
  explicit FirstRows(const Tensor& whole) : whole_(whole.borrow()) {}
  const Tensor& operator()(int64_t rows) {
    if (rows != rows_) {
      view_ = whole_.narrow(0, 0, rows);
      rows_ = rows;
    }
    return view_;
  }

 private:
  Tensor whole_, view_;
  int64_t rows_ = -1;
};

Tensor add(const Tensor& a, const Tensor& b);

// x w^T + bias, if there is one.
Tensor linear(const Tensor& x, const Tensor& weights, const Tensor& bias);

// a b
Tensor product(const Tensor& a, const Tensor& b);

// The sum of the rows of a matrix. A product with ones, so torch's switch for TF32 counts.
Tensor sum_of_rows(const Tensor& matrix);

// As the kernels want them.
ChangeTensors contiguous(const ChangeTensors& changes, DType dtype);

// A gradient that comes in as a contiguous tensor of its own, which kernels overwrite; zero if
// there is none.
Tensor running_gradient(const Tensor& grad, const Tensor& like, DType dtype);

// The output that each token starts from, [tokens, outputs], in few launches.
Tensor outputs_before(const Tensor& out, const Tensor& h0, const Sequence& sequence);

}  // namespace rotcell::ops::gpu
