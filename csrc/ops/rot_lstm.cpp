// The RotLSTM ops on the CPU: one direction of one layer over a whole sequence.
#include "ops/rot_lstm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "ops/input_products.h"
#include "ops/sequence.h"
#include "ops/weight_gradients.h"

namespace rotcell::ops {
namespace {

using Sizes = LstmSizes;

struct ForwardResult {
  at::Tensor out, h_n, c_n, gates, cells;
};

// All tensors but x, which is converted piece by piece, are contiguous and of type T.
template <class T>
ForwardResult forward(const Sizes& sizes, const SequenceSteps& steps, const at::Tensor& x,
                      const at::Tensor& h0, const at::Tensor& c0, const at::Tensor& w_ih,
                      const at::Tensor& w_hh, const at::Tensor& b_ih, const at::Tensor& b_hh,
                      const at::Tensor& w_hr, bool save) {
  const cpu::Kernels<T>& kernels = cpu::kernels<T>();
  const auto options = w_ih.options();
  const Sharing sharing = Sharing::of<T>(sizes, /*units_can_be_shared=*/!w_hr.defined());
  ForwardGates<T> gates(x, sizes.batch, w_ih, w_hh, b_ih, b_hh, sharing, save);
  // The state runs through h_n and c_n from piece to piece.
  ForwardResult result{at::empty({sizes.tokens, sizes.outputs}, options), h0.clone(), c0.clone(),
                       at::empty({0}, options), at::empty({0}, options)};
  if (save) result.cells = empty_buffer({sizes.tokens, sizes.hidden}, options);
  at::Tensor weights;
  if (gates.packs()) {
    weights = packed(kernels.lstm_forward_weights, gates.by_step() ? w_ih : at::Tensor(), w_hh,
                     sizes.hidden, sharing);
  }
  const at::Tensor projection = packed(kernels.forward_weights, w_hr);
  const at::Tensor unprojected =
      w_hr.defined() ? at::empty({sizes.batch, sizes.hidden}, options) : at::Tensor();
  steps.for_pieces(gates.max_tokens(), [&](const SequenceSteps& piece, int64_t first_token) {
    cpu::LstmForward<T> p{};
    p.steps = piece.view();
    p.hidden = sizes.hidden;
    p.outputs = sizes.outputs;
    p.weights = data_or_null<T>(weights);
    p.unpacked = gates.packs() ? nullptr : w_hh.const_data_ptr<T>();
    p.projection = data_or_null<T>(projection);
    p.h0 = p.h_n = result.h_n.data_ptr<T>();
    p.c0 = p.c_n = result.c_n.data_ptr<T>();
    gates.prepare(first_token, piece.tokens(), p);
    p.out = result.out.data_ptr<T>() + first_token * sizes.outputs;
    p.cells = save ? result.cells.data_ptr<T>() + first_token * sizes.hidden : p.c_n;
    p.unprojected = data_or_null<T>(unprojected);
    p.save = save;
    sharing.run(piece.view(), [&](const cpu::Work& work) { kernels.lstm_forward(p, work); });
  });
  if (save) result.gates = gates.gates();
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> rot_lstm(
    const at::Tensor& x, const at::Tensor& h0, const at::Tensor& c0, const at::Tensor& w_ih,
    const at::Tensor& w_hh, const OptionalTensor& b_ih, const OptionalTensor& b_hh,
    const OptionalTensor& w_hr, const OptionalTensor& batch_sizes, bool reverse, bool save) {
  const OpScope scope;
  const at::ScalarType storage = x.scalar_type(), type = compute_type(storage);
  const Sizes sizes = check_arguments(x, h0, c0, w_ih, w_hh, w_hr);
  check_tensor("b_ih", b_ih, {sizes.gate_rows}, x);
  check_tensor("b_hh", b_hh, {sizes.gate_rows}, x);
  const SequenceSteps steps(batch_sizes, sizes.tokens, sizes.batch, reverse);
  const auto run = type == at::kDouble ? forward<double> : forward<float>;
  ForwardResult result = run(sizes, steps, x, prepared(h0, type), prepared(c0, type),
                             prepared(w_ih, type), prepared(w_hh, type), prepared(b_ih, type),
                             prepared(b_hh, type), prepared(w_hr, type), save);
  return {prepared(result.out, storage), prepared(result.h_n, storage),
          prepared(result.c_n, storage), result.gates, result.cells};
}

struct BackwardResult {
  at::Tensor x, h0, c0, w_ih, w_hh, bias, w_hr;
};

template <class T>
BackwardResult backward(const Sizes& sizes, const SequenceSteps& steps, const at::Tensor& grad_out,
                        const at::Tensor& grad_h_n, const at::Tensor& grad_c_n, const at::Tensor& x,
                        const at::Tensor& h0, const at::Tensor& c0, const at::Tensor& w_ih,
                        const at::Tensor& w_hh, const at::Tensor& w_hr, const at::Tensor& out,
                        const at::Tensor& gates, const at::Tensor& cells, bool x_wanted,
                        bool weights_wanted) {
  const cpu::Kernels<T>& kernels = cpu::kernels<T>();
  const auto options = x.options();
  const auto none = [&] { return at::empty({0}, options); };  // no two outputs may be one tensor
  const Sharing sharing = Sharing::of<T>(sizes, /*units_can_be_shared=*/!w_hr.defined());
  const InputProducts products = input_products(sizes.tokens, sizes.batch, w_ih, w_hh, sharing);
  const bool packs = products != InputProducts::kUnpacked;
  at::Tensor recurrent;
  if (packs) recurrent = packed(kernels.lstm_backward_weights, {}, w_hh, sizes.hidden, sharing);
  const at::Tensor projection = packed(kernels.backward_weights, w_hr);
  BackwardResult grad{none(),
                      grad_h_n.defined() ? grad_h_n.clone() : at::zeros_like(h0),
                      grad_c_n.defined() ? grad_c_n.clone() : at::zeros_like(c0),
                      none(),
                      none(),
                      none(),
                      none()};
  const int64_t piece_tokens =
      std::min(sizes.tokens, std::max(sizes.batch, gradient_piece_tokens(sizes.gate_rows)));
  const at::Tensor grad_gates = at::empty({piece_tokens, sizes.gate_rows}, options);
  at::Tensor grad_projected, unprojected, grad_unprojected;
  if (w_hr.defined()) {
    grad_projected = at::empty({sizes.tokens, sizes.outputs}, options);
    unprojected = at::empty({sizes.tokens, sizes.hidden}, options);
    grad_unprojected = at::empty({sizes.batch, sizes.hidden}, options);
  }
  cpu::LstmBackward<T> p{};
  p.steps = steps.view();
  p.inputs = x.size(1);
  p.hidden = sizes.hidden;
  p.outputs = sizes.outputs;
  p.recurrent = data_or_null<T>(recurrent);
  p.unpacked = packs ? nullptr : w_hh.const_data_ptr<T>();
  p.projection = data_or_null<T>(projection);
  p.c0 = c0.const_data_ptr<T>();
  p.gates = gates.const_data_ptr<T>();
  p.cells = cells.const_data_ptr<T>();
  p.grad_out = data_or_null<T>(grad_out);
  p.grad_h = grad.h0.data_ptr<T>();
  p.grad_c = grad.c0.data_ptr<T>();
  p.grad_gates = grad_gates.data_ptr<T>();
  p.grad_projected = data_or_null<T>(grad_projected);
  p.unprojected = data_or_null<T>(unprojected);
  p.grad_unprojected = data_or_null<T>(grad_unprojected);
  std::optional<InputGradient<T>> input;
  if (x_wanted) {
    input.emplace(x, w_ih, products);
    input->prepare(p);
  }
  std::optional<WeightGradients> weights;
  if (weights_wanted) weights.emplace(x, h0, out, steps, sizes.gate_rows, piece_tokens);

  const std::vector<cpu::Piece> pieces = steps.pieces(piece_tokens);
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    p.piece = *piece;
    sharing.run(steps.view(*piece), [&](const cpu::Work& work) { kernels.lstm_backward(p, work); });
    const at::Tensor grads = grad_gates.narrow(0, 0, piece->tokens);
    if (input) input->add(*piece, grads);
    if (weights) weights->add(*piece, grads);
  }
  if (input) grad.x = input->gradient();
  if (weights_wanted) {
    grad.w_ih = weights->w_ih();
    grad.w_hh = weights->w_hh();
    grad.bias = weights->bias();
    if (w_hr.defined()) grad.w_hr = at::mm(grad_projected.t(), unprojected);
  }
  return grad;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
rot_lstm_backward(const OptionalTensor& grad_out, const OptionalTensor& grad_h_n,
                  const OptionalTensor& grad_c_n, const at::Tensor& x, const at::Tensor& h0,
                  const at::Tensor& c0, const at::Tensor& w_ih, const at::Tensor& w_hh,
                  const OptionalTensor& w_hr, const OptionalTensor& batch_sizes, bool reverse,
                  const at::Tensor& out, const at::Tensor& gates, const at::Tensor& cells,
                  bool x_wanted, bool weights_wanted) {
  const OpScope scope;
  const at::ScalarType storage = x.scalar_type(), type = compute_type(storage);
  const Sizes sizes = check_arguments(x, h0, c0, w_ih, w_hh, w_hr);
  check_tensor("out", out, {sizes.tokens, sizes.outputs}, x);
  check_tensor("grad_out", grad_out, {sizes.tokens, sizes.outputs}, x);
  check_tensor("grad_h_n", grad_h_n, {sizes.batch, sizes.outputs}, x);
  check_tensor("grad_c_n", grad_c_n, {sizes.batch, sizes.hidden}, x);
  check_saved("gates", gates, {sizes.tokens, sizes.gate_rows}, type);
  check_saved("cells", cells, {sizes.tokens, sizes.hidden}, type);
  const SequenceSteps steps(batch_sizes, sizes.tokens, sizes.batch, reverse);
  const auto run = type == at::kDouble ? backward<double> : backward<float>;
  BackwardResult grad =
      run(sizes, steps, prepared(grad_out, type), prepared(grad_h_n, type),
          prepared(grad_c_n, type), prepared(x, type), prepared(h0, type), prepared(c0, type),
          prepared(w_ih, type), prepared(w_hh, type), prepared(w_hr, type), prepared(out, type),
          prepared(gates, type), prepared(cells, type), x_wanted, weights_wanted);
  return {prepared(grad.x, storage),    prepared(grad.h0, storage),   prepared(grad.c0, storage),
          prepared(grad.w_ih, storage), prepared(grad.w_hh, storage), prepared(grad.bias, storage),
          prepared(grad.w_hr, storage)};
}

}  // namespace

TORCH_LIBRARY_IMPL(rotcell, CPU, m) {
  m.impl("rot_lstm", rot_lstm);
  m.impl("rot_lstm_backward", rot_lstm_backward);
}

}  // namespace rotcell::ops
