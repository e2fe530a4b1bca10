// Sequences that the drivers of the kernels run, on the CPU kernels: the results that others are
// held against. All buffers are heap blocks of the exact size, so that sanitizers see overruns.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "cells/rot_gru.h"
#include "cells/rot_lstm.h"
#include "cpu/kernels.h"
#include "cpu/partition.h"

namespace rotcell::tests {

using namespace rotcell::cpu;

struct Shape {
  int64_t batch, steps, inputs, hidden,
      outputs;  // inputs == 0: product made before; outputs == 0: no projection
  bool packed, reverse;
  bool weights_packed = true;  // otherwise w_hh is used as it is; without inputs only
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
    steps = {shape.steps, batch_sizes.data(), offsets.data(), shape.reverse};
  }
};

// Every number type, bfloat16 too, holds these values exactly: multiples of 1/128, times a power of
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
  for (const Share share : {Share{0, 2}, Share{1, 2}}) {
    packing.pack(weights.data(), rows, depth, panels.data(), share);
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
std::vector<T> packed(const RecurrentPacking<T>& packing, const std::vector<T>& x_weights,
                      const std::vector<T>& weights, int64_t hidden, int64_t x_depth, int64_t depth,
                      const std::vector<UnitRange>& ranges) {
  std::vector<T> panels;
  for (const UnitRange& units : ranges) {
    const size_t begin = panels.size();
    panels.resize(begin + packing.elements(hidden, x_depth, depth, units));
    for (const Share share : {Share{0, 2}, Share{1, 2}}) {
      packing.pack(x_weights.data(), weights.data(), hidden, x_depth, depth, units,
                   panels.data() + begin, share);
    }
  }
  return panels;
}

template <class T, class Params>
void run(void (*kernel)(const Params&, const Work&), const Params& params, int64_t row_threads,
         const std::vector<UnitRange>& units) {
  const auto rows = partition_rows(params.steps, row_threads, kernels<T>().row_tile);
  std::deque<Barrier> barriers;
  std::vector<Work> works;
  for (const RowRange& range : rows) {
    barriers.emplace_back(static_cast<int64_t>(units.size()));
    for (const UnitRange& unit_range : units) {
      works.push_back({range, unit_range, units.size() > 1 ? &barriers.back() : nullptr});
    }
  }
  std::vector<std::thread> others;
  for (size_t i = 1; i < works.size(); ++i) others.emplace_back(kernel, params, works[i]);
  if (!works.empty()) kernel(params, works[0]);
  for (std::thread& other : others) other.join();
}

// Goes back through the sequence in as many pieces as there are threads for rows, which may not
// change a bit either. `place` points the buffers of a piece to its first token.
template <class T, class Params, class Place>
void run_backward(void (*kernel)(const Params&, const Work&), Params& params, int64_t row_threads,
                  const std::vector<UnitRange>& units, const Place& place) {
  const Steps& steps = params.steps;
  for (int64_t piece = row_threads - 1; piece >= 0; --piece) {
    const int64_t begin = steps.count * piece / row_threads,
                  end = steps.count * (piece + 1) / row_threads;
    const int64_t first_step = steps.reverse ? steps.count - end : begin;
    params.piece = {begin, end, steps.offsets[first_step], 0};
    for (int64_t step = first_step; step < first_step + end - begin; ++step) {
      params.piece.tokens += steps.batch_sizes[step];
    }
    place(params.piece.first_token);
    run<T>(kernel, params, row_threads, units);
  }
}

template <class T>
using Results = std::vector<std::vector<T>>;

template <class T>
Results<T> run_lstm(const Shape& shape, Threads threads) {
  const Kernels<T>& kernels = cpu::kernels<T>();
  const int64_t H = shape.hidden, P = shape.outputs ? shape.outputs : H, B = shape.batch;
  const int64_t G = RotLstmRows::count(H);
  const Sequence sequence(shape);
  const int64_t N = sequence.tokens;
  const double scale = weight_scale(H);
  const auto w_hh = random_values<T>(G * P, 1, scale), w_hr = random_values<T>(P * H, 2, scale);
  const bool projected = shape.outputs > 0;
  // With a projection, or to make the gradient of x, a thread has all units.
  if (projected || shape.inputs > 0) threads.units = 1;
  const auto units = threads.unit_ranges<T>(H);

  auto gates = random_values<T>(N * G, 3);
  auto inference_gates = gates;
  const auto h0 = random_values<T>(B * P, 4), c0 = random_values<T>(B * H, 5);
  std::vector<T> out(N * P), cells(N * H), h_n(B * P), c_n(B * H);
  std::vector<T> scratch(projected ? B * H : 0);
  const int64_t I = shape.inputs;
  const auto x = random_values<T>(N * I, 9), w_ih = random_values<T>(G * I, 10),
             bias = random_values<T>(G, 11);
  const auto weights = packed(kernels.lstm_forward_weights, w_ih, w_hh, H, I, P, units);
  const auto projection = packed(kernels.forward_weights, w_hr, P, H);
  LstmForward<T> forward{};
  forward.steps = sequence.steps;
  forward.hidden = H;
  forward.outputs = P;
  forward.weights = shape.weights_packed ? weights.data() : nullptr;
  forward.unpacked = shape.weights_packed ? nullptr : w_hh.data();
  if (I > 0) {
    forward.inputs = I;
    forward.x = x.data();
    forward.bias = bias.data();
    inference_gates.resize(B * G);
  }
  forward.projection = projected ? projection.data() : nullptr;
  forward.h0 = h0.data();
  forward.c0 = c0.data();
  forward.gates = gates.data();
  forward.out = out.data();
  forward.cells = cells.data();
  forward.unprojected = projected ? scratch.data() : nullptr;
  forward.h_n = h_n.data();
  forward.c_n = c_n.data();
  forward.save = true;
  run<T>(kernels.lstm_forward, forward, threads.rows, units);

  std::vector<T> inference_out(N * P), inference_h = h0, inference_c = c0;
  forward.gates = inference_gates.data();
  forward.out = inference_out.data();
  forward.h0 = forward.h_n = inference_h.data();
  forward.c0 = forward.c_n = forward.cells = inference_c.data();
  forward.save = false;
  run<T>(kernels.lstm_forward, forward, threads.rows, units);

  const auto grad_out = random_values<T>(N * P, 6);
  auto grad_h = random_values<T>(B * P, 7), grad_c = random_values<T>(B * H, 8);
  std::vector<T> grad_gates(N * G), grad_projected(projected ? N * P : 0);
  std::vector<T> unprojected(projected ? N * H : 0);
  const auto recurrent_back = packed(kernels.lstm_backward_weights, {}, w_hh, H, 0, P, units);
  const auto projection_back = packed(kernels.backward_weights, w_hr, P, H);
  const auto input_back = packed(kernels.backward_weights, w_ih, G, I);
  std::vector<T> grad_x(N * I);
  LstmBackward<T> backward{};
  backward.steps = sequence.steps;
  backward.inputs = I;
  backward.input = I > 0 ? input_back.data() : nullptr;
  backward.grad_x = I > 0 ? grad_x.data() : nullptr;
  backward.hidden = H;
  backward.outputs = P;
  backward.recurrent = shape.weights_packed ? recurrent_back.data() : nullptr;
  backward.unpacked = shape.weights_packed ? nullptr : w_hh.data();
  backward.projection = projected ? projection_back.data() : nullptr;
  backward.c0 = c0.data();
  backward.gates = gates.data();
  backward.cells = cells.data();
  backward.grad_out = grad_out.data();
  backward.grad_h = grad_h.data();
  backward.grad_c = grad_c.data();
  backward.grad_projected = projected ? grad_projected.data() : nullptr;
  backward.unprojected = projected ? unprojected.data() : nullptr;
  backward.grad_unprojected = projected ? scratch.data() : nullptr;
  run_backward<T>(kernels.lstm_backward, backward, threads.rows, units, [&](int64_t first_token) {
    backward.grad_gates = grad_gates.data() + first_token * G;
  });
  return {out,    h_n,    c_n,        gates,       cells, inference_out,
          grad_h, grad_c, grad_gates, unprojected, grad_x};
}

template <class T>
Results<T> run_gru(const Shape& shape, Threads threads) {
  const Kernels<T>& kernels = cpu::kernels<T>();
  const int64_t H = shape.hidden, B = shape.batch, G = RotGruRows::count(H);
  const Sequence sequence(shape);
  const int64_t N = sequence.tokens;
  const auto w_hh = random_values<T>(G * H, 1, weight_scale(H));
  if (shape.inputs > 0) threads.units = 1;  // to make the gradient of x, a thread has all
  const auto units = threads.unit_ranges<T>(H);

  auto gates = random_values<T>(N * G, 3);
  auto inference_gates = gates;
  const auto h0 = random_values<T>(B * H, 4);
  std::vector<T> out(N * H), h_n(B * H), scratch(B * H);
  const int64_t I = shape.inputs;
  const auto x = random_values<T>(N * I, 9), w_ih = random_values<T>(G * I, 10),
             bias = random_values<T>(G, 11);
  const auto weights = packed(kernels.gru_forward_weights, w_ih, w_hh, H, I, H, units);
  GruForward<T> forward{};
  forward.steps = sequence.steps;
  forward.hidden = H;
  forward.weights = shape.weights_packed ? weights.data() : nullptr;
  forward.unpacked = shape.weights_packed ? nullptr : w_hh.data();
  if (I > 0) {
    forward.inputs = I;
    forward.x = x.data();
    forward.bias = bias.data();
    inference_gates.resize(B * G);
  }
  forward.h0 = h0.data();
  forward.gates = gates.data();
  forward.out = out.data();
  forward.rotated = scratch.data();
  forward.h_n = h_n.data();
  forward.save = true;
  run<T>(kernels.gru_forward, forward, threads.rows, units);

  std::vector<T> inference_out(N * H), inference_h = h0;
  forward.gates = inference_gates.data();
  forward.out = inference_out.data();
  forward.h0 = forward.h_n = inference_h.data();
  forward.save = false;
  run<T>(kernels.gru_forward, forward, threads.rows, units);

  const auto grad_out = random_values<T>(N * H, 6);
  auto grad_h = random_values<T>(B * H, 7);
  std::vector<T> grad_gates(N * G), rotated(N * H);
  const auto recurrent_back = packed(kernels.gru_backward_weights, {}, w_hh, H, 0, H, units);
  const auto input_back = packed(kernels.backward_weights, w_ih, G, I);
  std::vector<T> grad_x(N * I);
  GruBackward<T> backward{};
  backward.steps = sequence.steps;
  backward.inputs = I;
  backward.input = I > 0 ? input_back.data() : nullptr;
  backward.grad_x = I > 0 ? grad_x.data() : nullptr;
  backward.hidden = H;
  backward.recurrent = shape.weights_packed ? recurrent_back.data() : nullptr;
  backward.unpacked = shape.weights_packed ? nullptr : w_hh.data();
  backward.h0 = h0.data();
  backward.gates = gates.data();
  backward.out = out.data();
  backward.grad_out = grad_out.data();
  backward.grad_h = grad_h.data();
  run_backward<T>(kernels.gru_backward, backward, threads.rows, units, [&](int64_t first_token) {
    backward.grad_gates = grad_gates.data() + first_token * G;
    backward.rotated = rotated.data() + first_token * H;
  });
  return {out, h_n, gates, inference_out, grad_h, grad_gates, rotated, grad_x};
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
