#include "ops/cuda/c_functions.h"

#include <exception>

#include "cuda/device.h"
#include "ops/cuda/path.h"

#define ROTCELL_EXPORTED extern "C" __attribute__((visibility("default")))

ROTCELL_EXPORTED int rotcell_cuda_has_kernels(int device) {
  return rotcell::cuda::has_kernels(device) ? 1 : 0;
}

ROTCELL_EXPORTED int rotcell_cuda_device(int device, int64_t properties[6]) {
  try {
    const rotcell::cuda::DeviceProperties found = rotcell::cuda::device_properties(device);
    properties[0] = found.compute_capability;
    properties[1] = found.multiprocessors;
    properties[2] = found.shared_bytes_per_block;
    properties[3] = found.shared_bytes_per_multiprocessor;
    properties[4] = found.threads_per_multiprocessor;
    properties[5] = found.cooperative_launch ? 1 : 0;
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

ROTCELL_EXPORTED int rotcell_cuda_force_path(int path) {
  using rotcell::cuda::Path;
  if (path < -1 || path > static_cast<int>(Path::kCooperative)) return -1;
  rotcell::ops::gpu::force_path(path < 0 ? std::nullopt : std::optional(static_cast<Path>(path)));
  return 0;
}
