// One call of an op on a GPU: where it runs, and on which path.
#pragma once

#include "cuda/kernels.h"
#include "ops/arguments.h"
#include "ops/sequence.h"

namespace rotcell::ops::gpu {

struct Launch {
  cuda::Request request;
  cuda::Plan plan;
  cuda::Stream stream;
  Steps steps;      // for the paths that run in one launch: tables are on the device
  Tensor table;     // what `steps` points at
  Tensor counters;  // zeros, for the cooperative path
  int graph_steps;  // on the stepwise path: of the graphs that may do its work; 0: none may

  const CellDescription& cell() const { return kCells[request.cell]; }
  int hidden() const { return static_cast<int>(request.hidden); }
  bool stepwise() const { return plan.path == cuda::Path::kStepwise; }
  uint64_t* signals() const {
    return counters ? static_cast<uint64_t*>(counters.raw_data()) : nullptr;
  }
};

// What a call wants of the memory.
enum class Memory {
  kAsEver,      // that of the last steps; that of every step as something saved
  kOfEachStep,  // for its own sake, or its gradient
};

// The path is chosen here.
Launch make_launch(CellIndex cell, cuda::Pass pass, const LayerArguments& arguments, Memory memory,
                   const LayerSizes& sizes, const Sequence& sequence);

// The device has refused the launch: goes over to the next best path.
void take_next_path(Launch& launch, Device device);

// Runs the kernel of a path that has one launch for the whole sequence. False if the device refuses
// it, and another path must do; if the path is forced, that is an error.
template <class Parameters>
bool run_in_one_launch(const Launch& launch, const Parameters& parameters);

}  // namespace rotcell::ops::gpu
