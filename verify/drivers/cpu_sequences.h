// Sequences that the drivers run, on the CPU kernels, whose results are the reference for all
// others. All buffers are heap blocks of the exact size, so that sanitizers see overruns.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "cells/list.h"
#include "cells/steps.h"
#include "cpu/loops/kernels.h"
#include "cpu/runtime/partition.h"

namespace rotcell::tests {

using namespace rotcell::cpu;

struct Shape {
  int64_t batch, steps, inputs, hidden,
      outputs;  // outputs == 0: no projection; inputs matter only for matmuls by step
  bool packed, reverse;
  MatmulMode matmuls = MatmulMode::kByChunk;
  Layout layout = Layout::kUnits;
  Activations activations = {GateActivation::kSigmoid, GateActivation::kSigmoid};
  BiasOf bias_of = BiasOf::kLayer;  // kRow: only for matmuls by step
};

struct Sequence {
  std::vector<int64_t> batch_sizes, offsets;
  int64_t tokens = 0;
  Steps steps;

  explicit Sequence(const Shape& shape) {
    for (int64_t t = 0; t < shape.steps; ++t) {
      const int64_t rows = shape.packed
                               ? std::max<int64_t>(1, shape.batch - shape.batch * t / shape.steps)
                               : shape.batch;
      batch_sizes.push_back(rows);
      offsets.push_back(tokens);
      tokens += rows;
    }
    steps = {.count = shape.steps,
             .batch = shape.batch,
             .lengths = shape.packed ? Lengths::kTabled : Lengths::kEqual,
             .batch_sizes = batch_sizes.data(),
             .offsets = offsets.data(),
             .reverse = shape.reverse};
  }

  // One of `count` chunks of about as many steps.
  Chunk chunk(int64_t index, int64_t count) const {
    Chunk chunk{steps.count * index / count, steps.count * (index + 1) / count, tokens, 0};
    for (int64_t position = chunk.begin; position < chunk.end; ++position) {
      chunk.first_token = std::min(chunk.first_token, steps.token(steps.step(position)));
      chunk.tokens += steps.rows(steps.step(position));
    }
    return chunk;
  }
};

// Every dtype, bfloat16 too, holds these values exactly: multiples of 1/128, times a power of
// two.
template <class T>
std::vector<T> random_values(int64_t count, int seed, double scale = 1) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> steps(-128, 128);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<MathType<T>>(scale * steps(generator) / 128);
  return values;
}

// A power of two near 1 / sqrt(hidden), which keeps the gates from saturating.
inline double weight_scale(int64_t hidden) {
  return std::exp2(-std::floor(std::log2(static_cast<double>(hidden)) / 2));
}

template <class T>
std::vector<T> packed(const Packing<T>& packing, const std::vector<T>& weights, int64_t rows,
                      int64_t depth) {
  std::vector<T> panels(packing.elements(rows, depth));
  for (const Slice slice : {Slice{0, 2}, Slice{1, 2}}) {
    packing.pack(weights.data(), rows, depth, panels.data(), slice);
  }
  return panels;
}

// How many threads work: on ranges of rows, and together on ranges of the units of these.
struct Threads {
  int64_t rows, units;
};

// Ranges of the units for so many threads, or for fewer if there are not enough tiles.
inline std::vector<UnitRange> unit_ranges(int64_t hidden, int64_t threads, int64_t tile) {
  const int64_t tiles = (hidden + tile - 1) / tile, count = std::min(threads, tiles);
  std::vector<UnitRange> ranges;
  for (int64_t i = 0; i < count; ++i) {
    ranges.push_back({tiles * i / count * tile, std::min(hidden, tiles * (i + 1) / count * tile)});
  }
  return ranges;
}

template <class T>
std::vector<T> packed(const RecurrentPacking<T>& packing, const RecurrentWeights<T>& weights,
                      const std::vector<UnitRange>& ranges) {
  std::vector<T> panels;
  for (const UnitRange& units : ranges) {
    const size_t begin = panels.size();
    panels.resize(begin + packing.elements(weights, units));
    for (const Slice slice : {Slice{0, 2}, Slice{1, 2}}) {
      packing.pack(weights, units, panels.data() + begin, slice);
    }
  }
  return panels;
}

