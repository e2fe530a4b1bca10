#include "ops/cuda/path.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <string>

namespace rotcell::ops::gpu {
namespace {

using cuda::Path;

constexpr int kNotForced = -1;
std::atomic<int> forced_path{kNotForced};

std::string why_not(Path path, const cuda::Request& request, const cuda::DeviceProperties& device,
                    bool tables_allowed) {
  if (request.projection) return "it does not do projections";
  if (!tables_allowed) return "sequences of different lengths cannot be captured in a CUDA graph";
  if (path == Path::kCooperative && !device.cooperative_launch)
    return "the device has no cooperative launch";
  return "what a block must have on chip does not fit into the device's " +
         std::to_string(device.shared_bytes_per_block) + " bytes of shared memory and registers";
}

}  // namespace

void force_path(std::optional<Path> path) {
  forced_path.store(path ? static_cast<int>(*path) : kNotForced);
}

cuda::Plan plan_for(const cuda::Request& request, const cuda::DeviceProperties& device,
                    bool tables_allowed) {
  const int forced = forced_path.load();
  if (forced == kNotForced) {
    return tables_allowed ? cuda::choose_plan(request, device)
                          : *cuda::plan_path(Path::kStepwise, request, device);
  }
  const auto path = static_cast<Path>(forced);
  const std::optional<cuda::Plan> plan = cuda::plan_path(path, request, device);
  TORCH_CHECK(plan && (tables_allowed || path == Path::kStepwise), "rotcell: the forced path ",
              cuda::path_name(path), " cannot run a ",
              request.cell == cuda::Cell::kRotLstm ? "RotLSTM" : "RotGRU", " of hidden size ",
              request.hidden, ": ", why_not(path, request, device, tables_allowed));
  return *plan;
}

}  // namespace rotcell::ops::gpu
