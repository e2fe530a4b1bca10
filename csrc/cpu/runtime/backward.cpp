// The backward pass of a layer call: plan, pack, then the time loop over chunks of the sequence,
// last to first. After each chunk its gates' gradients, still in the cache, give those of x and of
// the weights, unless the time loop made these itself.
#include <algorithm>
#include <optional>

#include "cpu/runtime/input_matmul.h"
#include "cpu/runtime/layer.h"
#include "cpu/runtime/packing.h"
#include "cpu/runtime/plan.h"
#include "cpu/runtime/row_bias.h"
#include "cpu/runtime/row_cells.h"
#include "cpu/runtime/state_hooks.h"
#include "cpu/runtime/weight_gradients.h"

namespace rotcell::cpu {
namespace {

template <class T>
CallPlan plan_backward(const LayerBackward<T>& layer) {
  const bool extras = layer.hooks.what().any() || layer.grad_cells != nullptr;
  return plan_call<T>(layer.cell, layer.sizes, layer.sequence.steps().lengths, layer.projection(),
                      extras ? Extras::kSome : Extras::kNone);
}

template <class T>
class BackwardCall {
 public:
  explicit BackwardCall(const LayerBackward<T>& layer)
      : layer_(layer),
        plan_(plan_backward(layer)),
        single_threaded_(plan_.threads),
        chunk_tokens_(backward_chunk_tokens(plan_, layer.sizes)),
        recurrent_(pack_weights()),
        projection_(packed(kernels<T>().backward_weights, layer.w_hr, layer.sizes.outputs,
                           layer.sizes.hidden)),
        input_(plan_, layer),
        hooks_(layer, chunk_tokens_),
        row_(layer, plan_.threads.slots()),
        row_gradients_(layer) {
    allocate_scratch();
    if (!layer.needs_weights()) return;
    if (plan_.is_batch_vectorized()) {
      const int64_t width =
          loops().batch_vectorized.gradient_width(layer.sizes.inputs, layer.sizes.outputs);
      partial_weights_.emplace(layer.sizes, width, plan_.threads.row_threads());
    } else {
      weights_.emplace(layer, chunk_tokens_);
    }
  }

  void run() {
    Backward<T> p = arguments();
    const auto loop =
        plan_.is_batch_vectorized() ? loops().batch_vectorized.backward : loops().backward;
    const std::vector<Chunk> chunks = layer_.sequence.chunks(chunk_tokens_);
    for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
      p.chunk = *chunk;
      plan_.threads.run(layer_.sequence.steps(), *chunk, [&](const Work& work) { loop(p, work); });
      use_gate_gradients(*chunk);
    }
    if (partial_weights_) partial_weights_->sum_into(layer_);
    row_gradients_.sum_into(layer_.grad_parameters);
    if (plan_.projects() && layer_.needs_weights()) {
      projection_gradient(layer_.sizes, grad_projected_.data(), unprojected_.data(),
                          layer_.grad_w_hr);
    }
  }

 private:
  const CellKernels<T>& loops() const { return kernels<T>().cells[layer_.cell]; }
  bool loop_makes_grad_x() const { return layer_.grad_x && plan_.by_step(); }

  Buffer<T> pack_weights() const {
    const LayerSizes& sizes = layer_.sizes;
    const bool with_input = plan_.is_batch_vectorized() && layer_.grad_x;
    const RecurrentWeights<T> weights{.w_ih = layer_.w_ih,
                                      .w_hh = layer_.w_hh,
                                      .hidden = sizes.hidden,
                                      .inputs = with_input ? sizes.inputs : 0,
                                      .outputs = sizes.outputs,
                                      .hidden_feeds = sizes.hidden_feeds};
    if (plan_.is_batch_vectorized()) return packed_backward(loops().batch_vectorized, weights);
    if (!plan_.uses_packed_weights()) return {};
    return packed(loops().backward_weights, weights, plan_.threads.units());
  }

