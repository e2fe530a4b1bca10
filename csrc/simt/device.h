// The GPU that the executor plays.
#pragma once

#include <cstddef>

#include "cuda/device.h"

namespace rotcell::simt {

inline constexpr unsigned most_threads_per_block = 1024;

cuda::DeviceProperties posed_device();

// How many blocks of that size a multiprocessor of the posed device holds at once.
int blocks_per_multiprocessor(unsigned threads, size_t shared_bytes);

}  // namespace rotcell::simt
