#include "emulator/device.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "cuda/runtime/known_devices.h"
#include "emulator/control.h"
#include "emulator/thread.h"

namespace rotcell::emulator {
namespace {

std::mutex device_lock;
cuda::DeviceProperties device = *cuda::find_known_device("H100");

std::atomic<bool> pretended_capture{false};

// Limits that a GPU has by its compute capability, from the CUDA programming guide.
int64_t most_blocks(int compute_capability) {
  switch (compute_capability) {
    case 75:
    case 86:
    case 87:
      return 16;
    case 89:
      return 24;
    default:
      return 32;
  }
}

int64_t shared_bytes_kept_by_system(int compute_capability) {
  return compute_capability >= 80 ? 1024 : 0;  // of each block
}

}  // namespace

void pretend_capture(bool capturing) { pretended_capture.store(capturing); }

bool capture_is_pretended() { return pretended_capture.load(); }

void pose_as(const cuda::DeviceProperties& properties) {
  const std::lock_guard lock(device_lock);
  device = properties;
}

cuda::DeviceProperties posed_device() {
  const std::lock_guard lock(device_lock);
  return device;
}

int blocks_per_multiprocessor(unsigned threads, size_t shared_bytes) {
  const cuda::DeviceProperties gpu = posed_device();
  if (threads == 0 || threads > most_threads_per_block) return 0;
  if (shared_bytes > static_cast<size_t>(gpu.shared_bytes_per_block)) return 0;
  const int64_t warps = (threads + warp_size - 1) / warp_size;
  int64_t blocks = most_blocks(gpu.compute_capability);
  blocks = std::min(blocks, gpu.threads_per_multiprocessor / (warps * warp_size));
  const int64_t bytes =
      static_cast<int64_t>(shared_bytes) + shared_bytes_kept_by_system(gpu.compute_capability);
  if (bytes > 0) blocks = std::min(blocks, gpu.shared_bytes_per_multiprocessor / bytes);
  return static_cast<int>(blocks);
}

int64_t clusters_at_once(const cuda::Grid& grid) {
  const cuda::DeviceProperties gpu = posed_device();
  if (grid.cluster == 0 || grid.cluster > static_cast<unsigned>(gpu.largest_cluster)) return 0;
  const int64_t blocks =
      int64_t{gpu.multiprocessors} * blocks_per_multiprocessor(grid.threads, grid.shared_bytes);
  return blocks / grid.cluster;
}

}  // namespace rotcell::emulator

namespace rotcell::cuda {

DeviceProperties device_properties(int) { return emulator::posed_device(); }
bool has_kernels(int) { return true; }
bool is_capturing(Stream) { return emulator::capture_is_pretended(); }

}  // namespace rotcell::cuda
