#include "cpu/runtime/quantized_layer.h"

#include <algorithm>

#include "cpu/runtime/plan.h"
#include "cpu/runtime/state_hooks.h"

namespace rotcell::cpu {
namespace {

// Memory for quantized rows.
class QuantizedRows {
 public:
  QuantizedRows(int64_t rows, int64_t depth)
      : stride_(int8_groups(depth) * kInt8Group),
        values_(rows * stride_),
        scales_(rows),
        sums_(rows) {}

  Int8Rows rows() const { return {values_.data(), stride_, scales_.data(), sums_.data()}; }

 private:
  int64_t stride_;
  Buffer<int8_t> values_;
  Buffer<float> scales_;
  Buffer<int32_t> sums_;
};

CallPlan plan_quantized(const QuantizedLayer& quantized) {
  // Multiplications of int8 numbers take a fourth of the time, and of the memory.
  constexpr int64_t kAsFast = 4;
  const LayerSizes& sizes = quantized.layer.sizes;
  const Kernels<float>& kernels = cpu::kernels<float>();
  const bool projected = quantized.w_hr.panels != nullptr;
  ThreadPlan threads({.tokens = sizes.tokens,
                      .batch = sizes.batch,
                      .hidden = sizes.hidden,
                      .weights = sizes.recurrent_weights() / kAsFast,
                      .weight_bytes = sizeof(float),
                      .row_tile = kernels.row_tile,
                      .unit_tile = kernels.cells[quantized.layer.cell].unit_tile,
                      .sharing = projected ? UnitSharing::kNever : UnitSharing::kAllowed});
  return {std::move(threads), MatmulMode::kUnpacked, InputWeights::kAsTheyAre,
          projected ? Projection::kPresent : Projection::kNone, Layout::kUnits};
}

class QuantizedCall {
 public:
  explicit QuantizedCall(const QuantizedLayer& quantized)
      : quantized_(quantized),
        layer_(quantized.layer),
        plan_(plan_quantized(quantized)),
        single_threaded_(plan_.threads),
        chunk_tokens_(std::min(
            layer_.sizes.tokens,
            std::max(layer_.sizes.batch, forward_chunk_tokens(plan_, layer_.sizes, false)))),
        x_(chunk_tokens_, layer_.sizes.inputs),
        operands_(plan_.threads.slots() * layer_.sizes.batch,
                  std::max(layer_.sizes.outputs, layer_.sizes.hidden)),
        hooks_(layer_),
        gates_(chunk_tokens_ * layer_.sizes.gate_rows),
        matmuls_{&int8_kernels(), quantized.w_hh, quantized.w_hr, operands_.rows(),
                 layer_.sizes.batch} {
    const int64_t states = layer_.sizes.batch * layer_.sizes.hidden;
    if (kCells[layer_.cell].stages > 1) second_operand_ = Buffer<float>(states);
    if (plan_.projects()) unprojected_ = Buffer<float>(states);
  }

  void run() {
    const Steps& steps = layer_.sequence.steps();
    const auto loop = kernels<float>().cells[layer_.cell].forward;
    Forward<float> p = arguments();
    for (const Chunk& chunk : layer_.sequence.chunks(chunk_tokens_)) {
      p.chunk = chunk;
      write_input_matmul(chunk);
      plan_.threads.run(steps, chunk, [&](const Work& work) { loop(p, work); });
    }
  }

 private:
  // What x and the bias give to the gates of a chunk.
  void write_input_matmul(const Chunk& chunk) {
    const Int8Kernels& kernels = *matmuls_.kernels;
    const LayerSizes& sizes = layer_.sizes;
    const int64_t columns = sizes.gate_rows, rows = sizes.input_rows, inputs = sizes.inputs;
    const float *x = static_cast<const float*>(layer_.x.data) + chunk.first_token * inputs,
                *bias = quantized_.bias;
    for_row_tiles(chunk.tokens, kRowTile, rows * inputs, [&](int64_t begin, int64_t end) {
      const Int8Rows quantized = x_.rows().from(begin);
      float* gates = gates_.data() + begin * columns;
      kernels.quantize(x + begin * inputs, inputs, end - begin, inputs, quantized);
      kernels.multiply(quantized, end - begin, quantized_.w_ih, 0, rows, {bias, 0}, gates, columns);
      for (int64_t token = 0; rows < columns && token < end - begin; ++token) {
        float* of_h = gates + token * columns;
        if (bias) {
          std::copy(bias + rows, bias + columns, of_h + rows);
        } else {
          std::fill(of_h + rows, of_h + columns, 0.0f);
        }
      }
    });
  }

  Forward<float> arguments() const {
    return {.call = plan_.call(layer_.sizes, layer_.sequence.steps(), layer_.activations,
                               layer_.keep, BiasOf::kLayer),
            .chunk = {},
            .hooks = hooks_.pointers(),
            .weights = nullptr,
            .w_hh = nullptr,
            .projection = nullptr,
            .x = nullptr,
            .bias = nullptr,
            .h0 = layer_.h0,
            .c0 = layer_.c0,
            .gates = nullptr,
            .preactivations = gates_.data(),
            .second_operand = second_operand_.data(),
            .out = layer_.out,
            .c = layer_.c_n,
            .cells = layer_.cells,
            .unprojected = unprojected_.data(),
            .h_n = layer_.h_n,
            .c_n = layer_.c_n,
            .int8 = &matmuls_};
  }

  static constexpr int64_t kRowTile = 8;

  const QuantizedLayer& quantized_;
  const LayerForward<float>& layer_;
  const CallPlan plan_;
  const SingleThreadedWhenBusy single_threaded_;
  const int64_t chunk_tokens_;
  const QuantizedRows x_, operands_;
  const ForwardHooks<float> hooks_;
  const Buffer<float> gates_;
  const QuantizedMatmuls matmuls_;
  Buffer<float> second_operand_, unprojected_;
};

}  // namespace

void forward(const QuantizedLayer& quantized) {
  if (start_states(quantized.layer)) QuantizedCall(quantized).run();
}

}  // namespace rotcell::cpu
