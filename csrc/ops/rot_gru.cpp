// The RotGRU ops on the CPU: one direction of one layer over a whole sequence.
#include "ops/rot_gru.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "ops/input_products.h"
#include "ops/sequence.h"
#include "ops/weight_gradients.h"

namespace rotcell::ops {
namespace {

using Sizes = GruSizes;

struct ForwardResult {
  at::Tensor out, h_n, gates;
};

// All tensors but x, which is converted piece by piece, are contiguous and of type T.
template <class T>
ForwardResult forward(const Sizes& sizes, const SequenceSteps& steps, const at::Tensor& x,
                      const at::Tensor& h0, const at::Tensor& w_ih, const at::Tensor& w_hh,
                      const at::Tensor& b_ih, const at::Tensor& b_hh, bool save) {
  const cpu::Kernels<T>& kernels = cpu::kernels<T>();
  const auto options = w_ih.options();
  const Sharing sharing = Sharing::of<T>(sizes, /*units_can_be_shared=*/true);
  ForwardGates<T> gates(x, sizes.batch, w_ih, w_hh, b_ih, b_hh, sharing, save);
  // The state runs through h_n from piece to piece.
  ForwardResult result{at::empty({sizes.tokens, sizes.hidden}, options), h0.clone(),
                       at::empty({0}, options)};
  at::Tensor weights;
  if (gates.packs()) {
    weights = packed(kernels.gru_forward_weights, gates.by_step() ? w_ih : at::Tensor(), w_hh,
                     sizes.hidden, sharing);
  }
  const at::Tensor rotated = at::empty({sizes.batch, sizes.hidden}, options);
  steps.for_pieces(gates.max_tokens(), [&](const SequenceSteps& piece, int64_t first_token) {
    cpu::GruForward<T> p{};
    p.steps = piece.view();
    p.hidden = sizes.hidden;
    p.weights = data_or_null<T>(weights);
    p.unpacked = gates.packs() ? nullptr : w_hh.const_data_ptr<T>();
    p.h0 = p.h_n = result.h_n.data_ptr<T>();
    gates.prepare(first_token, piece.tokens(), p);
    p.out = result.out.data_ptr<T>() + first_token * sizes.hidden;
    p.rotated = rotated.data_ptr<T>();
    p.save = save;
    sharing.run(piece.view(), [&](const cpu::Work& work) { kernels.gru_forward(p, work); });
  });
  if (save) result.gates = gates.gates();
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> rot_gru(
    const at::Tensor& x, const at::Tensor& h0, const at::Tensor& w_ih, const at::Tensor& w_hh,
    const OptionalTensor& b_ih, const OptionalTensor& b_hh, const OptionalTensor& batch_sizes,
    bool reverse, bool save) {
  const OpScope scope;
  const at::ScalarType storage = x.scalar_type(), type = compute_type(storage);
  const Sizes sizes = check_arguments(x, h0, w_ih, w_hh);
  check_tensor("b_ih", b_ih, {sizes.gate_rows}, x);
  check_tensor("b_hh", b_hh, {sizes.gate_rows}, x);
  const SequenceSteps steps(batch_sizes, sizes.tokens, sizes.batch, reverse);
  const auto run = type == at::kDouble ? forward<double> : forward<float>;
  ForwardResult result =
      run(sizes, steps, x, prepared(h0, type), prepared(w_ih, type), prepared(w_hh, type),
          prepared(b_ih, type), prepared(b_hh, type), save);
  return {prepared(result.out, storage), prepared(result.h_n, storage), result.gates};
}

struct BackwardResult {
  at::Tensor x, h0, w_ih, w_hh, bias;
};

template <class T>
BackwardResult backward(const Sizes& sizes, const SequenceSteps& steps, const at::Tensor& grad_out,
                        const at::Tensor& grad_h_n, const at::Tensor& x, const at::Tensor& h0,
                        const at::Tensor& w_ih, const at::Tensor& w_hh, const at::Tensor& out,
                        const at::Tensor& gates, bool x_wanted, bool weights_wanted) {
  const cpu::Kernels<T>& kernels = cpu::kernels<T>();
  const auto options = x.options();
  const auto none = [&] { return at::empty({0}, options); };  // no two outputs may be one tensor
  const Sharing sharing = Sharing::of<T>(sizes, /*units_can_be_shared=*/true);
  const InputProducts products = input_products(sizes.tokens, sizes.batch, w_ih, w_hh, sharing);
  const bool packs = products != InputProducts::kUnpacked;
  at::Tensor recurrent;
  if (packs) recurrent = packed(kernels.gru_backward_weights, {}, w_hh, sizes.hidden, sharing);
  BackwardResult grad{none(), grad_h_n.defined() ? grad_h_n.clone() : at::zeros_like(h0), none(),
                      none(), none()};
  const int64_t piece_tokens =
      std::min(sizes.tokens, std::max(sizes.batch, gradient_piece_tokens(sizes.gate_rows)));
  const at::Tensor grad_gates = at::empty({piece_tokens, sizes.gate_rows}, options);
  const at::Tensor rotated = at::empty({piece_tokens, sizes.hidden}, options);
  cpu::GruBackward<T> p{};
  p.steps = steps.view();
  p.inputs = x.size(1);
  p.hidden = sizes.hidden;
  p.recurrent = data_or_null<T>(recurrent);
  p.unpacked = packs ? nullptr : w_hh.const_data_ptr<T>();
  p.h0 = h0.const_data_ptr<T>();
  p.gates = gates.const_data_ptr<T>();
  p.out = out.const_data_ptr<T>();
  p.grad_out = data_or_null<T>(grad_out);
  p.grad_h = grad.h0.data_ptr<T>();
  p.grad_gates = grad_gates.data_ptr<T>();
  p.rotated = rotated.data_ptr<T>();
  std::optional<InputGradient<T>> input;
  if (x_wanted) {
    input.emplace(x, w_ih, products);
    input->prepare(p);
  }
  std::optional<WeightGradients> weights;
  if (weights_wanted) {
    // All gates saw the old state, but for the candidate, which saw it reset and rotated.
    const int64_t candidate = RotGruRows::offset(RotGruRows::kCandidate, sizes.hidden);
    weights.emplace(x, h0, out, steps, sizes.gate_rows, piece_tokens,
                    OtherRows{candidate, sizes.hidden});
  }

  const std::vector<cpu::Piece> pieces = steps.pieces(piece_tokens);
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    p.piece = *piece;
    sharing.run(steps.view(*piece), [&](const cpu::Work& work) { kernels.gru_backward(p, work); });
    const at::Tensor grads = grad_gates.narrow(0, 0, piece->tokens);
    if (input) input->add(*piece, grads);
    if (weights) weights->add(*piece, grads, rotated.narrow(0, 0, piece->tokens));
  }
  if (input) grad.x = input->gradient();
  if (weights_wanted) {
    grad.w_ih = weights->w_ih();
    grad.w_hh = weights->w_hh();
    grad.bias = weights->bias();
  }
  return grad;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> rot_gru_backward(
    const OptionalTensor& grad_out, const OptionalTensor& grad_h_n, const at::Tensor& x,
    const at::Tensor& h0, const at::Tensor& w_ih, const at::Tensor& w_hh,
    const OptionalTensor& batch_sizes, bool reverse, const at::Tensor& out, const at::Tensor& gates,
    bool x_wanted, bool weights_wanted) {
  const OpScope scope;
  const at::ScalarType storage = x.scalar_type(), type = compute_type(storage);
  const Sizes sizes = check_arguments(x, h0, w_ih, w_hh);
  check_tensor("out", out, {sizes.tokens, sizes.hidden}, x);
  check_tensor("grad_out", grad_out, {sizes.tokens, sizes.hidden}, x);
  check_tensor("grad_h_n", grad_h_n, {sizes.batch, sizes.hidden}, x);
  check_saved("gates", gates, {sizes.tokens, sizes.gate_rows}, type);
  const SequenceSteps steps(batch_sizes, sizes.tokens, sizes.batch, reverse);
  const auto run = type == at::kDouble ? backward<double> : backward<float>;
  BackwardResult grad =
      run(sizes, steps, prepared(grad_out, type), prepared(grad_h_n, type), prepared(x, type),
          prepared(h0, type), prepared(w_ih, type), prepared(w_hh, type), prepared(out, type),
          prepared(gates, type), x_wanted, weights_wanted);
  return {prepared(grad.x, storage), prepared(grad.h0, storage), prepared(grad.w_ih, storage),
          prepared(grad.w_hh, storage), prepared(grad.bias, storage)};
}

}  // namespace

TORCH_LIBRARY_IMPL(rotcell, CPU, m) {
  m.impl("rot_gru", rot_gru);
  m.impl("rot_gru_backward", rot_gru_backward);
}

}  // namespace rotcell::ops
