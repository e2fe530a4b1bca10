#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "cuda/device.h"
#include "cuda/platform.h"

namespace rotcell::cuda {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&value, which, device);
  if (error != cudaSuccess) {
    throw std::runtime_error("rotcell: CUDA device " + std::to_string(device) +
                             " does not tell its properties: " + cudaGetErrorString(error));
  }
  return value;
}

// Compiled for the same architectures as all the others, to ask about.
ROTCELL_GLOBAL void probe(int) {}

}  // namespace

DeviceProperties device_properties(int device) {
  static std::mutex mutex;
  static std::map<int, DeviceProperties> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(device); found != known.end()) return found->second;
  const DeviceProperties properties{
      .compute_capability = attribute(cudaDevAttrComputeCapabilityMajor, device) * 10 +
                            attribute(cudaDevAttrComputeCapabilityMinor, device),
      .multiprocessors = attribute(cudaDevAttrMultiProcessorCount, device),
      .shared_bytes_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
      .shared_bytes_per_multiprocessor =
          attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
      .threads_per_multiprocessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor, device),
      .cooperative_launch = attribute(cudaDevAttrCooperativeLaunch, device) != 0};
  return known.emplace(device, properties).first->second;
}

bool has_kernels(int device) {
  int current = 0;
  cudaFuncAttributes attributes;
  const bool found = cudaGetDevice(&current) == cudaSuccess &&
                     cudaSetDevice(device) == cudaSuccess &&
                     cudaFuncGetAttributes(&attributes, probe) == cudaSuccess;
  cudaGetLastError();  // a no is an answer, not an error
  cudaSetDevice(current);
  cudaGetLastError();
  return found;
}

}  // namespace rotcell::cuda
