// Runs the warps of a launch.
#pragma once

#include "cuda/platform/grid.h"
#include "emulator/launch.h"
#include "ptx/program.h"

namespace rotcell::ptx {

// Returns when all blocks are done. Throws std::runtime_error, with kernel, line, block and warp,
// for errors that it notices. `name` is what errors call the kernel.
void run(const Kernel& kernel, const char* name, emulator::Kind kind, const cuda::Grid& grid,
         const void* parameters);

}  // namespace rotcell::ptx