  void allocate_scratch() {
    const LayerSizes& sizes = layer_.sizes;
    if (!plan_.is_batch_vectorized()) {
      grad_gates_ = Buffer<T>(chunk_tokens_ * sizes.gate_rows);
      if (kCells[layer_.cell].stages > 1) {
        second_operand_ = Buffer<T>(chunk_tokens_ * sizes.hidden);
        grad_second_operand_ = Buffer<MathType<T>>(sizes.batch * sizes.hidden);
      }
    }
    if (plan_.projects()) {
      grad_projected_ = Buffer<T>(sizes.tokens * sizes.outputs);
      unprojected_ = Buffer<T>(sizes.tokens * sizes.hidden);
      grad_unprojected_ = Buffer<MathType<T>>(sizes.batch * sizes.hidden);
    }
  }

  void use_gate_gradients(const Chunk& chunk) {
    if (plan_.is_batch_vectorized()) return;
    input_.write(chunk, grad_gates_.data());
    if (layer_.grad_row_bias) {
      add_row_bias_gradient<T>(layer_.sequence.steps(), chunk, layer_.sizes.gate_rows,
                               grad_gates_.data(), layer_.grad_row_bias);
    }
    if (weights_)
      weights_->add(chunk, grad_gates_.data(), second_operand_.data(), hooks_.masked_h());
  }

  Backward<T> arguments() const {
    return {
        .call =
            plan_.call(layer_.sizes, layer_.sequence.steps(), layer_.activations,
                       Keep::kForBackward, layer_.grad_row_bias ? BiasOf::kRow : BiasOf::kLayer),
        .chunk = {},
        .hooks = hooks_.pointers(),
        .input_gradient = loop_makes_grad_x() ? InputGradient::kByStep : InputGradient::kNotHere,
        .output_gradient = layer_.grad_out ? OutputGradient::kGiven : OutputGradient::kZero,
        .cell_state_gradient =
            layer_.grad_cells ? CellStateGradient::kEveryStep : CellStateGradient::kLast,
        .weight_gradient = partial_weights_ ? WeightGradient::kBySlot : WeightGradient::kNotHere,
        .recurrent = recurrent_.data(),
        .w_hh = layer_.w_hh,
        .w_ih = input_.packed_weights(),
        .projection = projection_.data(),
        .h0 = layer_.h0,
        .c0 = layer_.c0,
        .gates = layer_.gates,
        .cells = layer_.cells,
        .out = layer_.out,
        .grad_out = layer_.grad_out,
        .grad_cells = layer_.grad_cells,
        .x = layer_.x,
        .grad_h = layer_.grad_h,
        .grad_c = layer_.grad_c,
        .grad_gates = grad_gates_.data(),
        .grad_x = loop_makes_grad_x() ? layer_.grad_x : nullptr,
        .second_operand = second_operand_.data(),
        .grad_second_operand = grad_second_operand_.data(),
        .grad_weights = partial_weights_ ? partial_weights_->data() : nullptr,
        .grad_row_bias = layer_.grad_row_bias,
        .grad_projected = grad_projected_.data(),
        .unprojected = unprojected_.data(),
        .grad_unprojected = grad_unprojected_.data(),
        .row = row_gradients_.added_to(row_.pointers()),
    };
  }

  const LayerBackward<T>& layer_;
  const CallPlan plan_;
  const SingleThreadedWhenBusy single_threaded_;
  const int64_t chunk_tokens_;
  const Buffer<T> recurrent_, projection_;
  InputGradientMatmul<T> input_;
  const BackwardHooks<T> hooks_;
  const RowScratch<T> row_;
  const RowGradientSums<T> row_gradients_;
  Buffer<T> grad_gates_, second_operand_, grad_projected_, unprojected_;
  Buffer<MathType<T>> grad_second_operand_, grad_unprojected_;
  std::optional<WeightGradients<T>> weights_;
  std::optional<PartialWeightGradients<T>> partial_weights_;
};

}  // namespace

template <class T>
void backward(const LayerBackward<T>& layer) {
  BackwardCall<T>(layer).run();
}

template void backward(const LayerBackward<float>&);
template void backward(const LayerBackward<double>&);
template void backward(const LayerBackward<BFloat16>&);

}  // namespace rotcell::cpu
