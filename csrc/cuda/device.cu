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

}  // namespace

DeviceProperties device_properties(int device) {
  static std::mutex mutex;
  static std::map<int, DeviceProperties> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(device); found != known.end()) return found->second;
  const DeviceProperties properties{attribute(cudaDevAttrComputeCapabilityMajor, device) * 10 +
                                        attribute(cudaDevAttrComputeCapabilityMinor, device),
                                    attribute(cudaDevAttrMultiProcessorCount, device),
                                    attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                                    attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
                                    attribute(cudaDevAttrMaxThreadsPerMultiProcessor, device),
                                    attribute(cudaDevAttrCooperativeLaunch, device) != 0};
  return known.emplace(device, properties).first->second;
}

}  // namespace rotcell::cuda