template <class T, class Params>
void run(void (*kernel)(const Params&, const Work&), const Params& params, int64_t row_threads,
         int64_t row_tile, const std::vector<UnitRange>& units) {
  const auto rows = partition_rows(params.call.steps, params.chunk, row_threads, row_tile);
  std::deque<Barrier> barriers;
  std::vector<Work> works;
  for (const RowRange& range : rows) {
    barriers.emplace_back(static_cast<int64_t>(units.size()));
    for (const UnitRange& unit_range : units) {
      const int64_t slot = static_cast<int64_t>(works.size());
      works.push_back({range, unit_range, &barriers.back(), slot});
    }
  }
  std::vector<std::thread> others;
  for (size_t i = 1; i < works.size(); ++i) others.emplace_back(kernel, params, works[i]);
  if (!works.empty()) kernel(params, works[0]);
  for (std::thread& other : others) other.join();
}

template <class T>
using Results = std::vector<std::vector<T>>;

// What the tokens of each row add up to, [rows, columns].
template <class T>
std::vector<T> sum_of_steps(const Sequence& sequence, int64_t columns, int64_t rows,
                            const std::vector<T>& tokens) {
  std::vector<T> sums(rows * columns);
  for (int64_t position = 0; position < sequence.steps.count; ++position) {
    const Step step = step_at(sequence.steps, position);
    for (int64_t i = 0; i < step.rows * columns; ++i) sums[i] += tokens[step.token * columns + i];
  }
  return sums;
}

// A cell with random weights and input on the CPU kernels.
template <class T>
class CpuCell {
 public:
  CpuCell(CellIndex cell, const Shape& shape, Threads threads)
      : cell_(kCells[cell]),
        kernels_(cpu::kernels<T>().cells[cell]),
        shape_(shape),
        projected_(shape.outputs > 0),
        by_step_(shape.matmuls == MatmulMode::kByStep),
        by_rows_(shape.layout == Layout::kBatch),
        row_threads_(threads.rows),
        chunks_(std::min(threads.rows, shape.steps)),
        row_tile_(by_rows_ ? kernels_.batch_vectorized.block_rows : cpu::kernels<T>().row_tile),
        H(shape.hidden),
        P(projected_ ? shape.outputs : H),
        B(shape.batch),
        G(cell_.rows(H)),
        I(by_step_ ? shape.inputs : 0),
        C(cell_.has_cell_state ? H : 0),
        O(cell_.stages > 1 ? H : 0),
        sequence_(shape),
        N(sequence_.tokens),
        sizes_(layer_sizes(cell_, N, I, B, H, P)),
        // With a projection, or to make the gradient of x, a thread has all units.
        units_(unit_ranges(H, projected_ || by_step_ ? 1 : threads.units, kernels_.unit_tile)) {}

  Results<T> run() {
    run_forward();
    run_inference();
    run_backward();
    std::vector<T> weight_gradients = sum_weight_gradients();
    return {out_,
            h_n_,
            c_n_,
            gates_,
            cells_,
            inference_out_,
            grad_h_,
            grad_c_,
            grad_gates_,
            all_operands_,
            unprojected_,
            grad_x_,
            weight_gradients,
            grad_row_bias_};
  }

 private:
  RecurrentWeights<T> all_weights() const {
    return {w_ih_.data(), w_hh_.data(), H, I, P, HiddenFeeds::kAll};
  }

  std::vector<T> pack_forward() const {
    auto weights = packed(kernels_.forward_weights, all_weights(), units_);
    if (by_rows_) {
      const auto& loop = kernels_.batch_vectorized;
      weights.resize(loop.forward_elements(all_weights(), shape_.bias_of));
      loop.pack_forward(all_weights(), shape_.bias_of, bias_.data(), weights.data());
    }
    return weights;
  }

  std::vector<T> pack_backward() const {
    const RecurrentWeights<T> hidden{nullptr, w_hh_.data(), H, 0, P, HiddenFeeds::kAll};
    auto weights = packed(kernels_.backward_weights, hidden, units_);
    if (by_rows_) {
      const auto& loop = kernels_.batch_vectorized;
      weights.resize(loop.backward_elements(all_weights()));
      loop.pack_backward(all_weights(), weights.data());
    }
    return weights;
  }

  Forward<T> forward_arguments(Keep keep) const {
    Forward<T> p{};
    p.call = {.steps = sequence_.steps,
              .inputs = I,
              .hidden = H,
              .outputs = P,
              .matmuls = shape_.matmuls,
              .keep = keep,
              .projection = projected_ ? Projection::kPresent : Projection::kNone,
              .activations = shape_.activations,
              .bias_of = shape_.bias_of};
    p.weights = forward_weights_.data();
    p.w_hh = w_hh_.data();
    p.projection = projection_.data();
    p.x = x_.data();
    p.bias = bias_.data();
    p.h0 = h0_.data();
    p.c0 = c0_.data();
    return p;
  }

