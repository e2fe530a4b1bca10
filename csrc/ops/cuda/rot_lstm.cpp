// The RotLSTM ops for CUDA tensors: one direction of one layer over a whole sequence.
#include "ops/rot_lstm.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "ops/cuda/ops.h"
#include "ops/cuda/sequence.h"

namespace rotcell::ops::gpu {
namespace {

// Shapes as in cuda/kernels.h. The half types are computed in float32, type A; all other tensors
// are of x's type T. All are contiguous; those that are not there are undefined.
struct Forward {
  at::Tensor from_input, w_hh, w_hr;
  at::Tensor h;  // running state, at first h0
  at::Tensor c;  // A: running state, at first c0
  at::Tensor out;
  at::Tensor gates, cells;  // A: kept for backward
};

void forward_stepwise(const Launch& launch, const SequenceSteps& steps, const Forward& t) {
  const bool projected = t.w_hr.defined();
  const at::Tensor w_hh_t = t.w_hh.t(), w_hr_t = projected ? t.w_hr.t() : at::Tensor();
  const at::Tensor new_h = projected ? at::empty(t.c.sizes(), t.h.options()) : t.h;
  FirstRows h(t.h), unprojected(new_h);
  for (const Step& step : steps_in_order(steps)) {
    at::Tensor preactivations = t.from_input.narrow(0, step.token, step.rows);
    preactivations.addmm_(h(step.rows), w_hh_t);
    cuda::LstmStepForward p{};
    p.rows = step.rows;
    p.hidden = static_cast<int>(launch.request.hidden);
    p.preactivations_t = row(preactivations);
    p.c = row(t.c);
    p.h = row(new_h);
    p.out_t = projected ? nullptr : row(t.out, step.token);
    p.gates_t = row(t.gates, step.token);
    p.cells_t = row(t.cells, step.token);
    cuda::step(launch.number, p, launch.stream);
    if (projected) {
      at::mm_out(h(step.rows), unprojected(step.rows), w_hr_t);
      t.out.narrow(0, step.token, step.rows).copy_(h(step.rows));
    }
  }
}

void forward_in_one_launch(const Launch& launch, const at::Tensor& h0, const Forward& t) {
  cuda::LstmForward p{};
  p.steps = launch.steps;
  p.hidden = static_cast<int>(launch.request.hidden);
  p.from_input = row(t.from_input);
  p.w_hh = row(t.w_hh);
  p.h0 = row(h0);
  p.c = row(t.c);
  p.out = row(t.out);
  p.h_n = row(t.h);
  p.gates = row(t.gates);
  p.cells = row(t.cells);
  run_in_one_launch(launch, p);
}

struct Backward {
  at::Tensor w_hh, w_hr;
  at::Tensor c0, gates, cells;  // A
  at::Tensor grad_out;
  at::Tensor grad_h;          // of h_n, becomes that of h0; A in one launch, T stepwise
  at::Tensor grad_c;          // A: of c_n, becomes that of c0
  at::Tensor grad_gates;      // out
  at::Tensor grad_projected;  // out, [N, P]: the whole gradient of each output
  at::Tensor unprojected;     // out, [N, H]: what was projected
};

void backward_stepwise(const Launch& launch, const SequenceSteps& steps, const Backward& t) {
  const bool projected = t.w_hr.defined();
  const at::Tensor grad_new_h = projected ? at::empty(t.c0.sizes(), t.grad_h.options()) : t.grad_h;
  FirstRows grad_h(t.grad_h), grad_unprojected(grad_new_h);
  const std::vector<Step> order = steps_in_order(steps);
  for (auto step = order.rbegin(); step != order.rend(); ++step) {
    if (projected) {
      at::Tensor grad_projected = t.grad_projected.narrow(0, step->token, step->rows);
      if (t.grad_out.defined()) {
        at::add_out(grad_projected, grad_h(step->rows),
                    t.grad_out.narrow(0, step->token, step->rows));
      } else {
        grad_projected.copy_(grad_h(step->rows));
      }
      at::mm_out(grad_unprojected(step->rows), grad_projected, t.w_hr);
    }
    cuda::LstmStepBackward p{};
    p.rows = step->rows;
    p.hidden = static_cast<int>(launch.request.hidden);
    p.carried = step->carried;
    p.gates_t = row(t.gates, step->token);
    p.cells_t = row(t.cells, step->token);
    p.cells_before = row(t.cells, step->token_before);
    p.c0 = row(t.c0);
    p.grad_out_t = projected ? nullptr : row(t.grad_out, step->token);
    p.grad_h = row(grad_new_h);
    p.grad_c = row(t.grad_c);
    p.grad_gates_t = row(t.grad_gates, step->token);
    p.unprojected_t = row(t.unprojected, step->token);
    cuda::step(launch.number, p, launch.stream);
    at::mm_out(grad_h(step->rows), t.grad_gates.narrow(0, step->token, step->rows), t.w_hh);
  }
}

void backward_in_one_launch(const Launch& launch, const Backward& t) {
  cuda::LstmBackward p{};
  p.steps = launch.steps;
  p.hidden = static_cast<int>(launch.request.hidden);
  p.w_hh = row(t.w_hh);
  p.c0 = row(t.c0);
  p.gates = row(t.gates);
  p.cells = row(t.cells);
  p.grad_out = row(t.grad_out);
  p.grad_h = row(t.grad_h);
  p.grad_c = row(t.grad_c);
  p.grad_gates = row(t.grad_gates);
  run_in_one_launch(launch, p);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> rot_lstm(
    const at::Tensor& x, const at::Tensor& h0, const at::Tensor& c0, const at::Tensor& w_ih,
    const at::Tensor& w_hh, const OptionalTensor& b_ih, const OptionalTensor& b_hh,
    const OptionalTensor& w_hr, const OptionalTensor& batch_sizes, bool reverse, bool save) {
  const CudaOpScope scope(x);
  const at::ScalarType type = x.scalar_type(), wide = compute_type(type);
  const LstmSizes sizes = check_arguments(x, h0, c0, w_ih, w_hh, w_hr);
  check_tensor("b_ih", b_ih, {sizes.gate_rows}, x);
  check_tensor("b_hh", b_hh, {sizes.gate_rows}, x);
  const SequenceSteps steps(batch_sizes, sizes.tokens, sizes.batch, reverse);

  const auto options = x.options(), wide_options = options.dtype(wide);
  Forward t;
  t.from_input = input_product(x, w_ih, total_bias(prepared(b_ih, type), prepared(b_hh, type)));
  t.w_hh = w_hh.contiguous();
  t.w_hr = prepared(w_hr, type);
  t.h = running_state(h0, type);
  t.c = running_state(c0, wide);
  t.out = at::empty({sizes.tokens, sizes.outputs}, options);
  if (save) {
    t.gates =
        type == wide ? t.from_input : at::empty({sizes.tokens, sizes.gate_rows}, wide_options);
    t.cells = at::empty({sizes.tokens, sizes.hidden}, wide_options);
  }
  if (sizes.tokens > 0) {
    const Launch launch = make_launch(cuda::Cell::kRotLstm, cuda::Pass::kForward, x, steps,
                                      sizes.batch, sizes.hidden, t.w_hr.defined());
    launch.plan.path == cuda::Path::kStepwise ? forward_stepwise(launch, steps, t)
                                              : forward_in_one_launch(launch, h0.contiguous(), t);
  }
  return {t.out, t.h, t.c.to(type), save ? t.gates : at::empty({0}, wide_options),
          save ? t.cells : at::empty({0}, wide_options)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
rot_lstm_backward(const OptionalTensor& grad_out, const OptionalTensor& grad_h_n,
                  const OptionalTensor& grad_c_n, const at::Tensor& x, const at::Tensor& h0,
                  const at::Tensor& c0, const at::Tensor& w_ih, const at::Tensor& w_hh,
                  const OptionalTensor& w_hr, const OptionalTensor& batch_sizes, bool reverse,
                  const at::Tensor& out, const at::Tensor& gates, const at::Tensor& cells,
                  bool x_wanted, bool weights_wanted) {
  const CudaOpScope scope(x);
  const at::ScalarType type = x.scalar_type(), wide = compute_type(type);
  const LstmSizes sizes = check_arguments(x, h0, c0, w_ih, w_hh, w_hr);
  check_tensor("out", out, {sizes.tokens, sizes.outputs}, x);
  check_tensor("grad_out", grad_out, {sizes.tokens, sizes.outputs}, x);
  check_tensor("grad_h_n", grad_h_n, {sizes.batch, sizes.outputs}, x);
  check_tensor("grad_c_n", grad_c_n, {sizes.batch, sizes.hidden}, x);
  check_saved_on_device("gates", gates, {sizes.tokens, sizes.gate_rows}, x);
  check_saved_on_device("cells", cells, {sizes.tokens, sizes.hidden}, x);
  const SequenceSteps steps(batch_sizes, sizes.tokens, sizes.batch, reverse);

  const Launch launch = make_launch(cuda::Cell::kRotLstm, cuda::Pass::kBackward, x, steps,
                                    sizes.batch, sizes.hidden, w_hr && w_hr->defined());
  const bool stepwise = launch.plan.path == cuda::Path::kStepwise;
  const auto options = x.options();
  Backward t;
  t.w_hh = w_hh.contiguous();
  t.w_hr = prepared(w_hr, type);
  t.c0 = prepared(c0, wide);
  t.gates = gates.contiguous();
  t.cells = cells.contiguous();
  t.grad_out = prepared(grad_out, type);
  t.grad_h = running_gradient(grad_h_n, h0, stepwise ? type : wide);
  t.grad_c = running_gradient(grad_c_n, c0, wide);
  t.grad_gates = at::empty({sizes.tokens, sizes.gate_rows}, options);
  if (t.w_hr.defined()) {
    t.grad_projected = at::empty({sizes.tokens, sizes.outputs}, options);
    if (weights_wanted) t.unprojected = at::empty({sizes.tokens, sizes.hidden}, options);
  }
  if (sizes.tokens > 0) {
    stepwise ? backward_stepwise(launch, steps, t) : backward_in_one_launch(launch, t);
  }

  const auto none = [&] { return at::empty({0}, options); };  // no two outputs may be one tensor
  const at::Tensor by_gate = t.grad_gates.t();
  return {x_wanted ? at::mm(t.grad_gates, w_ih) : none(),
          t.grad_h.to(type),
          t.grad_c.to(type),
          weights_wanted ? at::mm(by_gate, x) : none(),
          weights_wanted ? at::mm(by_gate, gather_previous_hidden(out, h0, steps)) : none(),
          weights_wanted ? t.grad_gates.sum(0) : none(),
          t.unprojected.defined() ? at::mm(t.grad_projected.t(), t.unprojected) : none()};
}

}  // namespace rotcell::ops::gpu
