// The GPU that the emulator plays.
#pragma once

#include <cstddef>

#include "cuda/platform/device.h"
#include "cuda/platform/grid.h"

namespace rotcell::emulator {

inline constexpr unsigned most_threads_per_block = 1024;

cuda::DeviceProperties posed_device();
bool capture_is_pretended();

// How many blocks of that size a multiprocessor of the posed device holds at once.
int blocks_per_multiprocessor(unsigned threads, size_t shared_bytes);

// How many clusters of such blocks it holds at once; 0 if not even one.
int64_t clusters_at_once(const cuda::Grid& grid);

}  // namespace rotcell::emulator
