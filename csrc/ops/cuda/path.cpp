#include "ops/cuda/path.h"

#include <atomic>
#include <string>

#include "ops/tensor.h"

namespace rotcell::ops::gpu {
namespace {

using cuda::Path;

constexpr int kNotForced = -1;
std::atomic<int> forced{kNotForced};

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
  return "what a block must have on chip does not fit into the device's " +
         std::to_string(device.shared_bytes_per_block) + " bytes of shared memory and registers";
}

}  // namespace

void force_path(std::optional<Path> path) {
  forced.store(path ? static_cast<int>(*path) : kNotForced);
}

std::optional<Path> forced_path() {
  const int path = forced.load();
  return path == kNotForced ? std::nullopt : std::optional(static_cast<Path>(path));
}

cuda::Plan plan_for(const cuda::Request& request, const cuda::DeviceProperties& device,
                    OnlyStepwise only_stepwise) {
  const std::optional<Path> path = forced_path();
  if (!path) {
    return only_stepwise == OnlyStepwise::kNo ? cuda::choose_plan(request, device)
                                              : *cuda::plan_path(Path::kStepwise, request, device);
  }
  const std::optional<cuda::Plan> plan = cuda::plan_path(*path, request, device);
  if (!plan || (only_stepwise != OnlyStepwise::kNo && path != Path::kStepwise)) {
    fail("the forced path ", cuda::path_name(*path), " cannot run a ", kCells[request.cell].name,
         " of hidden size ", request.hidden, ": ", why_not(*path, request, device, only_stepwise));
  }
  return *plan;
}

}  // namespace rotcell::ops::gpu
