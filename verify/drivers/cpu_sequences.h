// Sequences that the drivers of the kernels run, on the CPU kernels: the results that others are
// held against. All buffers are heap blocks of the exact size, so that sanitizers see overruns.
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
  BiasOf bias_of = BiasOf::kLayer;  // of rows: for matmuls by step
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
  for (T& value : values) value = static_cast<T>(scale * steps(generator) / 128);
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

  template <class T>
  std::vector<UnitRange> unit_ranges(int64_t hidden) const {
    const int64_t tile = kernels<T>().unit_tile, tiles = (hidden + tile - 1) / tile;
    const int64_t count = std::min(units, tiles);
    std::vector<UnitRange> ranges;
    for (int64_t i = 0; i < count; ++i) {
      ranges.push_back(
          {tiles * i / count * tile, std::min(hidden, tiles * (i + 1) / count * tile)});
    }
    return ranges;
  }
};

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

// Runs a cell forward, keeping nothing and keeping all, and backward. There are as many chunks as
// threads for rows, which may not change a bit. The results, each as kernels.h shapes it, empty
// where the cell or the shape has no such thing: out, h_n, c_n, gates, cells, out when nothing is
// kept, grad_h, grad_c, grad_gates, operands, unprojected, grad_x, and with matmuls by step the
// gradients of [w_ih, w_hh, bias], [G, I + P + 1]. Layout::kBatch does not give grad_gates and
// operands.
template <class T>
std::vector<T> weight_gradient(const CellDescription& cell, const Sequence& sequence,
                               const Backward<T>& p, const std::vector<T>& grad_gates,
                               const std::vector<T>& second_operand) {
  const int64_t I = p.call.inputs, H = p.call.hidden, P = p.call.outputs, G = cell.rows(H);
  const int64_t columns = I + P + 1;
  std::vector<T> gradient(G * columns);
  for (int64_t position = 0; position < sequence.steps.count; ++position) {
    const Step step = step_at(sequence.steps, position);
    for (int64_t row = 0; row < step.rows; ++row) {
      const int64_t token = step.token + row;
      const T* h = row < step.carried ? p.out + (step.token_before + row) * P : p.h0 + row * P;
      for (int64_t g = 0; g < G; ++g) {
        const int64_t of_candidate = g - cell.first_row_of_matmul(1, H);
        const bool second = cell.stages > 1 && of_candidate >= 0 && of_candidate < H;
        const T* memory = second ? second_operand.data() + token * H : h;
        const T grad = grad_gates[token * G + g];
        T* target = gradient.data() + g * columns;
        for (int64_t k = 0; k < I; ++k) target[k] += grad * p.x[token * I + k];
        for (int64_t k = 0; k < P; ++k) target[I + k] += grad * memory[k];
        target[I + P] += grad;
      }
    }
  }
  return gradient;
}

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