  // gates_of(chunk): what the chunk's tokens get from the input, or room for it.
  template <class Gates>
  void run_chunks(Forward<T>& forward, const Gates& gates_of) {
    forward.second_operand = second_operand_.data();
    forward.unprojected = scratch_.data();
    for (int64_t i = 0; i < chunks_; ++i) {
      forward.chunk = sequence_.chunk(i, chunks_);
      forward.x = x_.data() + forward.chunk.first_token * I;
      forward.gates = forward.preactivations = gates_of(forward.chunk);
      tests::run<T>(by_rows_ ? kernels_.batch_vectorized.forward : kernels_.forward, forward,
                    row_threads_, row_tile_, units_);
    }
  }

  void run_forward() {
    Forward<T> forward = forward_arguments(Keep::kForBackward);
    forward.out = out_.data();
    forward.cells = cells_.data();
    forward.h_n = h_n_.data();
    forward.c_n = c_n_.data();
    run_chunks(forward, [&](const Chunk&) { return gates_.data(); });
  }

  void run_inference() {
    std::vector<T> last_h(B * P), cell_state = c0_, gates;
    Forward<T> forward = forward_arguments(Keep::kNothing);
    forward.out = inference_out_.data();
    forward.h_n = last_h.data();
    forward.c = forward.cells = forward.c_n = cell_state.data();
    run_chunks(forward, [&](const Chunk& chunk) {
      if (by_step_) {
        gates.assign(B * G, T(0));
      } else {
        const auto first = from_input_.begin() + chunk.first_token * G;
        gates.assign(first, first + chunk.tokens * G);
      }
      return gates.data();
    });
  }

  void run_backward() {
    const auto projection = packed(cpu::kernels<T>().backward_weights, w_hr_, P, H);
    const auto w_ih = packed(cpu::kernels<T>().backward_weights, w_ih_, sizes_.input_rows, I);
    const auto weights = pack_backward();
    std::vector<T> grad_projected(projected_ ? N * P : 0), grad_operand(B * O);
    Backward<T> backward{
        .call = forward_arguments(Keep::kForBackward).call,
        .chunk = {},
        .input_gradient = by_step_ ? InputGradient::kByStep : InputGradient::kNotHere,
        .output_gradient = OutputGradient::kGiven,
        .weight_gradient = by_rows_ ? WeightGradient::kBySlot : WeightGradient::kNotHere,
        .recurrent = weights.data(),
        .w_hh = w_hh_.data(),
        .w_ih = w_ih.data(),
        .projection = projection.data(),
        .h0 = h0_.data(),
        .c0 = c0_.data(),
        .gates = gates_.data(),
        .cells = cells_.data(),
        .out = out_.data(),
        .grad_out = grad_out_.data(),
        .x = x_.data(),
        .grad_h = grad_h_.data(),
        .grad_c = grad_c_.data(),
        .grad_gates = nullptr,
        .grad_x = grad_x_.data(),
        .second_operand = nullptr,
        .grad_second_operand = grad_operand.data(),
        .grad_weights = partial_gradients_.data(),
        .grad_row_bias = grad_row_bias_.data(),
        .grad_projected = grad_projected.data(),
        .unprojected = unprojected_.data(),
        .grad_unprojected = scratch_.data()};
    for (int64_t i = chunks_ - 1; i >= 0; --i) {
      backward.chunk = sequence_.chunk(i, chunks_);
      backward.grad_gates = grad_gates_.data() + backward.chunk.first_token * G;
      backward.second_operand = all_operands_.data() + backward.chunk.first_token * O;
      tests::run<T>(by_rows_ ? kernels_.batch_vectorized.backward : kernels_.backward, backward,
                    row_threads_, row_tile_, units_);
    }
  }

  std::vector<T> sum_weight_gradients() {
    if (by_rows_) {
      const int64_t width = kernels_.batch_vectorized.gradient_width(I, P), columns = I + P + 1;
      std::vector<T> total(G * columns);
      for (int64_t i = 0; i < static_cast<int64_t>(partial_gradients_.size()); ++i) {
        if (i % width < columns)
          total[i / width % G * columns + i % width] += partial_gradients_[i];
      }
      grad_gates_.clear();
      all_operands_.clear();
      return total;
    }
    if (!by_step_) return {};
    if (shape_.bias_of == BiasOf::kRow) {
      grad_row_bias_ = sum_of_steps(sequence_, G, B, grad_gates_);
    }
    return weight_gradient();
  }

