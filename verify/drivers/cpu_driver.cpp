// Runs every CPU kernel on small sequences without torch, so that sanitizers see nothing but the
// kernels. Compares float results with double ones, and results of several threads, and of a
// backward pass in pieces, with those of one thread.
//
//   cpu_driver [--list | --threads]
//     list: only name the instruction sets;
//     threads: compute on several threads and compare nothing, for a sanitizer that looks for races
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "cpu/runtime/instruction_set.h"
#include "drivers/cpu_sequences.h"
#include "drivers/int8_check.h"

namespace {

using namespace rotcell;
using namespace rotcell::tests;

int failures = 0;

bool units_can_be_shared(CellIndex cell, const Shape& shape) {
  return shape.matmuls != MatmulMode::kByStep && shape.outputs == 0 &&
         shape.hidden > kernels<float>().cells[cell].unit_tile;
}

const char* name(MatmulMode matmuls) {
  switch (matmuls) {
    case MatmulMode::kByStep:
      return "by step";
    case MatmulMode::kByChunk:
      return "by chunk";
    default:
      return "unpacked";
  }
}

// The sum over several threads differs in bits from that of one thread.
constexpr size_t kWeightGradient = 12;

void run_on_several_threads(CellIndex cell, const Shape& shape) {
  run_cell<float>(cell, shape, Threads{3, 1});
  if (units_can_be_shared(cell, shape)) run_cell<float>(cell, shape, Threads{2, 3});
}

double check(CellIndex cell, const Shape& shape) {
  const Threads one{1, 1};
  const auto one_thread = run_cell<float>(cell, shape, one);
  double threads = 0;
  auto several = run_cell<float>(cell, shape, Threads{3, 1});
  if (shape.layout == Layout::kBatch) {
    const Results<float> of_several{several[kWeightGradient]}, of_one{one_thread[kWeightGradient]};
    if (!(difference(of_several, of_one) < 1e-5)) threads = 1;
    several[kWeightGradient].clear();
  }
  threads = std::max(threads, difference(several, one_thread));
  if (units_can_be_shared(cell, shape)) {
    threads =
        std::max(threads, difference(run_cell<float>(cell, shape, Threads{2, 3}), one_thread));
  }
  Shape packed_weights = shape;
  if (shape.matmuls == MatmulMode::kUnpacked) packed_weights.matmuls = MatmulMode::kByChunk;
  packed_weights.layout = Layout::kUnits;
  const double rounding = difference(one_thread, run_cell<double>(cell, packed_weights, one));
  if (threads != 0 || !(rounding < 1e-5)) {
    ++failures;
    std::printf(
        "FAILED %s B%lld T%lld I%lld H%lld P%lld%s%s%s, %s: float against double %.2g, threads "
        "%.2g\n",
        kCells[cell].name, static_cast<long long>(shape.batch), static_cast<long long>(shape.steps),
        static_cast<long long>(shape.inputs), static_cast<long long>(shape.hidden),
        static_cast<long long>(shape.outputs), shape.packed ? " packed" : "",
        shape.reverse ? " reverse" : "",
        shape.activations.gates == GateActivation::kHardSigmoid ? " hard gates" : "",
        shape.layout == Layout::kBatch ? "batch-vectorized" : name(shape.matmuls), rounding,
        threads);
  }
  return rounding;
}

// The weight gradient of two lots of tokens, against plain loops.
template <class T>
void check_gradients(int64_t rows, int64_t tokens, int64_t inputs, int64_t outputs) {
  const Kernels<T>& kernels = rotcell::cpu::kernels<T>();
  const int64_t columns = inputs + outputs, stride = rows + 5, slices = 3;
  std::vector<T> packed(kernels.factor_elements(tokens, columns));
  std::vector<MathType<T>> w_ih(rows * inputs), w_hh(rows * outputs), bias(rows);
  std::vector<double> expected(rows * (columns + 1));
  for (const Accumulate start : {Accumulate::kOverwrite, Accumulate::kAdd}) {
    const int seed = start == Accumulate::kOverwrite ? 0 : 3;
    const auto grads = random_values<T>(tokens * stride, seed),
               x = random_values<T>(tokens * inputs, seed + 1),
               h = random_values<T>(tokens * outputs, seed + 2);
    // The other rows next to h come in two runs.
    const int64_t of_first = tokens / 3;
    for (int64_t slice = 0; slice < slices; ++slice) {
      const auto pack = [&](const T* from, int64_t count, int64_t of_row, const FactorPlace& at) {
        kernels.pack_factors(from, count, of_row, at, packed.data(), Slice{slice, slices});
      };
      pack(x.data(), tokens, inputs, {0, 0, columns, tokens});
      pack(h.data(), of_first, outputs, {inputs, 0, columns, tokens});
      pack(h.data() + of_first * outputs, tokens - of_first, outputs,
           {inputs, of_first, columns, tokens});
    }
    kernels.add_gradients({grads.data(), stride, rows, tokens, packed.data(), inputs, outputs,
                           start, w_ih.data(), w_hh.data(), bias.data()});
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < tokens; ++k) {
        const double grad = MathType<T>{grads[k * stride + row]};
        double* sums = &expected[row * (columns + 1)];
        for (int64_t i = 0; i < inputs; ++i) sums[i] += grad * MathType<T>{x[k * inputs + i]};
        for (int64_t i = 0; i < outputs; ++i) {
          sums[inputs + i] += grad * MathType<T>{h[k * outputs + i]};
        }
        sums[columns] += grad;
      }
    }
  }
  double worst = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i <= columns; ++i) {
      const MathType<T> found = i < inputs    ? w_ih[row * inputs + i]
                                : i < columns ? w_hh[row * outputs + i - inputs]
                                              : bias[row];
      worst = std::max(worst, std::abs(found - expected[row * (columns + 1) + i]));
    }
  }
  // Products of numbers below 1, each rounded, and their sums.
  const double limit = 2 * tokens * std::numeric_limits<MathType<T>>::epsilon();
  if (!(worst <= limit)) {
    ++failures;
    std::printf("FAILED weight gradient %lld x %lld + %lld of %lld tokens, %zu bytes: %.2g\n",
                static_cast<long long>(rows), static_cast<long long>(inputs),
                static_cast<long long>(outputs), static_cast<long long>(tokens), sizeof(T), worst);
  }
}

