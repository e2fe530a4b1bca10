// Runs a kernel, every CUDA thread of it on a fiber.
#pragma once

#include "cuda/platform/grid.h"

namespace rotcell::emulator {

enum class Kind { ordinary, cooperative, clusters };

// A kernel together with its parameter struct.
struct Call {
  void (*run)(const void* context);
  const void* context;
  const void* kernel;  // the function; for who runs other code in its place
  const void* params;
};

// Returns when all blocks are done. Throws std::runtime_error for what a GPU would refuse and for
// errors of the kernel that the emulator notices.
void launch(const char* name, Kind kind, const cuda::Grid& grid, const Call& call);

// Runs the kernels from now on, in place of the fibers.
using Runner = void (*)(const char* name, Kind kind, const cuda::Grid& grid, const Call& call);
void run_launches_by(Runner runner);

}  // namespace rotcell::emulator