  // The gradients of [w_ih, w_hh, bias], [G, I + P + 1], from those of the gates.
  std::vector<T> weight_gradient() const {
    const int64_t columns = I + P + 1;
    std::vector<T> gradient(G * columns);
    for (int64_t position = 0; position < sequence_.steps.count; ++position) {
      const Step step = step_at(sequence_.steps, position);
      for (int64_t row = 0; row < step.rows; ++row) {
        const int64_t token = step.token + row;
        const T* h =
            row < step.carried ? out_.data() + (step.token_before + row) * P : h0_.data() + row * P;
        for (int64_t g = 0; g < G; ++g) {
          const int64_t of_candidate = g - cell_.first_row_of_matmul(1, H);
          const bool second = cell_.stages > 1 && of_candidate >= 0 && of_candidate < H;
          const T* operand = second ? all_operands_.data() + token * H : h;
          const T grad = grad_gates_[token * G + g];
          T* target = gradient.data() + g * columns;
          for (int64_t k = 0; k < I; ++k) target[k] += grad * x_[token * I + k];
          for (int64_t k = 0; k < P; ++k) target[I + k] += grad * operand[k];
          target[I + P] += grad;
        }
      }
    }
    return gradient;
  }

  const CellDescription& cell_;
  const CellKernels<T>& kernels_;
  const Shape shape_;
  const bool projected_, by_step_, by_rows_;
  const int64_t row_threads_, chunks_, row_tile_;
  const int64_t H, P, B, G, I, C, O;  // as in cells/sizes.h; C, O: H, or 0 without c, second matmul
  const Sequence sequence_;
  const int64_t N;
  const LayerSizes sizes_;
  const std::vector<UnitRange> units_;

  const std::vector<T> w_hh_ = random_values<T>(sizes_.recurrent_weights(), 1, weight_scale(H));
  const std::vector<T> w_hr_ = random_values<T>(P * H, 2, weight_scale(H));
  const std::vector<T> from_input_ = random_values<T>(N * G, 3);
  const std::vector<T> h0_ = random_values<T>(B * P, 4), c0_ = random_values<T>(B * C, 5);
  const std::vector<T> grad_out_ = random_values<T>(N * P, 6);
  std::vector<T> grad_h_ = random_values<T>(B * P, 7), grad_c_ = random_values<T>(B * C, 8);
  const std::vector<T> x_ = random_values<T>(N * I, 9);
  const std::vector<T> w_ih_ = random_values<T>(sizes_.input_weights(), 10);
  const int64_t bias_rows_ = shape_.bias_of == BiasOf::kRow ? B : 1;
  const std::vector<T> bias_ = random_values<T>(bias_rows_ * G, 11);
  const std::vector<T> forward_weights_ = pack_forward();
  const std::vector<T> projection_ = packed(cpu::kernels<T>().forward_weights, w_hr_, P, H);

  using Values = std::vector<T>;
  Values gates_ = from_input_, second_operand_ = Values(B * O);
  Values scratch_ = Values(projected_ ? B * H : 0);
  Values out_ = Values(N * P), cells_ = Values(N * C), h_n_ = Values(B * P), c_n_ = Values(B * C);
  Values inference_out_ = Values(N * P);
  Values grad_gates_ = Values(N * G), all_operands_ = Values(N * O), grad_x_ = Values(N * I);
  Values unprojected_ = Values(projected_ ? N * H : 0);
  Values grad_row_bias_ = Values(shape_.bias_of == BiasOf::kRow ? B * G : 0);
  Values partial_gradients_ =
      Values(by_rows_ ? row_threads_ * G * kernels_.batch_vectorized.gradient_width(I, P) : 0);
};

// Runs a cell forward, keeping nothing and keeping all, and backward. There are as many chunks as
// threads for rows, which may not change a bit. The results, each as kernels.h shapes it, empty
// where the cell or the shape has no such thing: out, h_n, c_n, gates, cells, out when nothing is
// kept, grad_h, grad_c, grad_gates, operands, unprojected, grad_x, and with matmuls by step the
// gradients of [w_ih, w_hh, bias], [G, I + P + 1]. Layout::kBatch does not give grad_gates and
// operands.
template <class T>
Results<T> run_cell(CellIndex cell, const Shape& shape, Threads threads) {
  return CpuCell<T>(cell, shape, threads).run();
}

// The largest difference, relative to the largest value of each result; all inputs are of order 1,
// so a result of a few numbers that happen to cancel keeps the error of its order.
template <class A, class B>
double difference(const Results<A>& a, const Results<B>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double largest = 0.1, error = 0;
    for (size_t j = 0; j < a[i].size(); ++j) {
      const double x = static_cast<double>(a[i][j]), y = static_cast<double>(b[i][j]);
      largest = std::max(largest, std::abs(y));
      error = std::isfinite(x) && std::isfinite(y) ? std::max(error, std::abs(x - y)) : INFINITY;
    }
    worst = std::max(worst, error / largest);
  }
  return worst;
}

}  // namespace rotcell::tests
