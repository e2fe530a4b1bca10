// The size of a kernel launch, and the error for one that fails.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace rotcell::cuda {

struct Grid {
  unsigned blocks;
  unsigned threads;     // in each block
  size_t shared_bytes;  // in each block, all of it dynamic
};

[[noreturn]] inline void launch_failed(const char* name, const Grid& grid,
                                       const std::string& reason) {
  throw std::runtime_error(
      "rotcell: CUDA kernel " + std::string(name) + " (" + std::to_string(grid.blocks) +
      " blocks of " + std::to_string(grid.threads) + " threads, " +
      std::to_string(grid.shared_bytes) + " bytes of shared memory) failed to launch: " + reason);
}

}  // namespace rotcell::cuda
