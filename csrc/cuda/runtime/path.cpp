#include "cuda/runtime/path.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

namespace rotcell::cuda {
namespace {

constexpr int kNotForced = -1;
std::atomic<int> forced{kNotForced};
thread_local int forced_of_thread = kNotForced;

constexpr int kPaths = 4, kNumbers = 4;
constexpr uint32_t kAllPaths = (1 << kPaths) - 1;
std::atomic<uint32_t> allowed_paths{kAllPaths};

// A bit for each Switch that is off. Read at every call, so without a lock.
constexpr int kMostDevices = 128;  // torch has fewer
std::atomic<uint32_t> switched_off[kMostDevices][Cells::kCount][kNumbers];

uint32_t bit_of(Switch what) { return uint32_t{1} << static_cast<int>(what); }
uint32_t bit_of(Path path) { return uint32_t{1} << static_cast<int>(path); }

std::atomic<uint32_t>& switches_of(int device, CellIndex cell, Number number) {
  device = std::clamp(device, 0, kMostDevices - 1);  // in emulation it has no number
  return switched_off[device][cell][static_cast<int>(number)];
}

bool usable(Path path, int device, const Request& request) {
  const uint32_t off = switches_of(device, request.cell, request.number).load();
  return (allowed_paths.load() & ~off & bit_of(path)) != 0;
}

// This plan, or the first usable one after it.
Plan first_usable(Plan plan, int device_index, const Request& request,
                  const DeviceProperties& device) {
  while (!usable(plan.path, device_index, request)) {
    if (plan.path == Path::kStepwise) {
      throw std::runtime_error(std::string("rotcell: every path for ") + kCells[request.cell].name +
                               " is switched off here; rotcell.use_reference() still computes it");
    }
    plan = plan_instead_of(plan.path, request, device);
  }
  return plan;
}

std::optional<Path> as_path(int path) {
  return path == kNotForced ? std::nullopt : std::optional(static_cast<Path>(path));
}

std::string why_not(Path path, const Request& request, const DeviceProperties& device,
                    OnlyStepwise only_stepwise) {
  const CellDescription& cell = kCells[request.cell];
  if (request.projection) return "it does not support projections";
  if (path == Path::kResident ? !cell.resident : !cell.cooperative) {
    return "this cell has no kernels for it";
  }
  switch (only_stepwise) {
    case OnlyStepwise::kNoTables:
      return "sequences of different lengths cannot be captured in a CUDA graph";
    case OnlyStepwise::kStateHooks:
      return "it does not support resets, recurrent dropout or zoneout";
    case OnlyStepwise::kCellStates:
      return "it does not return the cell states of every step, nor take their gradient";
    case OnlyStepwise::kNo:
      break;
  }
  if (path == Path::kCooperative && !device.cooperative_launch) {
    return "the device has no cooperative launch";
  }
  if (path == Path::kCluster) {
    if (device.largest_cluster < 2) return "the device, or this build for it, has no clusters";
    return "it is for fp16 and bf16, and for no more units and rows than fit clusters of up to " +
           std::to_string(device.largest_cluster) + " blocks that run at once";
  }
  return "a block's weights and buffers do not fit into the device's " +
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

void switch_off(int device, CellIndex cell, Number number, Switch what) {
  switches_of(device, cell, number).fetch_or(bit_of(what));
}

void switch_on_all() {
  for (auto& device : switched_off)
    for (auto& cell : device)
      for (auto& number : cell) number.store(0);
}

bool can_run(int device, CellIndex cell, Number number, bool projection, bool state_hooks) {
  if (!kCells[cell].stepwise || (allowed_paths.load() & bit_of(Path::kStepwise)) == 0) return false;
  uint32_t needed = bit_of(Switch::kStepwise);
  if (projection) needed |= bit_of(Switch::kProjection);
  if (state_hooks) needed |= bit_of(Switch::kStateHooks);
  return (switches_of(device, cell, number).load() & needed) == 0;
}

void allow_path(Path path, bool allowed) {
  if (allowed) {
    allowed_paths.fetch_or(bit_of(path));
  } else {
    allowed_paths.fetch_and(~bit_of(path));
  }
}

Plan plan_for(int device_index, const Request& request, const DeviceProperties& device,
              OnlyStepwise only_stepwise) {
  if (!kCells[request.cell].stepwise) {
    throw std::runtime_error(std::string("rotcell: no path of a GPU runs the cell ") +
                             kCells[request.cell].name + "; rotcell.use_reference() computes it");
  }
  const std::optional<Path> of_thread = as_path(forced_of_thread);
  if (const std::optional<Path> path = of_thread ? of_thread : forced_path()) {
    const std::optional<Plan> plan = plan_path(*path, request, device);
    if (!plan || (only_stepwise != OnlyStepwise::kNo && path != Path::kStepwise)) {
      throw std::runtime_error("rotcell: the forced path " + path_name(*path) + " cannot run a " +
                               kCells[request.cell].name + " of hidden size " +
                               std::to_string(request.hidden) + ": " +
                               why_not(*path, request, device, only_stepwise));
    }
    return *plan;
  }
  const Plan plan = only_stepwise == OnlyStepwise::kNo
                        ? choose_plan(request, device)
                        : *plan_path(Path::kStepwise, request, device);
  return first_usable(plan, device_index, request, device);
}

Plan plan_after(Path refused, int device_index, const Request& request,
                const DeviceProperties& device) {
  return first_usable(plan_instead_of(refused, request, device), device_index, request, device);
}

}  // namespace rotcell::cuda
