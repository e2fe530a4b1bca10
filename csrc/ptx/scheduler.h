// Runs the warps of a launch.
#pragma once

#include "cuda/grid.h"
#include "ptx/counts.h"
#include "ptx/program.h"
#include "simt/launch.h"

namespace rotcell::ptx {

// Returns when all blocks are done. Throws std::runtime_error, with kernel, line, block and warp,
// for errors that it notices. `name` is what errors call the kernel.
LaunchCounts run(const Kernel& kernel, const char* name, simt::Kind kind, const cuda::Grid& grid,
                 const void* parameters);

}  // namespace rotcell::ptx
