#include "ops/cuda/launch.h"

#include "cuda/grid.h"
#include "ops/cuda/current_device.h"
#include "ops/cuda/path.h"

namespace rotcell::ops::gpu {
namespace {

cuda::Number number_of(DType dtype) {
  if (dtype == float32()) return cuda::Number::kFloat32;
  if (dtype == float64()) return cuda::Number::kFloat64;
  if (dtype == float16()) return cuda::Number::kFloat16;
  return cuda::Number::kBFloat16;  // check_arguments has refused all others
}

void give_counters(Launch& launch, Device device) {
  if (launch.plan.path == cuda::Path::kCooperative) {
    launch.counters = Tensor::zeros({cuda::signal_count(launch.steps.batch)}, int64(), device);
  }
}

}  // namespace

Launch make_launch(CellIndex cell, cuda::Pass pass, const LayerArguments& arguments, Memory memory,
                   const LayerSizes& sizes, const Sequence& sequence) {
  const Device device = arguments.x.device();
  const Steps& steps = sequence.steps();
  const bool different_lengths =
      steps.lengths == Lengths::kTabled && steps.rows(steps.count - 1) != steps.batch;
  const cuda::Stream stream = current_stream(device);
  const cuda::Request request{.cell = cell,
                              .pass = pass,
                              .hidden = sizes.hidden,
                              .batch = sizes.batch,
                              .steps = steps.count,
                              .number = number_of(arguments.x.dtype()),
                              .projection = arguments.w_hr.defined()};
  // A CUDA graph would repeat the copy from host memory that is no longer there, and nothing may
  // wait for the device while it is captured.
  const bool capturing = is_capturing(stream);
  const OnlyStepwise only_stepwise = arguments.changes.what().any()   ? OnlyStepwise::kStateChanges
                                     : memory == Memory::kOfEachStep  ? OnlyStepwise::kMemory
                                     : different_lengths && capturing ? OnlyStepwise::kNoTables
                                                                      : OnlyStepwise::kNo;
  const Checking checking = capturing ? Checking::kForbidden : Checking::kAllowed;
  Launch launch{.request = request,
                .plan = plan_for(device.index, request, cuda::device_properties(device.index),
                                 only_stepwise, checking),
                .stream = stream,
                .steps = {.count = steps.count,
                          .batch = steps.batch,
                          .lengths = Lengths::kEqual,
                          .batch_sizes = nullptr,
                          .offsets = nullptr,
                          .reverse = steps.reverse},
                .table = {},
                .counters = {},
                .graph_steps = 0};
  if (!different_lengths && !capturing) launch.graph_steps = launch.plan.graph_steps;
  if (different_lengths && !launch.stepwise()) {
    launch.table = table_of(steps, device);
    launch.steps.lengths = Lengths::kTabled;
    launch.steps.batch_sizes = launch.table.const_data<int64_t>();
    launch.steps.offsets = launch.steps.batch_sizes + steps.count;
  }
  give_counters(launch, device);
  return launch;
}

void take_next_path(Launch& launch, Device device) {
  launch.plan = cuda::plan_instead_of(launch.plan.path, launch.request,
                                      cuda::device_properties(device.index));
  give_counters(launch, device);
}

template <class Parameters>
bool run_in_one_launch(const Launch& launch, const Parameters& parameters) {
  if (launch.plan.path == cuda::Path::kResident) {
    cuda::resident(launch.request, launch.plan, parameters, launch.stream);
    return true;
  }
  try {
    cuda::cooperative(launch.request, launch.plan, parameters, launch.stream);
    return true;
  } catch (const cuda::LaunchRefused&) {
    if (forced_path()) throw;
    return false;
  }
}

template bool run_in_one_launch(const Launch&, const cuda::Forward&);
template bool run_in_one_launch(const Launch&, const cuda::Backward&);

}  // namespace rotcell::ops::gpu