template <class T>
Results<T> run_cell(CellIndex cell, const Shape& shape, Threads threads) {
  const CellDescription& description = kCells[cell];
  const CellKernels<T>& kernels = cpu::kernels<T>().cells[cell];
  const bool projected = shape.outputs > 0, by_step = shape.matmuls == MatmulMode::kByStep;
  const int64_t H = shape.hidden, P = projected ? shape.outputs : H, B = shape.batch;
  const int64_t G = description.rows(H), I = by_step ? shape.inputs : 0;
  const int64_t C = description.has_cell_state ? H : 0, O = description.stages > 1 ? H : 0;
  const Sequence sequence(shape);
  const int64_t N = sequence.tokens, chunks = std::min(threads.rows, shape.steps);
  const double scale = weight_scale(H);
  const auto w_hh = random_values<T>(G * P, 1, scale), w_hr = random_values<T>(P * H, 2, scale);
  const auto x = random_values<T>(N * I, 9), w_ih = random_values<T>(G * I, 10),
             bias = random_values<T>(shape.bias_of == BiasOf::kRow ? B * G : G, 11);
  // With a projection, or to make the gradient of x, a thread has all units.
  if (projected || by_step) threads.units = 1;
  const auto units = threads.unit_ranges<T>(H);
  const RecurrentWeights<T> all_weights{w_ih.data(), w_hh.data(), H, I, P, HiddenFeeds::kAll};
  const RecurrentWeights<T> hidden_weights{nullptr, w_hh.data(), H, 0, P, HiddenFeeds::kAll};

  const auto from_input = random_values<T>(N * G, 3);
  auto gates = from_input;
  const auto h0 = random_values<T>(B * P, 4), c0 = random_values<T>(B * C, 5);
  std::vector<T> out(N * P), cells(N * C), h_n(B * P), c_n(B * C), second_operand(B * O);
  std::vector<T> scratch(projected ? B * H : 0);
  const bool by_rows = shape.layout == Layout::kBatch;
  const int64_t row_tile =
      by_rows ? kernels.batch_vectorized.block_rows : cpu::kernels<T>().row_tile;
  auto weights = packed(kernels.forward_weights, all_weights, units);
  if (by_rows) {
    weights.resize(kernels.batch_vectorized.forward_elements(all_weights, shape.bias_of));
    kernels.batch_vectorized.pack_forward(all_weights, shape.bias_of, bias.data(), weights.data());
  }
  const auto projection = packed(cpu::kernels<T>().forward_weights, w_hr, P, H);
  Forward<T> forward{.call = {.steps = sequence.steps,
                              .inputs = I,
                              .hidden = H,
                              .outputs = P,
                              .matmuls = shape.matmuls,
                              .keep = Keep::kForBackward,
                              .projection = projected ? Projection::kPresent : Projection::kNone,
                              .activations = shape.activations,
                              .bias_of = shape.bias_of},
                     .chunk = {},
                     .weights = weights.data(),
                     .w_hh = w_hh.data(),
                     .projection = projection.data(),
                     .x = x.data(),
                     .bias = bias.data(),
                     .h0 = h0.data(),
                     .c0 = c0.data(),
                     .gates = gates.data(),
                     .second_operand = second_operand.data(),
                     .out = out.data(),
                     .cells = cells.data(),
                     .unprojected = scratch.data(),
                     .h_n = h_n.data(),
                     .c_n = c_n.data()};
  const auto run_forward = [&](const auto& gates_of_chunk) {
    for (int64_t i = 0; i < chunks; ++i) {
      forward.chunk = sequence.chunk(i, chunks);
      forward.x = x.data() + forward.chunk.first_token * I;
      forward.gates = gates_of_chunk(forward.chunk);
      run<T>(by_rows ? kernels.batch_vectorized.forward : kernels.forward, forward, threads.rows,
             row_tile, units);
    }
  };
  run_forward([&](const Chunk&) { return gates.data(); });

  std::vector<T> inference_out(N * P), inference_h(B * P), memory = c0, chunk_gates;
  forward.call.keep = Keep::kNothing;
  forward.out = inference_out.data();
  forward.h_n = inference_h.data();
  forward.cells = forward.c_n = memory.data();
  run_forward([&](const Chunk& chunk) {
    if (by_step) {
      chunk_gates.assign(B * G, T(0));
    } else {
      const auto first = from_input.begin() + chunk.first_token * G;
      chunk_gates.assign(first, first + chunk.tokens * G);
    }
    return chunk_gates.data();
  });

  const auto grad_out = random_values<T>(N * P, 6);
  auto grad_h = random_values<T>(B * P, 7), grad_c = random_values<T>(B * C, 8);
  std::vector<T> grad_gates(N * G), all_operands(N * O), grad_x(N * I);
  std::vector<T> grad_projected(projected ? N * P : 0), unprojected(projected ? N * H : 0);
  auto recurrent_back = packed(kernels.backward_weights, hidden_weights, units);
  std::vector<T> grad_weights, grad_row_bias(shape.bias_of == BiasOf::kRow ? B * G : 0);
  if (by_rows) {
    recurrent_back.resize(kernels.batch_vectorized.backward_elements(all_weights));
    kernels.batch_vectorized.pack_backward(all_weights, recurrent_back.data());
    grad_weights.resize(threads.rows * G * kernels.batch_vectorized.gradient_width(I, P));
  }
  const auto projection_back = packed(cpu::kernels<T>().backward_weights, w_hr, P, H);
  const auto input_back = packed(cpu::kernels<T>().backward_weights, w_ih, G, I);
  Backward<T> backward{
      .call = forward.call,
      .chunk = {},
      .input_gradient = by_step ? InputGradient::kByStep : InputGradient::kNotHere,
      .output_gradient = OutputGradient::kGiven,
      .weight_gradient = by_rows ? WeightGradient::kBySlot : WeightGradient::kNotHere,
      .recurrent = recurrent_back.data(),
      .w_hh = w_hh.data(),
      .w_ih = input_back.data(),
      .projection = projection_back.data(),
      .h0 = h0.data(),
      .c0 = c0.data(),
      .gates = gates.data(),
      .cells = cells.data(),
      .out = out.data(),
      .grad_out = grad_out.data(),
      .x = x.data(),
      .grad_h = grad_h.data(),
      .grad_c = grad_c.data(),
      .grad_gates = nullptr,
      .grad_x = grad_x.data(),
      .second_operand = nullptr,
      .grad_weights = grad_weights.data(),
      .grad_row_bias = grad_row_bias.data(),
      .grad_projected = grad_projected.data(),
      .unprojected = unprojected.data(),
      .grad_unprojected = scratch.data()};
  for (int64_t i = chunks - 1; i >= 0; --i) {
    backward.chunk = sequence.chunk(i, chunks);
    backward.grad_gates = grad_gates.data() + backward.chunk.first_token * G;
    backward.second_operand = all_operands.data() + backward.chunk.first_token * O;
    run<T>(by_rows ? kernels.batch_vectorized.backward : kernels.backward, backward, threads.rows,
           row_tile, units);
  }
  std::vector<T> total;
  if (by_rows) {
    const int64_t width = kernels.batch_vectorized.gradient_width(I, P), columns = I + P + 1;
    total.resize(G * columns);
    for (int64_t i = 0; i < static_cast<int64_t>(grad_weights.size()); ++i) {
      if (i % width < columns) total[i / width % G * columns + i % width] += grad_weights[i];
    }
    grad_gates.clear();
    all_operands.clear();
  } else if (by_step) {
    total = weight_gradient(description, sequence, backward, grad_gates, all_operands);
    if (shape.bias_of == BiasOf::kRow) grad_row_bias = sum_of_steps(sequence, G, B, grad_gates);
  }
  return {out,    h_n,        c_n,          gates,       cells,  inference_out, grad_h,
          grad_c, grad_gates, all_operands, unprojected, grad_x, total,         grad_row_bias};
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
