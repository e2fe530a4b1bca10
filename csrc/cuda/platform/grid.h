// The name and size of a kernel launch, and the errors for one that fails.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace rotcell::cuda {

// Put together only when somebody asks for it.
struct KernelName {
  const char* cell = nullptr;  // none, for a kernel of no cell
  const char* kernel;

  KernelName(const char* name) : kernel(name) {}
  KernelName(const char* cell_name, const char* name) : cell(cell_name), kernel(name) {}

  std::string text() const { return cell ? std::string(cell) + "_" + kernel : kernel; }
};

struct Grid {
  unsigned blocks;
  unsigned threads;      // in each block
  size_t shared_bytes;   // in each block, all of it dynamic
  unsigned cluster = 1;  // blocks of one, for a launch of clusters
};

// The device cannot run that many blocks at once. Nothing has happened: another path may.
struct LaunchRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Error = std::runtime_error>
[[noreturn]] void launch_failed(const KernelName& name, const Grid& grid,
                                const std::string& reason) {
  throw Error("rotcell: CUDA kernel " + name.text() + " (" + std::to_string(grid.blocks) +
              " blocks of " + std::to_string(grid.threads) + " threads, " +
              std::to_string(grid.shared_bytes) +
              " bytes of shared memory) failed to launch: " + reason);
}

[[noreturn]] inline void launch_refused(const KernelName& name, const Grid& grid,
                                        long long blocks_at_once) {
  launch_failed<LaunchRefused>(
      name, grid,
      "its blocks must run at once, and the device holds " + std::to_string(blocks_at_once));
}

}  // namespace rotcell::cuda
