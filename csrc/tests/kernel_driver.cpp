// Runs every CPU kernel on small sequences without torch, so that sanitizers see nothing but the
// kernels. float results are held against double ones, and results computed on several threads, and
// backward in pieces, against those of one.
//
//   kernel_driver [--list | --threads]
//     list: only name the instruction sets;
//     threads: compute on several threads and compare nothing, for a sanitizer that looks for races
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cpu/instruction_set.h"
#include "tests/cpu_sequences.h"

namespace {

using namespace rotcell;
using namespace rotcell::tests;

int failures = 0;

bool units_can_be_shared(const Shape& shape) {
  return shape.products != ProductMode::kByStep && shape.outputs == 0 &&
         shape.hidden > kernels<float>().unit_tile;
}

const char* name(ProductMode products) {
  switch (products) {
    case ProductMode::kByStep:
      return "by step";
    case ProductMode::kByChunk:
      return "by chunk";
    default:
      return "unpacked";
  }
}

// The sum of what several threads found is not to the bit that of one.
constexpr size_t kWeightGradient = 12;

void run_on_several_threads(CellIndex cell, const Shape& shape) {
  run_cell<float>(cell, shape, Threads{3, 1});
  if (units_can_be_shared(shape)) run_cell<float>(cell, shape, Threads{2, 3});
}

double check(CellIndex cell, const Shape& shape) {
  const Threads one{1, 1};
  const auto one_thread = run_cell<float>(cell, shape, one);
  double threads = 0;
  auto several = run_cell<float>(cell, shape, Threads{3, 1});
  if (shape.layout == Layout::kRows) {
    const Results<float> of_several{several[kWeightGradient]}, of_one{one_thread[kWeightGradient]};
    if (!(difference(of_several, of_one) < 1e-5)) threads = 1;
    several[kWeightGradient].clear();
  }
  threads = std::max(threads, difference(several, one_thread));
  if (units_can_be_shared(shape)) {
    threads =
        std::max(threads, difference(run_cell<float>(cell, shape, Threads{2, 3}), one_thread));
  }
  Shape packed_weights = shape;
  if (shape.products == ProductMode::kUnpacked) packed_weights.products = ProductMode::kByChunk;
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
        shape.functions.gates == GateFunction::kHardSigmoid ? " hard gates" : "",
        shape.layout == Layout::kRows ? "rows in lanes" : name(shape.products), rounding, threads);
  }
  return rounding;
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
  const auto check_all_cells = [&](Shape shape) {
    for (CellIndex cell = 0; cell < Cells::kCount; ++cell) {
      if (shape.outputs > 0 && !kCells[cell].can_project) continue;
      if (only_threads) {
        run_on_several_threads(cell, shape);
      } else {
        worst = std::max(worst, check(cell, shape));
        ++checked;
      }
    }
  };
  for (const int64_t hidden : {1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 50, 67}) {
    for (const int64_t batch : {1, 2, 5, 6, 8, 9, 13, 18, 40}) {
      for (const bool packed : {false, true}) {
        for (const bool reverse : {false, true}) {
          const bool by_step = batch % 2 == 0;
          for (const ProductMode products :
               {by_step ? ProductMode::kByStep : ProductMode::kByChunk, ProductMode::kUnpacked}) {
            if (by_step && products == ProductMode::kUnpacked) continue;
            Shape shape{batch, 4, hidden + 3, hidden, 0, packed, reverse, products};
            check_all_cells(shape);
            if (products == ProductMode::kByStep) {
              Shape by_rows = shape;
              by_rows.layout = Layout::kRows;
              by_rows.functions.gates =
                  hidden % 3 ? GateFunction::kSigmoid : GateFunction::kHardSigmoid;
              by_rows.bias_of = hidden % 2 ? BiasOf::kRow : BiasOf::kLayer;
              check_all_cells(by_rows);
              by_rows.bias_of = hidden % 2 ? BiasOf::kLayer : BiasOf::kRow;
              if (batch > 8) check_all_cells(by_rows);
            }
            if (hidden < 3) continue;
            shape.outputs = hidden / 2;
            check_all_cells(shape);
          }
        }
      }
      Shape hard{batch, 4, hidden + 3, hidden, 0, batch % 2 == 0, batch % 3 == 0};
      hard.functions = {GateFunction::kHardSigmoid,
                        batch % 4 < 2 ? GateFunction::kHardSigmoid : GateFunction::kSigmoid};
      check_all_cells(hard);
    }
  }
  // Deeper than a piece of unpacked weights.
  for (const int64_t batch : {1, 3, 18, 50}) {
    check_all_cells({batch, 2, 140, 150, 0, batch == 18, batch == 3, ProductMode::kUnpacked});
  }
  if (only_threads) {
    std::printf("%s: all sequences ran on several threads\n",
                instruction_set().float_kernels.instruction_set);
    return EXIT_SUCCESS;
  }
  std::printf("%s: %d sequences, %d failures, largest error of float against double %.2g\n",
              instruction_set().float_kernels.instruction_set, checked, failures, worst);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
