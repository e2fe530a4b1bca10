// What the runtime asks of a GPU. Its properties are a plain struct, so that tests can pose as any.
#pragma once

#include <cstdint>

#include "cuda/platform/stream.h"

namespace rotcell::cuda {

// The only list of them: X(type, name).
#define ROTCELL_DEVICE_PROPERTIES(X)                                              \
  X(int, compute_capability) /* major * 10 + minor */                             \
  X(int, multiprocessors)                                                         \
  X(int64_t, shared_bytes_per_block) /* the most a kernel may ask for (opt-in) */ \
  X(int64_t, shared_bytes_per_multiprocessor)                                     \
  X(int, threads_per_multiprocessor)                                              \
  X(bool, cooperative_launch)                                                     \
  X(int, largest_cluster) /* in blocks, including sizes that are not portable; 1: no clusters */

struct DeviceProperties {
#define ROTCELL_DECLARE(type, name) type name;
  ROTCELL_DEVICE_PROPERTIES(ROTCELL_DECLARE)
#undef ROTCELL_DECLARE
};

// The properties of a device of this machine, by its index.
DeviceProperties device_properties(int device);

// Whether the kernels of this build run on it: those of another architecture, or without PTX that
// the driver could compile for it, do not.
bool has_kernels(int device);

// Whether the stream's work goes into a CUDA graph.
bool is_capturing(Stream stream);

}  // namespace rotcell::cuda
