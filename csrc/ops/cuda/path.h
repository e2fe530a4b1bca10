// Which path a call takes: the plan's choice, unless one is forced or the choice is switched off.
//
// A path that is used for the first time is checked before, by whoever has registered a check: what
// it computes is compared with the reference, and a path that fails is switched off.
#pragma once

#include <optional>

#include "cuda/plan.h"

namespace rotcell::ops::gpu {

// What only the stepwise path does, and is checked by itself, when a call first asks for it.
enum class Option {
  kNone,  // what all paths do
  kProjection,
  kStateChanges,
};

// What is checked and switched off: a path for one cell, pass and number type on one device, or an
// option of it.
struct PathUse {
  int device;
  CellIndex cell;
  cuda::Pass pass;
  cuda::Number number;
  cuda::Path path;
  Option option = Option::kNone;
};

// For tests: every call of this process takes this path, or raises an error that says why it
// cannot. It is not checked. Nothing: the fastest one again.
void force_path(std::optional<cuda::Path> path);

std::optional<cuda::Path> forced_path();

// The same for the calling thread alone, which is how a check runs what it checks. A launch that
// the device refuses still goes stepwise.
void force_path_of_thread(std::optional<cuda::Path> path);

void switch_off(const PathUse& use);
bool is_switched_off(const PathUse& use);

// For tests: all paths are on again, and none is known to be right.
void forget_checks();

// Whether resident and cooperative may be taken at all.
void allow_path(cuda::Path path, bool allowed);

// Compares a path with the reference, for this size, and switches it off if it is wrong. Where the
// device does not answer any more it throws.
using Check = void (*)(const PathUse& use, const cuda::Request& request);

// Null: nothing is checked.
void set_check(Check check);

// Why only the stepwise path may run, besides what the plan knows.
enum class OnlyStepwise {
  kNo,
  kNoTables,  // rows have different lengths, and no table of the steps may be copied to the device
  kStateChanges,
  kMemory,  // of every step for its own sake, or its gradient
};

// Whether the host may wait for the device, as a check does: not in a CUDA graph.
enum class Checking { kAllowed, kForbidden };

cuda::Plan plan_for(int device_index, const cuda::Request& request,
                    const cuda::DeviceProperties& device, OnlyStepwise only_stepwise,
                    Checking checking);

}  // namespace rotcell::ops::gpu
