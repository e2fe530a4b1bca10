// Runs every CPU kernel on small sequences without torch, so that sanitizers see nothing but the
// kernels. float results are held against double ones, and results computed on several threads, and
// backward in pieces, against those of one.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/cpu_sequences.h"

namespace {

using namespace rotcell::tests;

int failures = 0;

bool units_can_be_shared(const Shape& shape) {
  return shape.inputs == 0 && shape.outputs == 0 && shape.hidden > kernels<float>().unit_tile;
}

template <class RunFloat, class RunDouble>
double check(const char* cell, const Shape& shape, const RunFloat& in_float,
             const RunDouble& in_double) {
  const Threads one{1, 1};
  const auto one_thread = in_float(shape, one);
  double threads = 0;
  if (shape.weights_packed) threads = difference(in_float(shape, Threads{3, 1}), one_thread);
  if (units_can_be_shared(shape)) {
    threads = std::max(threads, difference(in_float(shape, Threads{2, 3}), one_thread));
  }
  Shape with_packed_weights = shape;
  with_packed_weights.weights_packed = true;
  const double rounding = difference(one_thread, in_double(with_packed_weights, one));
  if (threads != 0 || !(rounding < 1e-5)) {
    ++failures;
    std::printf(
        "FAILED %s B%lld T%lld I%lld H%lld P%lld%s%s%s: float against double %.2g, threads %.2g\n",
        cell, static_cast<long long>(shape.batch), static_cast<long long>(shape.steps),
        static_cast<long long>(shape.inputs), static_cast<long long>(shape.hidden),
        static_cast<long long>(shape.outputs), shape.packed ? " packed" : "",
        shape.reverse ? " reverse" : "", shape.weights_packed ? "" : " unpacked", rounding,
        threads);
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
          for (const bool weights_packed : {true, false}) {
            if (!weights_packed && inputs > 0) continue;
            Shape shape{batch, 4, inputs, hidden, 0, packed, reverse, weights_packed};
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
  }
  std::printf("%s: %d sequences, %d failures, largest error of float against double %.2g\n",
              instruction_set().float_kernels.instruction_set, checked, failures, worst);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
