#include "cuda/runtime/launch.h"

#include <vector>

#include "cuda/platform/device.h"
#include "cuda/platform/grid.h"
#include "cuda/runtime/path.h"

namespace rotcell::cuda {
namespace {

bool has_different_lengths(const Steps& steps) {
  return steps.lengths == Lengths::kTabled && steps.rows(steps.count - 1) != steps.batch;
}

OnlyStepwise why_only_stepwise(const Layer& layer, CellStates cell_states, Stream stream) {
  if (layer.hooks.what().any()) return OnlyStepwise::kStateHooks;
  if (cell_states == CellStates::kEveryStep) return OnlyStepwise::kCellStates;
  // A CUDA graph would repeat the copy from host memory that is no longer there.
  const bool no_table = has_different_lengths(layer.sequence.steps()) && is_capturing(stream);
  return no_table ? OnlyStepwise::kNoTables : OnlyStepwise::kNo;
}

// batch_sizes, then offsets.
DeviceIntegers table_of(const Steps& steps, int device) {
  std::vector<int64_t> values(steps.batch_sizes, steps.batch_sizes + steps.count);
  values.insert(values.end(), steps.offsets, steps.offsets + steps.count);
  return DeviceIntegers::copied(device, values);
}

void give_counters(Launch& launch, int device) {
  if (launch.plan.path == Path::kCooperative) {
    launch.counters = DeviceIntegers::zeros(device, signal_count(launch.steps.batch));
  }
}

}  // namespace

Launch make_launch(const Layer& layer, Pass pass, CellStates cell_states) {
  const int device = layer.device;
  const Steps& steps = layer.sequence.steps();
  const Stream stream = matrix_library().current_stream(device);
  const Request request{.cell = layer.index,
                        .pass = pass,
                        .hidden = layer.sizes.hidden,
                        .batch = layer.sizes.batch,
                        .steps = steps.count,
                        .number = layer.number,
                        .projection = bool(layer.w_hr)};
  Launch launch{.request = request,
                .plan = plan_for(device, request, device_properties(device),
                                 why_only_stepwise(layer, cell_states, stream)),
                .stream = stream,
                .steps = {.count = steps.count,
                          .batch = steps.batch,
                          .lengths = Lengths::kEqual,
                          .batch_sizes = nullptr,
                          .offsets = nullptr,
                          .reverse = steps.reverse},
                .table = {},
                .counters = {}};
  if (has_different_lengths(steps) && !launch.stepwise()) {
    launch.table = table_of(steps, device);
    launch.steps.lengths = Lengths::kTabled;
    launch.steps.batch_sizes = launch.table.data;
    launch.steps.offsets = launch.steps.batch_sizes + steps.count;
  }
  give_counters(launch, device);
  return launch;
}

void take_next_path(Launch& launch, int device) {
  launch.plan = plan_after(launch.plan.path, device, launch.request, device_properties(device));
  give_counters(launch, device);
}

template <class Parameters>
bool run_in_one_launch(const Launch& launch, const Parameters& parameters) {
  if (launch.plan.path == Path::kResident) {
    resident(launch.request, launch.plan, parameters, launch.stream);
    return true;
  }
  try {
    cooperative(launch.request, launch.plan, parameters, launch.stream);
    return true;
  } catch (const LaunchRefused&) {
    if (forced_path()) throw;
    return false;
  }
}

template bool run_in_one_launch(const Launch&, const Forward&);
template bool run_in_one_launch(const Launch&, const Backward&);

}  // namespace rotcell::cuda
