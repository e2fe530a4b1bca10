// The RotGRU ops for CUDA tensors: one direction of one layer over a whole sequence.
#include "ops/rot_gru.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>

#include "ops/cuda/ops.h"
#include "ops/cuda/sequence.h"

namespace rotcell::ops::gpu {
namespace {

// The candidate's rows of the weights, or columns of a matrix of gates.
at::Tensor candidate_part(const at::Tensor& gates, int64_t dim, int64_t hidden) {
  return gates.narrow(dim, RotGruRows::offset(RotGruRows::kCandidate, hidden), hidden);
}

// Shapes as in cuda/kernels.h. The half types are computed in float32, type A; all other tensors
// are of x's type T. All are contiguous; those that are not there are undefined.
struct Forward {
  at::Tensor from_input, w_hh;
  at::Tensor h;  // running state, at first h0
  at::Tensor out;
  at::Tensor gates;    // A: kept for backward, [N, G], or the scratch of a step, [B, G]
  at::Tensor rotated;  // scratch
  bool save;
};

void forward_stepwise(const Launch& launch, const SequenceSteps& steps, const Forward& t) {
  const int64_t hidden = launch.request.hidden;
  const at::Tensor w_hh_t = t.w_hh.t(), w_n_t = candidate_part(t.w_hh, 0, hidden).t();
  FirstRows h(t.h), rotated(t.rotated);
  FirstRows recurrent(at::empty({t.h.size(0), t.w_hh.size(0)}, t.h.options()));
  for (const Step& step : steps_in_order(steps)) {
    const at::Tensor from_input = t.from_input.narrow(0, step.token, step.rows);
    void* gates_t = row(t.gates, t.save ? step.token : 0);
    at::mm_out(recurrent(step.rows), h(step.rows), w_hh_t);
    cuda::GruStepReset reset{};
    reset.rows = step.rows;
    reset.hidden = static_cast<int>(hidden);
    reset.from_input_t = row(from_input);
    reset.recurrent = row(recurrent(step.rows));
    reset.h = row(t.h);
    reset.gates_t = gates_t;
    reset.rotated = row(t.rotated);
    cuda::step(launch.number, reset, launch.stream);
    candidate_part(from_input, 1, hidden).addmm_(rotated(step.rows), w_n_t);
    cuda::GruStepUpdate update{};
    update.rows = step.rows;
    update.hidden = static_cast<int>(hidden);
    update.candidate_t = row(from_input);
    update.gates_t = gates_t;
    update.h = row(t.h);
    update.out_t = row(t.out, step.token);
    cuda::step(launch.number, update, launch.stream);
  }
}

void forward_in_one_launch(const Launch& launch, const at::Tensor& h0, const Forward& t) {
  cuda::GruForward p{};
  p.steps = launch.steps;
  p.hidden = static_cast<int>(launch.request.hidden);
  p.from_input = row(t.from_input);
  p.w_hh = row(t.w_hh);
  p.h0 = row(h0);
  p.out = row(t.out);
  p.h_n = row(t.h);
  p.gates = row(t.gates);
  p.rotated = row(t.rotated);
  p.save = t.save;
  run_in_one_launch(launch, p);
}

struct Backward {
  at::Tensor w_hh, h0, out, grad_out;
  at::Tensor gates;       // A
  at::Tensor grad_h;      // A: of h_n, becomes that of h0
  at::Tensor grad_gates;  // out
  at::Tensor rotated;     // out, [N, H]: what the candidate saw of the old state, again
};

void backward_stepwise(const Launch& launch, const SequenceSteps& steps, const Backward& t) {
  const int64_t hidden = launch.request.hidden;
  // All gates but the candidate saw the old state itself.
  const at::Tensor w_n = candidate_part(t.w_hh, 0, hidden), w_others = t.w_hh.clone();
  candidate_part(w_others, 0, hidden).zero_();
  const at::Tensor through = at::zeros_like(t.h0);
  FirstRows grad_through(through), grad_rotated(at::empty(t.h0.sizes(), t.h0.options()));
  const std::vector<Step> order = steps_in_order(steps);
  for (auto step = order.rbegin(); step != order.rend(); ++step) {
    const at::Tensor grad_gates = t.grad_gates.narrow(0, step->token, step->rows);
    cuda::GruStepUpdateBackward update{};
    update.rows = step->rows;
    update.hidden = static_cast<int>(hidden);
    update.carried = step->carried;
    update.gates_t = row(t.gates, step->token);
    update.out_before = row(t.out, step->token_before);
    update.h0 = row(t.h0);
    update.grad_out_t = row(t.grad_out, step->token);
    update.grad_through = row(through);
    update.grad_direct = row(t.grad_h);
    update.grad_gates_t = row(grad_gates);
    cuda::step(launch.number, update, launch.stream);
    at::mm_out(grad_rotated(step->rows), candidate_part(grad_gates, 1, hidden), w_n);
    cuda::GruStepResetBackward reset{};
    reset.rows = step->rows;
    reset.hidden = static_cast<int>(hidden);
    reset.carried = step->carried;
    reset.gates_t = row(t.gates, step->token);
    reset.out_before = row(t.out, step->token_before);
    reset.h0 = row(t.h0);
    reset.grad_rotated = row(grad_rotated(step->rows));
    reset.grad_direct = row(t.grad_h);
    reset.grad_gates_t = row(grad_gates);
    reset.rotated_t = row(t.rotated, step->token);
    cuda::step(launch.number, reset, launch.stream);
    at::mm_out(grad_through(step->rows), grad_gates, w_others);
  }
  t.grad_h.add_(through);
}

void backward_in_one_launch(const Launch& launch, const Backward& t) {
  cuda::GruBackward p{};
  p.steps = launch.steps;
  p.hidden = static_cast<int>(launch.request.hidden);
  p.w_hh = row(t.w_hh);
  p.h0 = row(t.h0);
  p.gates = row(t.gates);
  p.out = row(t.out);
  p.grad_out = row(t.grad_out);
  p.grad_h = row(t.grad_h);
  p.grad_gates = row(t.grad_gates);
  p.rotated = row(t.rotated);
  run_in_one_launch(launch, p);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> rot_gru(
    const at::Tensor& x, const at::Tensor& h0, const at::Tensor& w_ih, const at::Tensor& w_hh,
    const OptionalTensor& b_ih, const OptionalTensor& b_hh, const OptionalTensor& batch_sizes,
    bool reverse, bool save) {
  const CudaOpScope scope(x);
  const at::ScalarType type = x.scalar_type(), wide = compute_type(type);
  const GruSizes sizes = check_arguments(x, h0, w_ih, w_hh);
  check_tensor("b_ih", b_ih, {sizes.gate_rows}, x);
  check_tensor("b_hh", b_hh, {sizes.gate_rows}, x);
  const SequenceSteps steps(batch_sizes, sizes.tokens, sizes.batch, reverse);

  const auto options = x.options(), wide_options = options.dtype(wide);
  Forward t;
  t.from_input = input_product(x, w_ih, total_bias(prepared(b_ih, type), prepared(b_hh, type)));
  t.w_hh = w_hh.contiguous();
  t.h = running_state(h0, type);
  t.out = at::empty({sizes.tokens, sizes.hidden}, options);
  t.gates = save && type == wide
                ? t.from_input
                : at::empty({save ? sizes.tokens : sizes.batch, sizes.gate_rows}, wide_options);
  t.rotated = at::empty({sizes.batch, sizes.hidden}, options);
  t.save = save;
  if (sizes.tokens > 0) {
    const Launch launch =
        make_launch(cuda::Cell::kRotGru, cuda::Pass::kForward, x, steps, sizes.batch, sizes.hidden);
    launch.plan.path == cuda::Path::kStepwise ? forward_stepwise(launch, steps, t)
                                              : forward_in_one_launch(launch, h0.contiguous(), t);
  }
  return {t.out, t.h, save ? t.gates : at::empty({0}, wide_options)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> rot_gru_backward(
    const OptionalTensor& grad_out, const OptionalTensor& grad_h_n, const at::Tensor& x,
    const at::Tensor& h0, const at::Tensor& w_ih, const at::Tensor& w_hh,
    const OptionalTensor& batch_sizes, bool reverse, const at::Tensor& out, const at::Tensor& gates,
    bool x_wanted, bool weights_wanted) {
  const CudaOpScope scope(x);
  const at::ScalarType type = x.scalar_type(), wide = compute_type(type);
  const GruSizes sizes = check_arguments(x, h0, w_ih, w_hh);
  check_tensor("out", out, {sizes.tokens, sizes.hidden}, x);
  check_tensor("grad_out", grad_out, {sizes.tokens, sizes.hidden}, x);
  check_tensor("grad_h_n", grad_h_n, {sizes.batch, sizes.hidden}, x);
  check_saved_on_device("gates", gates, {sizes.tokens, sizes.gate_rows}, x);
  const SequenceSteps steps(batch_sizes, sizes.tokens, sizes.batch, reverse);

  const auto options = x.options();
  Backward t;
  t.w_hh = w_hh.contiguous();
  t.h0 = h0.contiguous();
  t.out = out.contiguous();
  t.grad_out = prepared(grad_out, type);
  t.gates = gates.contiguous();
  t.grad_h = running_gradient(grad_h_n, h0, wide);
  t.grad_gates = at::empty({sizes.tokens, sizes.gate_rows}, options);
  t.rotated = at::empty({sizes.tokens, sizes.hidden}, options);
  if (sizes.tokens > 0) {
    const Launch launch = make_launch(cuda::Cell::kRotGru, cuda::Pass::kBackward, x, steps,
                                      sizes.batch, sizes.hidden);
    launch.plan.path == cuda::Path::kStepwise ? backward_stepwise(launch, steps, t)
                                              : backward_in_one_launch(launch, t);
  }

  const auto none = [&] { return at::empty({0}, options); };  // no two outputs may be one tensor
  at::Tensor grad_w_hh = none();
  if (weights_wanted) {
    // All gates saw the old state, but for the candidate, which saw it reset and rotated.
    grad_w_hh = at::mm(t.grad_gates.t(), gather_previous_hidden(out, h0, steps));
    at::Tensor candidate_rows = candidate_part(grad_w_hh, 0, sizes.hidden);
    at::mm_out(candidate_rows, candidate_part(t.grad_gates, 1, sizes.hidden).t(), t.rotated);
  }
  return {x_wanted ? at::mm(t.grad_gates, w_ih) : none(), t.grad_h.to(type),
          weights_wanted ? at::mm(t.grad_gates.t(), x) : none(), grad_w_hh,
          weights_wanted ? t.grad_gates.sum(0) : none()};
}

}  // namespace rotcell::ops::gpu
