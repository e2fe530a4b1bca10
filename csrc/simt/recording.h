// CUDA graphs for the executor. What goes into a stream that is captured does not run: it is
// written down with the parameters and addresses that it has, and runs when the graph is launched.
#pragma once

#include <functional>
#include <vector>

#include "cuda/stream.h"

namespace rotcell::simt {

using Recording = std::vector<std::function<void()>>;

// One stream at a time.
void begin_recording(cuda::Stream stream);
Recording end_recording(cuda::Stream stream);

bool is_recording(cuda::Stream stream);

// Now, or when the graph is launched.
void run_in_order(cuda::Stream stream, const std::function<void()>& work);

}  // namespace rotcell::simt
