// Runs every CUDA kernel on small sequences in the emulator, without torch, so that sanitizers see
// nothing but the kernels, and compares the results with those of the CPU kernels in double.
//
//   cuda_driver [--quick | --stages | --tensor | --unrolled | --clusters] [--once] [--stop]
//               [--stepwise | --resident | --cooperative | --cluster] [--ptx FOLDER [--coverage
//               FILE]]
//     all paths, cells and dtypes, but --unrolled, which takes long in the emulator; or
//     quick: fewer and smaller sequences;
//     stages: what does not fit shared memory, or the registers, as a whole;
//     tensor: what tensor cores multiply;
//     unrolled: the same in sizes that reach all that the compiler unrolls;
//     clusters: what blocks write into each other's shared memory;
//     once: in one order of the threads instead of three;
//     stop: at the first failure;
//     stepwise, resident, cooperative, cluster: on this path only;
//     ptx: from the PTX in that folder, in a build with ROTCELL_PTX;
//     coverage: write there which instructions of the PTX were executed
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "cuda/runtime/known_devices.h"
#include "drivers/cuda_sequences.h"
#include "drivers/error_limit.h"
#include "emulator/control.h"
#if defined(ROTCELL_PTX)
#include "ptx/launch.h"
#endif

namespace {

using namespace rotcell;
using namespace rotcell::tests;
using cuda::Path;

int passed = 0, failed = 0;
bool once = false, stop = false;
std::optional<Path> only;
int compute_capability = 90;

const char* const kOrderNames[] = {"forward", "reverse", "random"};

template <class T>
void check(CellIndex cell, const Shape& shape, const OnPath& where) {
  if ((only && where.path != *only) || (stop && failed > 0)) return;
  if (where.path == Path::kCluster && where.device.largest_cluster == 1) return;
  emulator::pose_as(where.device);
  const Results<double> expected = run_cell<double>(cell, shape, Threads{1, 1});
  Results<double> first;
  for (int order = once ? 2 : 0; order < 3; ++order) {
    emulator::set_order(static_cast<emulator::Order>(order), 7);
    std::string problem;
    try {
      const Results<double> results = CudaCell<T>(cell, shape, where).run();
      const double error = difference(results, expected);
      if (!(error < error_limit<T>())) problem = "error " + std::to_string(error);
      if (first.empty()) first = results;
      if (difference(results, first) != 0) problem += " differs from another order";
    } catch (const std::exception& e) {
      problem = e.what();
    }
    if (problem.empty()) {
      ++passed;
      continue;
    }
    ++failed;
    std::printf(
        "FAILED %s %s on %d multiprocessors, %zu bytes per number, B%lld T%lld H%lld%s%s%s, %s "
        "order: %s\n",
        kCells[cell].name, cuda::path_name(where.path).c_str(), where.device.multiprocessors,
        sizeof(T), static_cast<long long>(shape.batch), static_cast<long long>(shape.steps),
        static_cast<long long>(shape.hidden), shape.packed ? " packed" : "",
        shape.reverse ? " reverse" : "",
        shape.activations.gates == GateActivation::kHardSigmoid ? " hard_sigmoid" : "",
        kOrderNames[order], problem.c_str());
  }
}

// On the whole of an H100 a block has few rows and units, on few multiprocessors many.
OnPath on(Path path, int multiprocessors = 132) {
  cuda::DeviceProperties device = *cuda::find_known_device("H100");
  device.multiprocessors = multiprocessors;
  device.compute_capability = compute_capability;
  if (compute_capability < 90) device.largest_cluster = 1;
  return {path, device};
}

Shape with_hard_sigmoid(Shape shape) {
  shape.activations = {GateActivation::kHardSigmoid, GateActivation::kHardSigmoid};
  return shape;
}

template <class T>
void check_cells(const Shape& shape, const OnPath& where) {
  for (CellIndex cell = 0; cell < Cells::kCount; ++cell) {
    if (kCells[cell].stepwise) check<T>(cell, shape, where);
  }
}

void check_all_numbers(const Shape& shape, const OnPath& where) {
  check_cells<float>(shape, where);
  check_cells<double>(shape, where);
  check_cells<__half>(shape, where);
  check_cells<__nv_bfloat16>(shape, where);
}

void check_paths(const Shape& shape) {
  check_all_numbers(shape, on(Path::kStepwise));
  for (const Path path : {Path::kResident, Path::kCooperative}) {
    check_all_numbers(shape, on(path));
    check_all_numbers(shape, on(path, 2));
  }
}

// Tiles of rows that begin and end at different steps: a group of blocks for each, or one group
// that has all of them.
void check_tiles(int64_t batch, int64_t hidden) {
  for (const bool reverse : {false, true}) {
    const Shape shape{batch, 3, 0, hidden, 0, true, reverse};
    check_cells<float>(shape, on(Path::kCooperative, 2));
    check_cells<float>(shape, on(Path::kCooperative, 1));
  }
}

// Rows that do not fit shared memory as a whole, but in stages, in each pass; weights for tensor
// cores that do not fit the registers.
template <class T>
void check_stages(int64_t hidden, int multiprocessors) {
  for (CellIndex cell = 0; cell < Cells::kCount; ++cell) {
    if (!kCells[cell].stepwise) continue;
    OnPath where = on(Path::kCooperative, multiprocessors);
    for (const cuda::Pass pass : {cuda::Pass::kForward, cuda::Pass::kBackward}) {
      const cuda::Request request{cell, pass, hidden, 3, 2, NumberOf<T>::kNumber, false};
      const int units = where.plan(request).units_per_block;
      const int staged = cuda::Tiles::kStagedBytes[2];
      const auto need = [&](const auto& layout) {
        if (layout.staged[0] == layout.depth[0] || layout.matrix[0].shared_bytes() == 0) {
          throw std::logic_error("the sequence fits as a whole");
        }
        where.shared_bytes[pass] = layout.total;
      };
      if (sizeof(T) == 2) {
        need(cuda::tensor_layout(request, units, staged));
      } else {
        need(cuda::cooperative_layout(request, units, staged));
      }
    }
    check<T>(cell, {3, 2, 0, hidden, 0, true, false}, where);
  }
}

void check_all_stages() {
  check_stages<float>(304, 80);
  check_stages<float>(303, 80);
  check_stages<__half>(528, 19);
}

// A tile of rows and a half, depths of several tiles and a part of one, one slice and several.
void check_tensor_cores() {
  for (const int64_t hidden : {12, 90}) {
    for (const int multiprocessors : {4, 64}) {
      const Shape shape{24, 2, 0, hidden, 0, false, false};
      check_cells<__half>(shape, on(Path::kCooperative, multiprocessors));
      check_cells<__nv_bfloat16>(shape, on(Path::kCooperative, multiprocessors));
    }
  }
}

// Tiles of weights that a warp of each matmul has: what the unrolled code depends on.
struct WeightTiles {
  cuda::Pass pass;
  int matmul;
  int reached;  // the tiles, where the last group of registers is not full, or a few past all
  auto operator<=>(const WeightTiles&) const = default;
};

template <class T>
std::set<WeightTiles> weight_tiles(CellIndex cell, const Shape& shape, const OnPath& where) {
  std::set<WeightTiles> found;
  for (const cuda::Pass pass : {cuda::Pass::kForward, cuda::Pass::kBackward}) {
    const cuda::Request request{
        cell, pass, shape.hidden, shape.batch, shape.steps, NumberOf<T>::kNumber, false};
    const auto plan = cuda::plan_path(where.path, request, where.device);
    if (!plan || !plan->tensor_cores) return {};
    const auto layout = where.path == Path::kCluster
                            ? cuda::cluster_layout(request, plan->units_per_block)
                            : cuda::tensor_layout(request, plan->units_per_block, 0);
    for (int matmul = 0; matmul < kCells[cell].stages; ++matmul) {
      const auto& matrix = layout.matrix[matmul];
      const int tiles = matrix.tiles_per_slice(), in_registers = matrix.register_tiles;
      const int group = cuda::Tiles::kTensorGroup;
      if (tiles > in_registers) {
        found.insert({pass, matmul, std::min(tiles, in_registers + 3)});
      } else if (tiles % group == group - 1) {
        found.insert({pass, matmul, tiles});
      }
    }
  }
  return found;
}

// For each cell, sizes that together reach all the code that is unrolled over tiles of weights.
template <class T>
void check_unrolled(Path path, int64_t largest) {
  for (CellIndex cell = 0; cell < Cells::kCount; ++cell) {
    if (!kCells[cell].stepwise) continue;
    std::set<WeightTiles> reached;
    for (int64_t hidden = 24; hidden <= largest; hidden += 8) {
      const Shape shape{3, 2, 0, hidden, 0, true, false};
      // Few units in a block have many slices, and few tiles in each: so as many as there may be.
      const auto blocks = static_cast<int>((hidden + 27) / 28);
      const OnPath where = path == Path::kCluster ? on(path) : on(path, blocks);
      const size_t before = reached.size();
      reached.merge(weight_tiles<T>(cell, shape, where));
      if (reached.size() > before) check<T>(cell, shape, where);
    }
  }
}

void check_all_unrolled() {
  check_unrolled<__half>(Path::kCooperative, 1200);
  check_unrolled<__nv_bfloat16>(Path::kCooperative, 1200);
  check_unrolled<__half>(Path::kCluster, 512);
  check_unrolled<__nv_bfloat16>(Path::kCluster, 512);
}

// Rows that begin and end at different steps; numbers of units that blocks do not share out evenly,
// and a block that has none.
void check_clusters() {
  check_cells<__half>({3, 3, 0, 7, 0, true, false}, on(Path::kCluster));
  check_cells<__half>({3, 3, 0, 7, 0, true, true}, on(Path::kCluster));
  check_cells<__nv_bfloat16>({2, 2, 0, 66, 0, false, false}, on(Path::kCluster));
}

// Tiles that begin and end at different steps; what does not fit the registers.
void check_larger_clusters() {
  check_cells<__half>({37, 3, 0, 34, 0, true, false}, on(Path::kCluster));
  check_cells<__nv_bfloat16>({37, 3, 0, 40, 0, true, true}, on(Path::kCluster));
  check_cells<__half>({2, 2, 0, 250, 0, false, false}, on(Path::kCluster));
  check_cells<__half>({3, 2, 0, 512, 0, true, true}, on(Path::kCluster));
}

void check_quickly() {
  check_paths({5, 2, 0, 5, 0, false, false});
  check_paths(with_hard_sigmoid({6, 3, 0, 8, 0, true, true}));
  check_tiles(18, 2);
}

void check_all() {
  for (const int64_t hidden : {1, 2, 5, 12, 19, 34}) {
    for (const bool packed : {false, true}) {
      for (const bool reverse : {false, true}) {
        const Shape shape{packed ? 6 : 5, 3, 0, hidden, 0, packed, reverse};
        check_paths(hidden % 3 == 2 && packed ? with_hard_sigmoid(shape) : shape);
      }
    }
  }
  check_tiles(37, 4);
  // Several blocks share each tile.
  check_cells<float>({37, 3, 0, 6, 0, true, true}, on(Path::kCooperative, 9));
  check_cells<__half>({37, 3, 0, 6, 0, true, false}, on(Path::kCooperative, 9));
  // Weights beyond the registers, operands of several stages, more rows than a tile.
  check_cells<float>({2, 2, 0, 112, 0, false, false}, on(Path::kResident));
  check_cells<__half>({2, 2, 0, 160, 0, false, true}, on(Path::kResident));
  check_cells<double>({3, 2, 0, 50, 0, true, false}, on(Path::kResident, 2));
  for (const int64_t hidden : {160, 163}) {
    const Shape shape{hidden % 2 ? 3 : 18, 2, 0, hidden, 0, true, hidden % 2 == 0};
    check_all_numbers(shape, on(Path::kCooperative, 16));
  }
  check_cells<__half>({17, 2, 0, 270, 0, false, false}, on(Path::kCooperative, 12));
  check_tensor_cores();
  check_all_stages();
  check_clusters();
  check_larger_clusters();
}

}  // namespace

