#include "ops/cuda/path.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "ops/tensor.h"

namespace rotcell::ops::gpu {
namespace {

using cuda::Path;

constexpr int kNotForced = -1;
std::atomic<int> forced{kNotForced};
thread_local int forced_of_thread = kNotForced;

std::atomic<Check> registered_check{nullptr};

constexpr int kPaths = 4, kNumbers = 4, kPasses = 2;
constexpr uint32_t kAllPaths = (1 << kPaths) - 1;
std::atomic<uint32_t> allowed_paths{kAllPaths};

// What is known of the paths of a device, cell, pass and number type, a bit each: read at every
// call, so without a lock. The lowest bits are paths that are switched off; above them are those
// found right, by path and kind of kernel; above these, the same of the stepwise path's options.
constexpr int kMostDevices = 128;  // torch has fewer
std::atomic<uint32_t> known[kMostDevices][Cells::kCount][kPasses][kNumbers];

uint32_t bit_of(Path path) { return uint32_t{1} << static_cast<int>(path); }

constexpr int kOptions = 3, kFirstOfOptions = kPaths + 2 * kPaths;

uint32_t bit_switched_off(const PathUse& use) {
  if (use.option == Option::kNone) return bit_of(use.path);
  return uint32_t{1} << (kFirstOfOptions + static_cast<int>(use.option));
}

std::atomic<uint32_t>& known_of(const PathUse& use) {
  const int device = std::clamp(use.device, 0, kMostDevices - 1);  // the executor's has no number
  return known[device][use.cell][static_cast<int>(use.pass)][static_cast<int>(use.number)];
}

// A path may have several kernels for the same cell and number type; each is checked when it first
// runs.
uint32_t bit_found_right(const cuda::Plan& plan, Option option) {
  if (option != Option::kNone) {
    return uint32_t{1} << (kFirstOfOptions + kOptions + static_cast<int>(option));
  }
  const int kernel = plan.tensor_cores || plan.rows_per_block > 1 ? 1 : 0;
  return uint32_t{1} << (kPaths + 2 * static_cast<int>(plan.path) + kernel);
}

bool usable(const PathUse& use) {
  return (allowed_paths.load() & bit_of(use.path)) != 0 && !is_switched_off(use);
}

// Checks a path that has not been, if it may be. Afterwards it may be switched off.
void check_before_use(const PathUse& use, const cuda::Request& request, const cuda::Plan& plan) {
  const Check check = registered_check.load();
  const uint32_t right = bit_found_right(plan, use.option);
  if (check == nullptr || (known_of(use).load() & right) != 0) return;
  check(use, request);
  known_of(use).fetch_or(right);
}

std::optional<Path> as_path(int path) {
  return path == kNotForced ? std::nullopt : std::optional(static_cast<Path>(path));
}

std::string why_not(Path path, const cuda::Request& request, const cuda::DeviceProperties& device,
                    OnlyStepwise only_stepwise) {
  const CellDescription& cell = kCells[request.cell];
  if (request.projection) return "it does not do projections";
  if (path == Path::kResident ? !cell.resident : !cell.cooperative) {
    return "this cell does not have it";
  }
  switch (only_stepwise) {
    case OnlyStepwise::kNoTables:
      return "sequences of different lengths cannot be captured in a CUDA graph";
    case OnlyStepwise::kStateChanges:
      return "it does not do resets, recurrent dropout or zoneout";
    case OnlyStepwise::kMemory:
      return "it does not return the cells without gradients, nor take their gradient";
    case OnlyStepwise::kNo:
      break;
  }
  if (path == Path::kCooperative && !device.cooperative_launch) {
    return "the device has no cooperative launch";
  }
  if (path == Path::kCluster) {
    if (device.largest_cluster < 2) return "the device, or this build for it, has no clusters";
    return "it is for half types, and for no more units and rows than fit clusters of up to " +
           std::to_string(device.largest_cluster) + " blocks that run at once";
  }
  return "what a block must have on chip does not fit into the device's " +
         std::to_string(device.shared_bytes_per_block) + " bytes of shared memory and registers";
}

}  // namespace

void force_path(std::optional<Path> path) {
  forced.store(path ? static_cast<int>(*path) : kNotForced);
}

std::optional<Path> forced_path() { return as_path(forced.load()); }

void force_path_of_thread(std::optional<Path> path) {
  forced_of_thread = path ? static_cast<int>(*path) : kNotForced;
}

void switch_off(const PathUse& use) { known_of(use).fetch_or(bit_switched_off(use)); }

bool is_switched_off(const PathUse& use) {
  return (known_of(use).load() & bit_switched_off(use)) != 0;
}

void forget_checks() {
  for (auto& device : known)
    for (auto& cell : device)
      for (auto& pass : cell)
        for (auto& number : pass) number.store(0);
}

void allow_path(Path path, bool allowed) {
  if (allowed) {
    allowed_paths.fetch_or(bit_of(path));
  } else {
    allowed_paths.fetch_and(~bit_of(path));
  }
}

void set_check(Check check) { registered_check.store(check); }

cuda::Plan plan_for(int device_index, const cuda::Request& request,
                    const cuda::DeviceProperties& device, OnlyStepwise only_stepwise,
                    Checking checking) {
  const std::optional<Path> of_thread = as_path(forced_of_thread);
  if (const std::optional<Path> path = of_thread ? of_thread : forced_path()) {
    const std::optional<cuda::Plan> plan = cuda::plan_path(*path, request, device);
    if (!plan || (only_stepwise != OnlyStepwise::kNo && path != Path::kStepwise)) {
      fail("the forced path ", cuda::path_name(*path), " cannot run a ", kCells[request.cell].name,
           " of hidden size ", request.hidden, ": ",
           why_not(*path, request, device, only_stepwise));
    }
    return *plan;
  }
  const auto checked = [&](const cuda::Plan& plan, Option option = Option::kNone) {
    const PathUse use{device_index, request.cell, request.pass, request.number, plan.path, option};
    if (usable(use) && checking == Checking::kAllowed) check_before_use(use, request, plan);
    return usable(use);
  };
  cuda::Plan plan = only_stepwise == OnlyStepwise::kNo
                        ? cuda::choose_plan(request, device)
                        : *cuda::plan_path(Path::kStepwise, request, device);
  for (; plan.path != Path::kStepwise; plan = cuda::plan_instead_of(plan.path, request, device)) {
    if (checked(plan)) return plan;
  }
  const bool changes = only_stepwise == OnlyStepwise::kStateChanges;
  if (checked(plan) && (!request.projection || checked(plan, Option::kProjection)) &&
      (!changes || checked(plan, Option::kStateChanges))) {
    return plan;
  }
  fail("the self-check has switched off every path for ", kCells[request.cell].name,
       " here; rotcell.use_reference() still computes it");
}

}  // namespace rotcell::ops::gpu
