// The forward pass of a layer call: plan, pack, then the time loop over chunks of the sequence.
#include <algorithm>

#include "cpu/runtime/input_matmul.h"
#include "cpu/runtime/layer.h"
#include "cpu/runtime/packing.h"
#include "cpu/runtime/plan.h"
#include "cpu/runtime/row_bias.h"
#include "cpu/runtime/row_cells.h"
#include "cpu/runtime/state_hooks.h"

namespace rotcell::cpu {
namespace {

template <class T>
CallPlan plan_forward(const LayerForward<T>& layer) {
  const bool extras = layer.hooks.what().any() || layer.keep == Keep::kCellStates;
  return plan_call<T>(layer.cell, layer.sizes, layer.sequence.steps().lengths, layer.projection(),
                      extras ? Extras::kSome : Extras::kNone);
}

template <class T>
class ForwardCall {
 public:
  explicit ForwardCall(const LayerForward<T>& layer)
      : layer_(layer),
        plan_(plan_forward(layer)),
        single_threaded_(plan_.threads),
        chunk_tokens_(forward_chunk_tokens(plan_, layer.sizes, layer.x.storage != storage_of<T>())),
        inputs_(plan_, layer),
        weights_(pack_weights()),
        projection_(packed(kernels<T>().forward_weights, layer.w_hr, layer.sizes.outputs,
                           layer.sizes.hidden)),
        hooks_(layer),
        row_(layer, plan_.threads.slots()) {
    const LayerSizes& sizes = layer.sizes;
    if (!gates_in_place() && !plan_.is_batch_vectorized()) {
      const int64_t tokens = plan_.by_step() ? 0 : std::min(sizes.tokens, chunk_tokens_);
      scratch_gates_ = Buffer<MathType<T>>(std::max(sizes.batch, tokens) * sizes.gate_rows);
    }
    if (kRoundsStored<T> && kCells[layer.cell].has_cell_state) {
      running_c_ = Buffer<MathType<T>>(sizes.batch * sizes.hidden);
      std::copy_n(layer.c0, sizes.batch * sizes.hidden, running_c_.data());
    }
    if (kCells[layer.cell].stages > 1) second_operand_ = Buffer<T>(sizes.batch * sizes.hidden);
    if (plan_.projects()) unprojected_ = Buffer<T>(sizes.batch * sizes.hidden);
  }

  void run() {
    const Steps& steps = layer_.sequence.steps();
    Forward<T> p = arguments();
    const auto loop =
        plan_.is_batch_vectorized() ? loops().batch_vectorized.forward : loops().forward;
    for (const Chunk& chunk : layer_.sequence.chunks(chunk_tokens_)) {
      p.chunk = chunk;
      if (plan_.by_step()) {
        p.x = inputs_.x(chunk);
      } else {
        write_input_matmul(chunk, p.preactivations);
      }
      plan_.threads.run(steps, chunk, [&](const Work& work) { loop(p, work); });
    }
  }

 private:
  const CellKernels<T>& loops() const { return kernels<T>().cells[layer_.cell]; }
  bool keeps_gates() const { return layer_.keep == Keep::kForBackward; }
  // Whether gates become activations where they are.
  bool gates_in_place() const { return keeps_gates() && !kRoundsStored<T>; }
  MathType<T>* preactivations() const {
    if constexpr (!kRoundsStored<T>) {
      if (keeps_gates()) return layer_.gates;
    }
    return scratch_gates_.data();
  }
  MathType<T>* running_c() const {
    if constexpr (kRoundsStored<T>)
      return running_c_.data();
    else
      return layer_.c_n;
  }
  BiasOf bias_of() const { return layer_.row_bias ? BiasOf::kRow : BiasOf::kLayer; }

  Buffer<T> pack_weights() const {
    const LayerSizes& sizes = layer_.sizes;
    const RecurrentWeights<T> weights{.w_ih = layer_.w_ih,
                                      .w_hh = layer_.w_hh,
                                      .hidden = sizes.hidden,
                                      .inputs = plan_.by_step() ? sizes.inputs : 0,
                                      .outputs = sizes.outputs,
                                      .hidden_feeds = sizes.hidden_feeds};
    if (plan_.is_batch_vectorized()) {
      return packed_forward(loops().batch_vectorized, weights, bias_of(), inputs_.bias());
    }
    if (!plan_.uses_packed_weights()) return {};
    return packed(loops().forward_weights, weights, plan_.threads.units());
  }

  // What x and the biases give to the gates of a chunk, at its place in `gates`.
  void write_input_matmul(const Chunk& chunk, MathType<T>* gates) {
    const int64_t rows = layer_.sizes.gate_rows;
    MathType<T>* of_chunk = gates + (gates_in_place() ? chunk.first_token * rows : 0);
    inputs_.write(chunk, of_chunk);
    if (layer_.row_bias) {
      add_row_bias(layer_.sequence.steps(), chunk, rows, layer_.row_bias, of_chunk);
    }
  }

  Forward<T> arguments() const {
    return {
        .call = plan_.call(layer_.sizes, layer_.sequence.steps(), layer_.activations, layer_.keep,
                           bias_of()),
        .chunk = {},
        .hooks = hooks_.pointers(),
        .weights = weights_.data(),
        .w_hh = layer_.w_hh,
        .projection = projection_.data(),
        .x = nullptr,
        .bias = inputs_.bias(),
        .h0 = layer_.h0,
        .c0 = layer_.c0,
        .gates = layer_.gates,
        .preactivations = preactivations(),
        .second_operand = second_operand_.data(),
        .out = layer_.out,
        .c = running_c(),
        .cells = layer_.keep == Keep::kNothing ? layer_.c_n : layer_.cells,
        .unprojected = unprojected_.data(),
        .h_n = layer_.h_n,
        .c_n = layer_.c_n,
        .row = row_.pointers(),
    };
  }

  const LayerForward<T>& layer_;
  const CallPlan plan_;
  const SingleThreadedWhenBusy single_threaded_;
  const int64_t chunk_tokens_;
  InputMatmul<T> inputs_;
  const Buffer<T> weights_, projection_;
  const ForwardHooks<T> hooks_;
  const RowScratch<T> row_;
  Buffer<T> second_operand_, unprojected_;
  Buffer<MathType<T>> scratch_gates_, running_c_;
};

}  // namespace

template <class T>
bool start_states(const LayerForward<T>& layer) {
  const LayerSizes& sizes = layer.sizes;
  const bool has_cell_state = kCells[layer.cell].has_cell_state;
  const bool no_steps = layer.sequence.steps().count == 0;
  if (no_steps) std::copy_n(layer.h0, sizes.batch * sizes.outputs, layer.h_n);
  // c_n is the running cell state, unless that of every token is kept.
  if (has_cell_state && (no_steps || layer.keep == Keep::kNothing)) {
    std::copy_n(layer.c0, sizes.batch * sizes.hidden, layer.c_n);
  }
  return !no_steps;
}

template <class T>
void forward(const LayerForward<T>& layer) {
  if (start_states(layer)) ForwardCall<T>(layer).run();
}

template bool start_states(const LayerForward<float>&);
template bool start_states(const LayerForward<double>&);

template void forward(const LayerForward<float>&);
template void forward(const LayerForward<double>&);
template void forward(const LayerForward<BFloat16>&);

}  // namespace rotcell::cpu
