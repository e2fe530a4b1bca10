// Which path a call takes: the plan's choice, unless one is forced.
#pragma once

#include <optional>

#include "cuda/plan.h"

namespace rotcell::ops::gpu {

// For tests: every call of this process takes this path, or raises an error that says why it
// cannot. Nothing: the fastest one again.
void force_path(std::optional<cuda::Path> path);

std::optional<cuda::Path> forced_path();

// Why only the stepwise path may run, besides what the plan knows.
enum class OnlyStepwise {
  kNo,
  kNoTables,  // rows have different lengths, and no table of the steps may be copied to the device
  kStateChanges,
  kMemory,  // of every step for its own sake, or its gradient
};

cuda::Plan plan_for(const cuda::Request& request, const cuda::DeviceProperties& device,
                    OnlyStepwise only_stepwise);

}  // namespace rotcell::ops::gpu