int main(int count, char** arguments) {
  const std::map<std::string, void (*)()> parts = {{"--quick", check_quickly},
                                                   {"--stages", check_all_stages},
                                                   {"--tensor", check_tensor_cores},
                                                   {"--unrolled", check_all_unrolled},
                                                   {"--clusters", check_clusters}};
  void (*part)() = check_all;
  [[maybe_unused]] std::string coverage;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
#if defined(ROTCELL_PTX)
    if (argument == "--ptx" && i + 1 < count) {
      compute_capability = ptx::run_launches_from(arguments[++i]);
      continue;
    }
    if (argument == "--coverage" && i + 1 < count) {
      coverage = arguments[++i];
      continue;
    }
#endif
    if (argument == "--once") {
      once = true;
    } else if (argument == "--stop") {
      stop = true;
    } else if (const auto found = parts.find(argument); found != parts.end()) {
      part = found->second;
    } else if (argument.starts_with("--") && cuda::path_named(argument.substr(2))) {
      only = cuda::path_named(argument.substr(2));
    } else {
      std::fprintf(stderr, "cuda_driver does not know %s\n", argument.c_str());
      return EXIT_FAILURE;
    }
  }
  part();
#if defined(ROTCELL_PTX)
  if (!coverage.empty()) ptx::write_coverage(coverage);
#endif
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
