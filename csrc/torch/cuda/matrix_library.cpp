// Lends torch's memory, stream and matmuls to the CUDA runtime.
#include "torch/cuda/matrix_library.h"

#include <vector>

#include "torch/cuda/current_device.h"
#include "torch/registration.h"

// Generated shims, there with these parameters since before torch 2.10. They call the kernels of a
// device directly: no autocast, no autograd. In the emulator there is no CUDA, hence weak.
extern "C" {
#define ROTCELL_SHIMS_OF(device, attributes)                                               \
  attributes AOTITorchError aoti_torch_##device##_add_Tensor(                              \
      AtenTensorHandle self, AtenTensorHandle other, double alpha, AtenTensorHandle* sum); \
  attributes AOTITorchError aoti_torch_##device##_addmm_out(                               \
      AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle a, AtenTensorHandle b, \
      double beta, double alpha);                                                          \
  attributes AOTITorchError aoti_torch_##device##_cat(                                     \
      const AtenTensorHandle* tensors, int64_t count, int64_t dim, AtenTensorHandle* joined);
ROTCELL_SHIMS_OF(cpu, )
ROTCELL_SHIMS_OF(cuda, __attribute__((weak)))
#undef ROTCELL_SHIMS_OF
}

// Calls the shim of the device that a tensor is on.
#define ROTCELL_DEVICE_SHIM(tensor, name, ...)                                                 \
  ::rotcell::ops::check_shim((tensor).device().is_cpu() ? aoti_torch_cpu_##name(__VA_ARGS__)   \
                                                        : aoti_torch_cuda_##name(__VA_ARGS__), \
                             #name)

namespace rotcell::ops::gpu {
namespace {

using cuda::MatrixHandle;

AtenTensorHandle handle_of(MatrixHandle matrix) { return static_cast<AtenTensorHandle>(matrix); }
Tensor tensor_of(MatrixHandle matrix) { return Tensor::borrowed(handle_of(matrix)); }

MatrixHandle give(Tensor tensor, void** data) {
  *data = tensor.raw_data();
  return tensor.release();
}

DType dtype_of_number(cuda::Number number) {
  switch (number) {
    case cuda::Number::kFloat64:
      return float64();
    case cuda::Number::kFloat16:
      return float16();
    case cuda::Number::kBFloat16:
      return bfloat16();
    case cuda::Number::kFloat32:
      break;
  }
  return float32();
}

MatrixHandle empty_matrix(int device, cuda::Number number, int64_t rows, int64_t columns,
                          void** data) {
  return give(empty({rows, columns}, dtype_of_number(number), device_at(device)), data);
}

MatrixHandle integers(int device, const int64_t* values, int64_t count, void** data) {
  if (values == nullptr) return give(Tensor::zeros({count}, int64(), device_at(device)), data);
  const std::span<const int64_t> all(values, static_cast<size_t>(count));
  return give(copied_to_device(all, device_at(device)), data);
}

MatrixHandle view(MatrixHandle of, const cuda::MatrixLayout& layout, int64_t offset) {
  return tensor_of(of)
      .view({layout.rows, layout.columns}, {layout.row_stride, layout.column_stride}, offset)
      .release();
}

void release(MatrixHandle matrix) { const Tensor freed(handle_of(matrix)); }

void fill(MatrixHandle matrix, double value) {
  if (value == 0) {
    tensor_of(matrix).zero_();
  } else {
    tensor_of(matrix).fill_(value);
  }
}

void copy(MatrixHandle to, MatrixHandle from) { tensor_of(to).copy_(tensor_of(from)); }

MatrixHandle add(MatrixHandle a, MatrixHandle b, void** data) {
  AtenTensorHandle sum;
  ROTCELL_DEVICE_SHIM(tensor_of(a), add_Tensor, handle_of(a), handle_of(b), 1.0, &sum);
  return give(Tensor(sum), data);
}

MatrixHandle concatenate(std::span<const MatrixHandle> parts, void** data) {
  std::vector<AtenTensorHandle> handles;
  for (const MatrixHandle part : parts) handles.push_back(handle_of(part));
  AtenTensorHandle joined;
  ROTCELL_DEVICE_SHIM(tensor_of(parts[0]), cat, handles.data(),
                      static_cast<int64_t>(handles.size()), 0, &joined);
  return give(Tensor(joined), data);
}

void matmul(MatrixHandle out, MatrixHandle a, MatrixHandle b) {
  mm_out(tensor_of(out), tensor_of(a), tensor_of(b));
}

void matmul_with_bias(MatrixHandle out, MatrixHandle bias, MatrixHandle a, MatrixHandle b) {
  ROTCELL_DEVICE_SHIM(tensor_of(out), addmm_out, handle_of(out), handle_of(bias), handle_of(a),
                      handle_of(b), 1.0, 1.0);
}

const AtLoad at_load([] {
  cuda::use_matrix_library({.current_stream = current_stream,
                            .empty = empty_matrix,
                            .integers = integers,
                            .view = view,
                            .release = release,
                            .fill = fill,
                            .copy = copy,
                            .add = add,
                            .concatenate = concatenate,
                            .matmul = matmul,
                            .matmul_with_bias = matmul_with_bias});
});

}  // namespace

cuda::Number number_of(DType dtype) {
  if (dtype == float32()) return cuda::Number::kFloat32;
  if (dtype == float64()) return cuda::Number::kFloat64;
  return dtype == float16() ? cuda::Number::kFloat16 : cuda::Number::kBFloat16;
}

cuda::Matrix matrix_of(const Tensor& tensor) {
  if (!tensor) return {};
  const bool is_vector = tensor.dim() == 1;
  const cuda::MatrixLayout layout{.rows = is_vector ? 1 : tensor.size(0),
                                  .columns = tensor.size(is_vector ? 0 : 1),
                                  .row_stride = is_vector ? 1 : tensor.stride(0),
                                  .column_stride = tensor.stride(is_vector ? 0 : 1)};
  return cuda::Matrix::borrowed(tensor.handle(), tensor.raw_data(), number_of(tensor.dtype()),
                                layout);
}

}  // namespace rotcell::ops::gpu
