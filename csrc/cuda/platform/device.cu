#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "cuda/kernels/shapes.h"
#include "cuda/platform/device.h"
#include "cuda/platform/platform.h"

namespace rotcell::cuda {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&value, which, device);
  if (error != cudaSuccess) {
    throw std::runtime_error("rotcell: CUDA device " + std::to_string(device) +
                             " does not report its properties: " + cudaGetErrorString(error));
  }
  return value;
}

// Compiled for the same architectures as all the others, to ask about.
ROTCELL_GLOBAL void probe(int) {}

// Whether the function runs without an error, on this device.
template <class Function>
bool works_on(int device, Function function) {
  int current = 0;
  const bool works = cudaGetDevice(&current) == cudaSuccess &&
                     cudaSetDevice(device) == cudaSuccess && function() == cudaSuccess;
  cudaGetLastError();  // a no is an answer, not an error
  cudaSetDevice(current);
  cudaGetLastError();
  return works;
}

// Kernels that were compiled for an older architecture, and that the driver has made into code for
// this one, do not use clusters.
int largest_cluster(int device) {
  constexpr int kFirstWithClusters = 90;
  int blocks = 1;
  const bool found = works_on(device, [&] {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, probe);
    if (error != cudaSuccess || attributes.ptxVersion < kFirstWithClusters) return error;
    cudaLaunchConfig_t config{};
    config.gridDim = config.blockDim = dim3(Tiles::kClusterThreads);
    error = cudaFuncSetAttribute(probe, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
    return cudaOccupancyMaxPotentialClusterSize(&blocks, probe, &config);
  });
  return found ? blocks : 1;
}

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
      .cooperative_launch = attribute(cudaDevAttrCooperativeLaunch, device) != 0,
      .largest_cluster = largest_cluster(device)};
  return known.emplace(device, properties).first->second;
}

bool has_kernels(int device) {
  cudaFuncAttributes attributes;
  return works_on(device, [&] { return cudaFuncGetAttributes(&attributes, probe); });
}

bool is_capturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) cudaGetLastError();
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace rotcell::cuda
