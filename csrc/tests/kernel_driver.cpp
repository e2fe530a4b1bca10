// Runs every CPU kernel on small sequences without torch, so that sanitizers see nothing but the
// kernels. All buffers are heap blocks of the exact size. float results are held against double
// ones, and results computed on several threads against those of one thread.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cells/rot_gru.h"
#include "cells/rot_lstm.h"
#include "cpu/kernels.h"
#include "cpu/partition.h"

namespace {

using namespace rotcell;
using namespace rotcell::cpu;

struct Shape {
  int64_t batch, steps, inputs, hidden,
      outputs;  // inputs == 0: product made before; outputs == 0: no projection
  bool packed, reverse;
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

template <class T>
std::vector<T> random_values(int64_t count, int seed, double scale = 1) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(-scale, scale);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(static_cast<float>(uniform(generator)));
  return values;
}

template <class T>
std::vector<T> packed(const ForwardPacking<T>& packing, const std::vector<T>& x_weights,
                      const std::vector<T>& weights, int64_t rows, int64_t x_depth, int64_t depth) {
  std::vector<T> panels(packing.elements(rows, x_depth, depth));
  packing.pack(x_weights.data(), weights.data(), rows, x_depth, depth, panels.data());
  return panels;
}

template <class T>
std::vector<T> packed(const BackwardPacking<T>& packing, const std::vector<T>& weights,
                      int64_t rows, int64_t depth) {
  std::vector<T> panels(packing.elements(rows, depth));
  packing.pack(weights.data(), rows, depth, panels.data());
  return panels;
}

template <class Params>
void run(void (*kernel)(const Params&, RowRange), const Params& params, int64_t threads,
         int64_t row_tile) {
  std::vector<std::thread> workers;
  for (const RowRange rows : partition_rows(params.steps, threads, row_tile)) {
    workers.emplace_back([=, &params] { kernel(params, rows); });
  }
  for (std::thread& worker : workers) worker.join();
}

template <class T>
using Results = std::vector<std::vector<T>>;

template <class T>
Results<T> run_lstm(const Shape& shape, int64_t threads) {
  const Kernels<T>& kernels = cpu::kernels<T>();
  const int64_t H = shape.hidden, P = shape.outputs ? shape.outputs : H, B = shape.batch;
  const int64_t G = RotLstmRows::count(H);
  const Sequence sequence(shape);
  const int64_t N = sequence.tokens;
  const double scale = 1 / std::sqrt(static_cast<double>(H));
  const auto w_hh = random_values<T>(G * P, 1, scale), w_hr = random_values<T>(P * H, 2, scale);
  const bool projected = shape.outputs > 0;

  auto gates = random_values<T>(N * G, 3);
  auto inference_gates = gates;
  const auto h0 = random_values<T>(B * P, 4), c0 = random_values<T>(B * H, 5);
  std::vector<T> out(N * P), cells(N * H), h_n(B * P), c_n(B * H);
  std::vector<T> scratch(projected ? B * H : 0);
  const int64_t I = shape.inputs;
  const auto x = random_values<T>(N * I, 9), w_ih = random_values<T>(G * I, 10),
             bias = random_values<T>(G, 11);
  const auto weights = packed(kernels.forward_weights, w_ih, w_hh, G, I, P);
  const auto projection = packed(kernels.forward_weights, {}, w_hr, P, 0, H);
  LstmForward<T> forward{};
  forward.steps = sequence.steps;
  forward.hidden = H;
  forward.outputs = P;
  forward.weights = weights.data();
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
  run(kernels.lstm_forward, forward, threads, kernels.row_tile);

  std::vector<T> inference_out(N * P), inference_h = h0, inference_c = c0;
  forward.gates = inference_gates.data();
  forward.out = inference_out.data();
  forward.h0 = forward.h_n = inference_h.data();
  forward.c0 = forward.c_n = forward.cells = inference_c.data();
  forward.save = false;
  run(kernels.lstm_forward, forward, threads, kernels.row_tile);

  const auto grad_out = random_values<T>(N * P, 6);
  auto grad_h = random_values<T>(B * P, 7), grad_c = random_values<T>(B * H, 8);
  std::vector<T> grad_gates(N * G), grad_projected(projected ? N * P : 0);
  std::vector<T> unprojected(projected ? N * H : 0);
  const auto recurrent_back = packed(kernels.backward_weights, w_hh, G, P);
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
  backward.recurrent = recurrent_back.data();
  backward.projection = projected ? projection_back.data() : nullptr;
  backward.c0 = c0.data();
  backward.gates = gates.data();
  backward.cells = cells.data();
  backward.grad_out = grad_out.data();
  backward.grad_h = grad_h.data();
  backward.grad_c = grad_c.data();
  backward.grad_gates = grad_gates.data();
  backward.grad_projected = projected ? grad_projected.data() : nullptr;
  backward.unprojected = projected ? unprojected.data() : nullptr;
  backward.grad_unprojected = projected ? scratch.data() : nullptr;
  run(kernels.lstm_backward, backward, threads, kernels.row_tile);
  return {out,    h_n,    c_n,        gates,       cells, inference_out,
          grad_h, grad_c, grad_gates, unprojected, grad_x};
}

template <class T>
Results<T> run_gru(const Shape& shape, int64_t threads) {
  const Kernels<T>& kernels = cpu::kernels<T>();
  const int64_t H = shape.hidden, B = shape.batch, G = RotGruRows::count(H);
  const Sequence sequence(shape);
  const int64_t N = sequence.tokens;
  const auto w_hh = random_values<T>(G * H, 1, 1 / std::sqrt(static_cast<double>(H)));

  auto gates = random_values<T>(N * G, 3);
  auto inference_gates = gates;
  const auto h0 = random_values<T>(B * H, 4);
  std::vector<T> out(N * H), h_n(B * H), scratch(B * H);
  const int64_t I = shape.inputs;
  const auto x = random_values<T>(N * I, 9), w_ih = random_values<T>(G * I, 10),
             bias = random_values<T>(G, 11);
  const auto weights = packed(kernels.gru_forward_weights, w_ih, w_hh, G, I, H);
  GruForward<T> forward{};
  forward.steps = sequence.steps;
  forward.hidden = H;
  forward.weights = weights.data();
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
  run(kernels.gru_forward, forward, threads, kernels.row_tile);

  std::vector<T> inference_out(N * H), inference_h = h0;
  forward.gates = inference_gates.data();
  forward.out = inference_out.data();
  forward.h0 = forward.h_n = inference_h.data();
  forward.save = false;
  run(kernels.gru_forward, forward, threads, kernels.row_tile);

  const auto grad_out = random_values<T>(N * H, 6);
  auto grad_h = random_values<T>(B * H, 7);
  std::vector<T> grad_gates(N * G), rotated(N * H);
  const auto recurrent_back = packed(kernels.gru_backward_weights, w_hh, G, H);
  const auto input_back = packed(kernels.backward_weights, w_ih, G, I);
  std::vector<T> grad_x(N * I);
  GruBackward<T> backward{};
  backward.steps = sequence.steps;
  backward.inputs = I;
  backward.input = I > 0 ? input_back.data() : nullptr;
  backward.grad_x = I > 0 ? grad_x.data() : nullptr;
  backward.hidden = H;
  backward.recurrent = recurrent_back.data();
  backward.h0 = h0.data();
  backward.gates = gates.data();
  backward.out = out.data();
  backward.grad_out = grad_out.data();
  backward.grad_h = grad_h.data();
  backward.grad_gates = grad_gates.data();
  backward.rotated = rotated.data();
  run(kernels.gru_backward, backward, threads, kernels.row_tile);
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

int failures = 0;

template <class RunFloat, class RunDouble>
double check(const char* cell, const Shape& shape, const RunFloat& in_float,
             const RunDouble& in_double) {
  const auto one_thread = in_float(shape, 1);
  const double threads = difference(in_float(shape, 3), one_thread);
  const double rounding = difference(one_thread, in_double(shape, 1));
  if (threads != 0 || !(rounding < 1e-5)) {
    ++failures;
    std::printf("FAILED %s B%lld T%lld H%lld P%lld%s%s: float against double %.2g, threads %.2g\n",
                cell, static_cast<long long>(shape.batch), static_cast<long long>(shape.steps),
                static_cast<long long>(shape.inputs), static_cast<long long>(shape.hidden),
                static_cast<long long>(shape.outputs), shape.packed ? " packed" : "",
                shape.reverse ? " reverse" : "", rounding, threads);
  }
  return rounding;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && std::string(arguments[1]) == "--list") {
    for (const std::string& name : instruction_set_names()) std::printf("%s\n", name.c_str());
    return 0;
  }
  int checked = 0;
  double worst = 0;
  for (const int64_t hidden : {1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 50, 67}) {
    for (const int64_t batch : {1, 2, 5, 6, 8, 9, 13, 18}) {
      for (const bool packed : {false, true}) {
        for (const bool reverse : {false, true}) {
          const int64_t inputs = batch % 2 ? 0 : hidden + 3;
          Shape shape{batch, 4, inputs, hidden, 0, packed, reverse};
          worst = std::max(worst, check("gru", shape, run_gru<float>, run_gru<double>));
          worst = std::max(worst, check("lstm", shape, run_lstm<float>, run_lstm<double>));
          checked += 2;
          if (hidden < 3) continue;
          shape.outputs = hidden / 2;
          worst = std::max(worst, check("lstm", shape, run_lstm<float>, run_lstm<double>));
          ++checked;
        }
      }
    }
  }
  std::printf("%s: %d sequences, %d failures, largest error of float against double %.2g\n",
              instruction_set().float_kernels.instruction_set, checked, failures, worst);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
