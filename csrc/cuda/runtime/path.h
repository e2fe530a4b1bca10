// Which path a call takes: the plan's choice, unless one is forced or the choice is switched off.
//
// Python compares the paths of a GPU with the reference before the first call, switches off what is
// wrong, and asks before each call whether a path is left (rotcell/cuda/paths.py). Nothing here
// calls Python.
#pragma once

#include <optional>

#include "cuda/runtime/plan.h"

namespace rotcell::cuda {

// What can be switched off for a cell and dtype on a device: a path, or what only the stepwise path
// does.
enum class Switch {
  kStepwise,  // the first four as Path has them
  kResident,
  kCooperative,
  kCluster,
  kProjection,
  kStateHooks,
};
constexpr int kSwitches = 6;

void switch_off(int device, CellIndex cell, Number number, Switch what);

// For tests: everything is on again.
void switch_on_all();

// Whether a path may be taken at all.
void allow_path(Path path, bool allowed);

// Whether there is a path for every call of such a kind: the stepwise path is on, and so is what
// the call needs of it.
bool can_run(int device, CellIndex cell, Number number, bool projection, bool state_hooks);

// For tests and checks: every call of this process takes this path, or raises an error that says
// why it cannot. Nothing: the plan's choice again.
void force_path(std::optional<Path> path);

// The same for the calling thread alone, which is how the check runs a path. If the device refuses
// the launch, the next path takes over.
void force_path_of_thread(std::optional<Path> path);

std::optional<Path> forced_path();

// Why only the stepwise path may run, in addition to what the plan knows.
enum class OnlyStepwise {
  kNo,
  kNoTables,  // rows have different lengths, and no table of the steps may be copied to the device
  kStateHooks,
  kCellStates,  // of every step for its own sake, or its gradient
};

Plan plan_for(int device_index, const Request& request, const DeviceProperties& device,
              OnlyStepwise only_stepwise);

// The next best plan that is on, if the device refuses the launch of this one.
Plan plan_after(Path refused, int device_index, const Request& request,
                const DeviceProperties& device);

}  // namespace rotcell::cuda