// Results of matmuls in bfloat16, and their roundings, to the bit: pairs of products are added up
// as the instruction does it, the odd one first, denormals being zero.
float flushed(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? x * 0.0f : x; }

float matmul_of_pairs(const BFloat16* row, const BFloat16* weights, int64_t depth, float sum) {
  for (int64_t k = 0; k < depth; k += 2) {
    for (const int64_t i : {k + 1, k}) {
      const float a = i < depth ? float{row[i]} : 0.0f, b = i < depth ? float{weights[i]} : 0.0f;
      sum = flushed(std::fma(flushed(a), flushed(b), flushed(sum)));
    }
  }
  return sum;
}

// Numbers of all magnitudes; some, and more of their products, are denormal.
std::vector<BFloat16> any_bfloat16(int64_t count, int seed) {
  std::mt19937 generator(seed);
  std::vector<BFloat16> values(count);
  for (BFloat16& value : values) {
    const uint32_t exponent = generator() % 8 == 0 ? generator() % 66 : 120 + generator() % 10;
    value.bits =
        static_cast<uint16_t>((generator() % 2 << 15) | (exponent << 7) | (generator() % 128));
  }
  return values;
}

void check_bfloat16_matmul(int64_t count, int64_t depth, int64_t columns) {
  const Kernels<BFloat16>& kernels = rotcell::cpu::kernels<BFloat16>();
  const auto rows = any_bfloat16(count * depth, 1), weights = any_bfloat16(columns * depth, 2);
  const auto bias = any_bfloat16(columns, 3);
  const std::vector<float> sums(bias.begin(), bias.end());
  const auto panels = packed(kernels.forward_weights, weights, columns, depth);
  std::vector<float> found(count * columns);
  std::vector<BFloat16> stored(count * columns);
  kernels.matmul(rows.data(), depth, count, depth, panels.data(), columns, sums.data(),
                 found.data(), columns);
  kernels.matmul_stored(rows.data(), depth, count, depth, panels.data(), columns, sums.data(),
                        stored.data(), columns);
  for (int64_t i = 0; i < count * columns; ++i) {
    const int64_t row = i / columns, column = i % columns;
    const float expected = matmul_of_pairs(
        rows.data() + row * depth, weights.data() + column * depth, depth, flushed(sums[column]));
    if (found[i] == expected && stored[i].bits == BFloat16(expected).bits) continue;
    ++failures;
    std::printf("FAILED bfloat16 matmul %lld x %lld x %lld: %.9g, stored %.9g, expected %.9g\n",
                static_cast<long long>(count), static_cast<long long>(depth),
                static_cast<long long>(columns), found[i], float{stored[i]}, expected);
    return;
  }
}

void check_bfloat16_matmuls() {
  for (const int64_t count : {1, 2, 8, 13}) {
    for (const int64_t depth : {1, 2, 3, 31, 34, 101}) {
      for (const int64_t columns : {1, 16, 17, 33, 50, 130}) {
        check_bfloat16_matmul(count, depth, columns);
      }
    }
  }
}

