// What the choice of a path needs to know of a GPU. A plain struct, so that tests can pose as any.
#pragma once

#include <cstdint>

namespace rotcell::cuda {

struct DeviceProperties {
  int compute_capability;  // major * 10 + minor
  int multiprocessors;
  int64_t shared_bytes_per_block;  // the most a kernel may ask for (opt-in)
  int64_t shared_bytes_per_multiprocessor;
  int threads_per_multiprocessor;
  bool cooperative_launch;
  int largest_cluster;  // of blocks, also one that other devices may not have; 1: there are none
};

// Of a device of this machine, by its index.
DeviceProperties device_properties(int device);

// Whether the kernels of this build run on it: those of another architecture, or without PTX that
// the driver could compile for it, do not.
bool has_kernels(int device);

}  // namespace rotcell::cuda
