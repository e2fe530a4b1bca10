// Torch's matrices as the CUDA runtime takes them.
#pragma once

#include "cuda/runtime/matrix.h"
#include "torch/tensor.h"

namespace rotcell::ops::gpu {

// check_arguments has refused all other types.
cuda::Number number_of(DType dtype);

// The tensor, which must outlive it, of one or two dimensions. A vector is a single row. Undefined
// if the tensor is.
cuda::Matrix matrix_of(const Tensor& tensor);

}  // namespace rotcell::ops::gpu
