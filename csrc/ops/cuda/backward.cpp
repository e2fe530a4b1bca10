#include "ops/cuda/current_device.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/ops.h"
#include "ops/cuda/stepwise.h"
#include "ops/cuda/tensors.h"

namespace rotcell::ops::gpu {
namespace {

// grad_h [B, H], A: of h_n, becomes that of h0. False if the device refuses it.
bool backward_in_one_launch(const Launch& launch, const BackwardTensors& t, const Tensor& grad_h) {
  return run_in_one_launch(
      launch, cuda::Backward{.steps = launch.steps,
                             .hidden = launch.hidden(),
                             .functions = t.functions,
                             .output_gradient = t.grad_out ? cuda::OutputGradient::kGiven
                                                           : cuda::OutputGradient::kZero,
                             .w_hh = row(t.w_hh),
                             .h0 = row(t.h0),
                             .c0 = row(t.c0),
                             .gates = row(t.gates),
                             .cells = row(t.cells),
                             .out = row(t.out),
                             .grad_out = row(t.grad_out),
                             .grad_h = row(grad_h),
                             .grad_c = row(t.grad_c),
                             .grad_gates = row(t.grad_gates),
                             .operands = row(t.operands),
                             .signals = launch.signals()});
}

// All gates saw the old output, or what was left of it, but those of later products, which saw the
// operands.
Tensor recurrent_weight_gradient(const CellDescription& cell, const BackwardTensors& t,
                                 const Sequence& sequence, int64_t hidden) {
  const Tensor seen = t.seen ? t.seen.borrow() : outputs_before(t.out, t.h0, sequence);
  Tensor gradient = product(t.grad_gates.transposed(), seen);
  for (int later = 1; later < cell.stages; ++later) {
    const int64_t first = cell.first_row_of_product(later, hidden);
    const int64_t rows = cell.rows_of_product(later, hidden);
    mm_out(gradient.narrow(0, first, rows), t.grad_gates.narrow(1, first, rows).transposed(),
           t.operands);
  }
  return gradient;
}

void check_device(const char* name, const Tensor& tensor, Device device) {
  // A kernel would read what is not there.
  if (tensor && tensor.device() != device) {
    fail("expected ", name, " on ", device_name(device), ", as x, got ",
         device_name(tensor.device()));
  }
}

}  // namespace

BackwardResult backward(CellIndex index, const BackwardArguments& a) {
  const CellDescription& cell = kCells[index];
  const LayerSizes sizes = check_arguments(cell, a, Saved::kAsStored);
  const Device device = a.x.device();
  check_device("gates", a.gates, device);
  check_device("cells", a.cells, device);
  const DeviceScope scope(device);
  const DType type = a.x.dtype(), wide = compute_type(type);
  const Sequence sequence(a.batch_sizes, sizes.tokens, sizes.batch, a.reverse);

  BackwardTensors t;
  t.functions = check_functions(a);
  t.changes = contiguous(a.changes, type);
  t.w_hh = a.w_hh.as_contiguous();
  t.w_hr = a.w_hr.as_contiguous(type);
  t.h0 = a.h0.as_contiguous();
  t.out = a.out.as_contiguous();
  t.gates = a.gates.as_contiguous();
  t.grad_out = a.grad_out.as_contiguous(type);
  if (cell.has_memory) {
    t.c0 = a.c0.as_contiguous(wide);
    t.cells = a.cells.as_contiguous();
    t.grad_c = running_gradient(a.grad_c_n, a.c0, wide);
    t.grad_cells = a.grad_cells.as_contiguous(wide);
  }
  t.grad_gates = empty({sizes.tokens, sizes.gate_rows}, type, device);
  if (cell.stages > 1) t.operands = empty({sizes.tokens, sizes.hidden}, type, device);
  if (t.changes.what().before_products()) {
    t.seen = empty({sizes.tokens, sizes.outputs}, type, device);
  }
  if (t.w_hr) {
    t.grad_projected = empty({sizes.tokens, sizes.outputs}, type, device);
    if (a.needs_grad_weights) t.unprojected = empty({sizes.tokens, sizes.hidden}, type, device);
  }
  Tensor grad_h;
  if (sizes.tokens > 0) {
    const Memory memory = t.grad_cells ? Memory::kOfEachStep : Memory::kAsEver;
    Launch launch = make_launch(index, cuda::Pass::kBackward, a, memory, sizes, sequence);
    if (!launch.stepwise()) grad_h = running_gradient(a.grad_h_n, a.h0, wide);
    while (!launch.stepwise() && !backward_in_one_launch(launch, t, grad_h)) {
      take_next_path(launch, device);
    }
    if (launch.stepwise()) {
      grad_h = backward_stepwise(launch, sequence, t, running_gradient(a.grad_h_n, a.h0, type));
    }
  } else {
    grad_h = running_gradient(a.grad_h_n, a.h0, type);
  }

  const auto none = [&] { return Tensor::empty({0}, type, device); };
  const auto weight_gradient = [&](auto compute, Sizes shape) {
    if (!a.needs_grad_weights) return none();
    return sizes.tokens > 0 ? compute() : Tensor::zeros(shape, type, device);
  };
  const Tensor by_gate = t.grad_gates.transposed();
  BackwardResult result;
  result.x = !a.needs_grad_x    ? none()
             : sizes.tokens > 0 ? product(t.grad_gates, a.w_ih)
                                : Tensor::empty({0, sizes.inputs}, type, device);
  result.h0 = owned_as(std::move(grad_h), type);
  result.c0 = owned_as(std::move(t.grad_c), type);
  result.w_ih =
      weight_gradient([&] { return product(by_gate, a.x); }, {sizes.gate_rows, sizes.inputs});
  result.w_hh =
      weight_gradient([&] { return recurrent_weight_gradient(cell, t, sequence, sizes.hidden); },
                      {sizes.gate_rows, sizes.outputs});
  result.bias = weight_gradient([&] { return sum_of_rows(t.grad_gates); }, {sizes.gate_rows});
  if (cell.can_project) {
    result.w_hr =
        !t.w_hr
            ? none()
            : weight_gradient([&] { return product(t.grad_projected.transposed(), t.unprojected); },
                              {sizes.outputs, sizes.hidden});
  }
  return result;
}

}  // namespace rotcell::ops::gpu
