// What the ops ask of the device that their tensors are on. The executor of csrc/simt answers it
// too, so that the ops run on CPU tensors in tests.
#pragma once

#include "cells/steps.h"
#include "cuda/stream.h"
#include "ops/tensor.h"

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

// The stream that torch uses on the device.
cuda::Stream current_stream(Device device);

// Whether that stream's work goes into a CUDA graph.
bool is_capturing(cuda::Stream stream);

// Uninitialised memory there.
Tensor empty(Sizes sizes, DType dtype, Device device);

// batch_sizes and offsets of the steps as a tensor [2, count] on the device, without waiting for
// the copy.
Tensor table_of(const Steps& steps, Device device);

}  // namespace rotcell::ops::gpu