void check_all_gradients() {
  for (const int64_t rows : {1, 3, 8, 20, 70}) {
    for (const int64_t tokens : {1, 17, 200}) {
      for (const int64_t inputs : {0, 3, 48, 100}) {
        for (const int64_t outputs : {1, 16, 50, 96}) {
          check_gradients<float>(rows, tokens, inputs, outputs);
          check_gradients<double>(rows, tokens, inputs, outputs);
        }
      }
    }
  }
  check_gradients<float>(70, kMostPieceTokens, 30, 30);
}

void check_all_bfloat16() {
  if (!instruction_set().bfloat16_kernels) return;
  check_bfloat16_matmuls();
  for (const int64_t rows : {1, 3, 8, 20, 70}) {
    for (const int64_t tokens : {1, 2, 17, 200}) {
      for (const int64_t inputs : {0, 3, 48}) {
        for (const int64_t outputs : {1, 16, 50}) {
          check_gradients<BFloat16>(rows, tokens, inputs, outputs);
        }
      }
    }
  }
}

// The shapes of one hidden size and batch: both directions, padded and packed, every way to make
// the matmuls with x, both layouts, with and without a projection.
std::vector<Shape> shapes_of(int64_t hidden, int64_t batch) {
  std::vector<Shape> shapes;
  const bool by_step = batch % 2 == 0;
  std::vector<MatmulMode> modes = {MatmulMode::kByStep};
  if (!by_step) modes = {MatmulMode::kByChunk, MatmulMode::kUnpacked};
  for (const bool packed : {false, true}) {
    for (const bool reverse : {false, true}) {
      for (const MatmulMode matmuls : modes) {
        Shape shape{batch, 4, hidden + 3, hidden, 0, packed, reverse, matmuls};
        shapes.push_back(shape);
        if (by_step) {
          Shape by_rows = shape;
          by_rows.layout = Layout::kBatch;
          by_rows.activations.gates =
              hidden % 3 ? GateActivation::kSigmoid : GateActivation::kHardSigmoid;
          by_rows.bias_of = hidden % 2 ? BiasOf::kRow : BiasOf::kLayer;
          shapes.push_back(by_rows);
          by_rows.bias_of = hidden % 2 ? BiasOf::kLayer : BiasOf::kRow;
          if (batch > 8) shapes.push_back(by_rows);
        }
        if (hidden < 3) continue;
        shape.outputs = hidden / 2;
        shapes.push_back(shape);
      }
    }
  }
  Shape hard{batch, 4, hidden + 3, hidden, 0, batch % 2 == 0, batch % 3 == 0};
  hard.activations = {GateActivation::kHardSigmoid,
                      batch % 4 < 2 ? GateActivation::kHardSigmoid : GateActivation::kSigmoid};
  shapes.push_back(hard);
  return shapes;
}

std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t hidden : {1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 50, 67}) {
    for (const int64_t batch : {1, 2, 5, 6, 8, 9, 13, 18, 40}) {
      for (const Shape& shape : shapes_of(hidden, batch)) shapes.push_back(shape);
    }
  }
  // Deeper than a piece of unpacked weights.
  for (const int64_t batch : {1, 3, 18, 50}) {
    shapes.push_back({batch, 2, 140, 150, 0, batch == 18, batch == 3, MatmulMode::kUnpacked});
  }
  return shapes;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string option = count == 2 ? arguments[1] : "";
  if (option == "--list") {
    for (const std::string& name : instruction_set_names()) std::printf("%s\n", name.c_str());
    return 0;
  }
  const bool only_threads = option == "--threads";
  int checked = 0;
  double worst = 0;
  for (const Shape& shape : all_shapes()) {
    for (CellIndex cell = 0; cell < Cells::kCount; ++cell) {
      if (shape.outputs > 0 && !kCells[cell].can_project) continue;
      const bool by_rows = shape.layout == Layout::kBatch;
      if (by_rows && kernels<float>().cells[cell].batch_vectorized.block_rows == 0) continue;
      if (only_threads) {
        run_on_several_threads(cell, shape);
      } else {
        worst = std::max(worst, check(cell, shape));
        ++checked;
      }
    }
  }
  if (only_threads) {
    std::printf("%s: all sequences ran on several threads\n", instruction_set_name().c_str());
    return EXIT_SUCCESS;
  }
  check_all_gradients();
  check_all_bfloat16();
  failures += check_int8();
  std::printf("%s: %d sequences, %d failures, largest error of float against double %.2g\n",
              instruction_set_name().c_str(), checked, failures, worst);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
