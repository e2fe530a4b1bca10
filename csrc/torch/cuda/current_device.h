// What the ops ask of the device that their tensors are on. The emulator answers it too, so that
// the ops run on CPU tensors in tests.
#pragma once

#include <span>

#include "cuda/platform/stream.h"
#include "torch/tensor.h"

namespace rotcell::ops::gpu {

// While it lives, the device is the current one.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  void* guard_;
};

// As the runtime numbers it.
Device device_at(int index);

// The stream that torch uses on the device.
cuda::Stream current_stream(int device);

// Uninitialized memory there.
Tensor empty(Sizes sizes, DType dtype, Device device);

// An int64 tensor there, copied without waiting for the copy.
Tensor copied_to_device(std::span<const int64_t> values, Device device);

}  // namespace rotcell::ops::gpu
