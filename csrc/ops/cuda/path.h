// Which path a call takes: the plan's choice, unless one is forced.
#pragma once

#include <optional>

#include "cuda/plan.h"

namespace rotcell::ops::gpu {

// For tests: every call of this process takes this path, or raises an error that says why it
// cannot. Nothing: the fastest one again.
void force_path(std::optional<cuda::Path> path);

std::optional<cuda::Path> forced_path();

// Whether a table of the steps may be copied to the device. Only the stepwise path can do without
// where rows have different lengths.
enum class StepTables { kAllowed, kForbidden };

cuda::Plan plan_for(const cuda::Request& request, const cuda::DeviceProperties& device,
                    StepTables tables);

}  // namespace rotcell::ops::gpu
