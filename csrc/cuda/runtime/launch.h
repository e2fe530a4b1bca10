// One layer call on a GPU: its path, and what a launch over the whole sequence needs.
#pragma once

#include "cuda/kernels/kernels.h"
#include "cuda/runtime/layer.h"

namespace rotcell::cuda {

struct Launch {
  Request request;
  Plan plan;
  Stream stream;
  Steps steps;              // for the paths that run in one launch: tables are on the device
  DeviceIntegers table;     // what `steps` points at
  DeviceIntegers counters;  // zeros, for the cooperative path

  int hidden() const { return static_cast<int>(request.hidden); }
  bool stepwise() const { return plan.path == Path::kStepwise; }
  uint64_t* signals() const { return reinterpret_cast<uint64_t*>(counters.data); }
};

// Which cell states a call wants.
enum class CellStates {
  kLast,       // those of the last steps; those of all steps may be saved
  kEveryStep,  // for its own sake, or its gradient
};

// The path is chosen here.
Launch make_launch(const Layer& layer, Pass pass, CellStates cell_states);

// After the device has refused the launch: changes to the next best path.
void take_next_path(Launch& launch, int device);

// Runs the kernel of a path that has one launch for the whole sequence. False if the device refuses
// it, and another path must do; if the path is forced, that is an error.
template <class Parameters>
bool run_in_one_launch(const Launch& launch, const Parameters& parameters);

}  // namespace rotcell::cuda
