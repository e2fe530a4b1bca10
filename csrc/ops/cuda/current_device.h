// What the ops ask of the device that their tensors are on. The executor of csrc/simt answers it
// too, so that the ops run on CPU tensors in tests.
#pragma once

#include <c10/core/Device.h>

#include "cuda/stream.h"

namespace rotcell::ops::gpu {

// The stream that torch uses on the device.
cuda::Stream current_stream(c10::Device device);

// Whether that stream's work goes into a CUDA graph.
bool is_capturing(c10::Device device);

}  // namespace rotcell::ops::gpu
