#include "ops/cuda/current_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>

// Of libtorch_cuda. torch's header declares them where CUDA's own headers are those that torch was
// built with, which ours need not be.
extern "C" {
struct CUDAGuardOpaque;
AOTITorchError aoti_torch_create_cuda_guard(int32_t device_index, CUDAGuardOpaque** guard);
AOTITorchError aoti_torch_delete_cuda_guard(CUDAGuardOpaque* guard);
AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);
}

namespace rotcell::ops::gpu {

DeviceScope::DeviceScope(Device device) {
  CUDAGuardOpaque* guard;
  ROTCELL_SHIM(aoti_torch_create_cuda_guard, device.index, &guard);
  guard_ = guard;
}

DeviceScope::~DeviceScope() { aoti_torch_delete_cuda_guard(static_cast<CUDAGuardOpaque*>(guard_)); }

cuda::Stream current_stream(Device device) {
  void* stream;
  ROTCELL_SHIM(aoti_torch_get_current_cuda_stream, device.index, &stream);
  return static_cast<cuda::Stream>(stream);
}

bool is_capturing(cuda::Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) cudaGetLastError();
  return status != cudaStreamCaptureStatusNone;
}

Tensor empty(Sizes sizes, DType dtype, Device device) {
  return Tensor::empty(sizes, dtype, device);
}

// From pinned memory, which torch keeps until the copy is done.
Tensor table_of(const Steps& steps, Device device) {
  const int64_t sizes[] = {2, steps.count}, strides[] = {steps.count, 1};
  const Device host = cpu_device();
  AtenTensorHandle handle;
  ROTCELL_SHIM(aoti_torch_empty_strided_pinned, 2, sizes, strides, int64(), host.type, host.index,
               &handle);
  const Tensor pinned(handle);
  int64_t* values = pinned.data<int64_t>();
  std::copy_n(steps.batch_sizes, steps.count, values);
  std::copy_n(steps.offsets, steps.count, values + steps.count);
  Tensor table = Tensor::empty({2, steps.count}, int64(), device);
  ROTCELL_SHIM(aoti_torch_copy_, table.handle(), pinned.handle(), /*non_blocking=*/1);
  return table;
}

}  // namespace rotcell::ops::gpu
