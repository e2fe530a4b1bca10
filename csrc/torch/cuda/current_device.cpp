#include "torch/cuda/current_device.h"

#include <algorithm>

// From libtorch_cuda. Declared here because torch's header needs the CUDA headers that torch was
// built with, and ours may differ.
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

Device device_at(int index) { return {aoti_torch_device_type_cuda(), index}; }

cuda::Stream current_stream(int device) {
  void* stream;
  ROTCELL_SHIM(aoti_torch_get_current_cuda_stream, device, &stream);
  return static_cast<cuda::Stream>(stream);
}

Tensor empty(Sizes sizes, DType dtype, Device device) {
  return Tensor::empty(sizes, dtype, device);
}

// From pinned memory, which torch keeps until the copy is done.
Tensor copied_to_device(std::span<const int64_t> values, Device device) {
  const int64_t count = static_cast<int64_t>(values.size()), stride = 1;
  const Device host = cpu_device();
  AtenTensorHandle handle;
  ROTCELL_SHIM(aoti_torch_empty_strided_pinned, 1, &count, &stride, int64(), host.type, host.index,
               &handle);
  const Tensor pinned(handle);
  std::copy(values.begin(), values.end(), pinned.data<int64_t>());
  Tensor copy = Tensor::empty({count}, int64(), device);
  ROTCELL_SHIM(aoti_torch_copy_, copy.handle(), pinned.handle(), /*non_blocking=*/1);
  return copy;
}

}  // namespace rotcell::ops::gpu
