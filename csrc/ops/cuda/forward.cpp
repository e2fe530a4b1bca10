#include "ops/cuda/current_device.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/ops.h"
#include "ops/cuda/stepwise.h"
#include "ops/cuda/tensors.h"

namespace rotcell::ops::gpu {
namespace {

// False if the device refuses it.
bool forward_in_one_launch(const Launch& launch, const ForwardTensors& t) {
  const CellDescription& cell = launch.cell();
  const int64_t batch = t.h.size(0), hidden = launch.request.hidden;
  Tensor operands, waiting;
  // What is known between the stages of a step.
  if (cell.stages > 1 && launch.plan.path != cuda::Path::kResident) {
    operands = empty({batch, hidden}, t.h.dtype(), t.h.device());
    waiting = empty({batch, t.w_hh.size(0)}, compute_type(t.h.dtype()), t.h.device());
  }
  return run_in_one_launch(launch, cuda::Forward{.steps = launch.steps,
                                                 .hidden = launch.hidden(),
                                                 .functions = t.functions,
                                                 .keep = t.keep,
                                                 .from_input = row(t.from_input),
                                                 .w_hh = row(t.w_hh),
                                                 .h0 = row(t.h0),
                                                 .c = row(t.c),
                                                 .out = row(t.out),
                                                 .h_n = row(t.h),
                                                 .gates = row(t.gates),
                                                 .cells = row(t.cells),
                                                 .waiting = row(waiting),
                                                 .operands = row(operands),
                                                 .signals = launch.signals()});
}

Tensor total_bias(const ForwardArguments& a) {
  if (a.b_ih && a.b_hh) return add(a.b_ih, a.b_hh);
  return (a.b_ih ? a.b_ih : a.b_hh).borrow();
}

}  // namespace

ForwardResult forward(CellIndex index, const ForwardArguments& a) {
  const CellDescription& cell = kCells[index];
  const LayerSizes sizes = check_arguments(cell, a);
  const Device device = a.x.device();
  const DeviceScope scope(device);
  const DType type = a.x.dtype(), wide = compute_type(type);
  const Sequence sequence(a.batch_sizes, sizes.tokens, sizes.batch, a.reverse);
  const auto none = [&] { return Tensor::empty({0}, type, device); };

  ForwardTensors t;
  t.functions = check_functions(a);
  t.keep = a.save           ? cuda::Keep::kForBackward
           : a.return_cells ? cuda::Keep::kMemory
                            : cuda::Keep::kNothing;
  t.changes = contiguous(a.changes, type);
  t.h = a.h0.copied();
  t.c = a.c0.copied(wide);
  t.out = empty({sizes.tokens, sizes.outputs}, type, device);
  if (sizes.tokens > 0) {
    t.h0 = a.h0.as_contiguous();
    t.w_hh = a.w_hh.as_contiguous();
    t.w_hr = a.w_hr.as_contiguous(type);
    t.from_input = linear(a.x, a.w_ih, total_bias(a));
  } else {
    t.from_input = empty({0, sizes.gate_rows}, type, device);
  }
  if (a.save) t.gates = t.from_input.share();
  const bool keeps_cells = cell.has_memory && t.keep != cuda::Keep::kNothing;
  if (keeps_cells) t.cells = empty({sizes.tokens, sizes.hidden}, type, device);
  if (sizes.tokens > 0) {
    const Memory memory = t.keep == cuda::Keep::kMemory ? Memory::kOfEachStep : Memory::kAsEver;
    Launch launch = make_launch(index, cuda::Pass::kForward, a, memory, sizes, sequence);
    while (!launch.stepwise() && !forward_in_one_launch(launch, t)) take_next_path(launch, device);
    if (launch.stepwise()) forward_stepwise(launch, sequence, t);
  }
  ForwardResult result;
  result.out = std::move(t.out);
  result.h_n = std::move(t.h);
  result.gates = a.save ? std::move(t.gates) : none();
  if (cell.has_memory) {
    result.c_n = owned_as(std::move(t.c), type);
    result.cells = keeps_cells ? std::move(t.cells) : none();
  }
  return result;
}

}  // namespace rotcell::ops::gpu
