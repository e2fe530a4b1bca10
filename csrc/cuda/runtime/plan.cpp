#include "cuda/runtime/plan.h"

#include <algorithm>
#include <array>

namespace rotcell::cuda {
namespace {

int as_int(int64_t size) { return static_cast<int>(size); }

// Sizes beyond this overflow nothing but fit no chip.
constexpr int64_t kLargestOnChip = 1 << 14;

// The matrices of a step's matmuls, for a block that owns `units` of the layer's units, which may
// be rounded up to `all_units`: forward all rows of its units, backward all columns. matrix(rows,
// depth) makes one.
template <class Matrix, class Make>
PerMatmul<Matrix> matrices_of(const Request& request, int units, int all_units, Make make) {
  const CellDescription& cell = kCells[request.cell];
  PerMatmul<Matrix> matrices;
  for (int matmul = 0; matmul < kMostStages; ++matmul) {
    const auto rows = [&](int64_t of_units) {
      return matmul < cell.stages ? as_int(cell.rows_of_matmul(matmul, of_units)) : 0;
    };
    if (matmul >= cell.stages) {
      matrices[matmul] = make(0, 0);
    } else if (request.pass == Pass::kForward) {
      matrices[matmul] = make(rows(units), all_units);
    } else {
      matrices[matmul] = make(units, rows(all_units));
    }
  }
  return matrices;
}

// Results are [slices, 16, result rows], of one matmul at a time.
template <class Matrix>
SharedLayout<Matrix> staged_layout(const Request& request, const PerMatmul<Matrix>& matrices,
                                   int staged_bytes, int whole_buffers = 1) {
  int64_t results = 0;
  for (const Matrix& matrix : matrices.of) {
    results = std::max(results, int64_t{1} * matrix.slices * matrix.result_rows());
  }
  return SharedLayout<Matrix>::of(
      matrices, staged_bytes, Tiles::kCooperativeRows, storage_bytes(request.number),
      results * Tiles::kCooperativeRows * compute_bytes(request.number), whole_buffers);
}

template <class Matrix>
int most_threads(const PerMatmul<Matrix>& matrices) {
  int most = 0;
  for (const Matrix& matrix : matrices.of) most = std::max(most, matrix.threads());
  return most;
}

bool has_tensor_cores(Number number, const DeviceProperties& device) {
  return number == Number::kFloat16 ||
         (number == Number::kBFloat16 && device.compute_capability >= 80);
}

std::optional<Plan> plan_resident(const Request& request, const DeviceProperties& device) {
  const auto try_rows = [&](int rows) -> std::optional<Plan> {
    const SharedLayout<ChunkedMatrix> layout = resident_layout(request, rows);
    const int pairs = divide_up(as_int(request.hidden), 2);
    const int threads = round_up(std::max(most_threads(layout.matrix), rows * pairs), Tiles::kWarp);
    if (layout.total > device.shared_bytes_per_block ||
        threads > Tiles::resident_threads(storage_bytes(request.number), rows)) {
      return {};
    }
    return Plan{.path = Path::kResident,
                .rows_per_block = rows,
                .blocks = (request.batch + rows - 1) / rows,
                .threads = threads,
                .shared_bytes = layout.total};
  };
  const std::optional<Plan> one_row = try_rows(1);
  if (!one_row || one_row->blocks <= device.multiprocessors) return one_row;
  const std::optional<Plan> more_rows = try_rows(Tiles::kResidentRows);
  return more_rows ? more_rows : one_row;
}

std::optional<Plan> plan_cooperative(const Request& request, const DeviceProperties& device) {
  if (!device.cooperative_launch) return {};
  const int hidden = as_int(request.hidden);
  const auto plan = [&](int units, int tile_groups, int staged_bytes, bool tensor,
                        const auto& layout) -> std::optional<Plan> {
    if (units > Tiles::kCooperativeUnits || layout.total > device.shared_bytes_per_block ||
        most_threads(layout.matrix) > Tiles::kCooperativeThreads) {
      return {};
    }
    return Plan{.path = Path::kCooperative,
                .units_per_block = units,
                .tile_groups = tile_groups,
                .staged_bytes = staged_bytes,
                .tensor_cores = tensor,
                .blocks = int64_t{1} * divide_up(hidden, units) * tile_groups,
                .threads = Tiles::kCooperativeThreads,
                .shared_bytes = layout.total};
  };
  // With one block per multiprocessor all blocks are resident at once. The more blocks work on
  // different tiles of the batch, the fewer divide the units, and the more weights each must hold
  // on chip. So choose the fewest tiles per block that fit, with the fewest groups.
  const auto with_fewest_tiles = [&](const auto& stages, int multiple, bool tensor,
                                     auto layout_of) -> std::optional<Plan> {
    const int64_t tiles = std::max<int64_t>(tiles_of(request.batch), 1);
    for (int64_t groups = std::min<int64_t>(tiles, device.multiprocessors); groups > 0;) {
      const int64_t tiles_per_block = (tiles + groups - 1) / groups;
      groups = (tiles + tiles_per_block - 1) / tiles_per_block;
      const int tile_groups = as_int(groups), unit_groups = device.multiprocessors / tile_groups;
      const int units = round_up(divide_up(hidden, unit_groups), multiple);
      for (const int staged_bytes : stages) {
        if (const auto found = plan(units, tile_groups, staged_bytes, tensor,
                                    layout_of(request, units, staged_bytes))) {
          return found;
        }
      }
      --groups;
    }
    return {};
  };
  const auto with_any_stage = [&](int multiple, bool tensor, auto layout_of) {
    const auto found = with_fewest_tiles(Tiles::kStagedBytes, multiple, tensor, layout_of);
    return found ? found : with_fewest_tiles(Tiles::kNarrowStage, multiple, tensor, layout_of);
  };
  if (has_tensor_cores(request.number, device)) {
    // Backward has one row per unit, and a tile has 16.
    const int multiple = request.pass == Pass::kForward ? 2 : Tiles::kTensorSide;
    if (const auto found = with_any_stage(multiple, true, tensor_layout)) return found;
  }
  return with_any_stage(2, false, cooperative_layout);
}

// The smallest cluster whose blocks have room for their weights, one per tile of the batch. All
// clusters must be resident at once: a second wave would take as long again.
std::optional<Plan> plan_cluster(const Request& request, const DeviceProperties& device) {
  if (!has_tensor_cores(request.number, device) || storage_bytes(request.number) != 2) return {};
  const int64_t tiles = std::max<int64_t>(tiles_of(request.batch), 1);
  // A block sends its part of a row in chunks; backward has one row per unit, and a tile has 16.
  const int multiple = request.pass == Pass::kForward
                           ? Tiles::kChunkBytes / storage_bytes(request.number)
                           : Tiles::kTensorSide;
  for (int blocks = 2; blocks <= device.largest_cluster; blocks *= 2) {
    const int units = round_up(divide_up(as_int(request.hidden), blocks), multiple);
    if (units > Tiles::kCooperativeUnits || tiles * blocks > device.multiprocessors) continue;
    const auto layout = cluster_layout(request, units);
    if (layout.total > device.shared_bytes_per_block ||
        most_threads(layout.matrix) > Tiles::kClusterThreads) {
      continue;
    }
    return Plan{.path = Path::kCluster,
                .units_per_block = units,
                .tile_groups = as_int(tiles),
                .cluster = blocks,
                .tensor_cores = true,
                .blocks = tiles * blocks,
                .threads = Tiles::kClusterThreads,
                .shared_bytes = layout.total};
  }
  return {};
}

}  // namespace

SharedLayout<ChunkedMatrix> resident_layout(const Request& request, int rows_per_block) {
  const int bytes = storage_bytes(request.number), hidden = as_int(request.hidden);
  const int registers = Tiles::register_chunks(kCells[request.cell].stages, bytes);
  const auto matrices =
      matrices_of<ChunkedMatrix>(request, hidden, hidden, [&](int rows, int depth) {
        return ChunkedMatrix::sliced_in_lanes(
            rows, depth, bytes, Tiles::resident_threads(bytes, rows_per_block), registers);
      });
  // Results are [rows of the block, rows of all matmuls].
  int64_t results = 0;
  for (const ChunkedMatrix& matrix : matrices.of) results += matrix.rows;
  return SharedLayout<ChunkedMatrix>::of(matrices, 0, rows_per_block, bytes,
                                         results * rows_per_block * compute_bytes(request.number));
}

SharedLayout<ChunkedMatrix> cooperative_layout(const Request& request, int units_per_block,
                                               int staged_bytes) {
  const auto matrix = [&](int rows, int depth) {
    return ChunkedMatrix::sliced(rows, depth, storage_bytes(request.number),
                                 Tiles::kCooperativeThreads, 0);
  };
  const int hidden = as_int(request.hidden);
  return staged_layout(
      request, matrices_of<ChunkedMatrix>(request, units_per_block, hidden, matrix), staged_bytes);
}

SharedLayout<TensorMatrix> tensor_layout(const Request& request, int units_per_block,
                                         int staged_bytes) {
  const int registers = Tiles::register_tiles(kCells[request.cell].stages);
  const auto matrix = [&](int rows, int depth) {
    return TensorMatrix::sliced(rows, depth, Tiles::kCooperativeThreads, registers);
  };
  const int hidden = as_int(request.hidden);
  return staged_layout(request, matrices_of<TensorMatrix>(request, units_per_block, hidden, matrix),
                       staged_bytes);
}

SharedLayout<TensorMatrix> cluster_layout(const Request& request, int units_per_block) {
  const int registers = Tiles::cluster_register_tiles(kCells[request.cell].stages);
  const auto matrix = [&](int rows, int depth) {
    return TensorMatrix::sliced(rows, depth, Tiles::kClusterThreads, registers);
  };
  // Each block makes as many columns as any other, the last one perhaps some of no unit.
  const int all_units = round_up(as_int(request.hidden), units_per_block);
  constexpr int kStaged = 0, kBuffers = 2;
  return staged_layout(request,
                       matrices_of<TensorMatrix>(request, units_per_block, all_units, matrix),
                       kStaged, kBuffers);
}

std::optional<Plan> plan_path(Path path, const Request& request, const DeviceProperties& device) {
  const CellDescription& cell = kCells[request.cell];
  if (path == Path::kStepwise) return Plan{.path = Path::kStepwise};
  if (request.projection || request.hidden == 0 || request.hidden > kLargestOnChip) return {};
  if (path == Path::kResident) {
    return cell.resident ? plan_resident(request, device) : std::nullopt;
  }
  if (!cell.cooperative) return {};
  return path == Path::kCluster ? plan_cluster(request, device) : plan_cooperative(request, device);
}

namespace {

// Below this, bringing the weights on chip does not pay.
constexpr int64_t kFewestSteps = 3;

// In the backward pass blocks send each other the gradients of all gates, several times what they
// send forward, and that is predicted to take longer than through L2.
bool cluster_pays(const Request& request) {
  return request.pass == Pass::kForward && request.steps >= kFewestSteps;
}

// Beyond these, torch's matmuls keep the device busy by themselves and stepwise is predicted to be
// faster: see docs/internals/cuda.md. In the backward pass the depth of a matmul is that of all
// gates.
bool cooperative_pays(const Request& request, const DeviceProperties& device, const Plan& plan) {
  if (request.steps < kFewestSteps) return false;
  const bool forward = request.pass == Pass::kForward;
  const int64_t tiles = tiles_of(request.batch);
  if (plan.tensor_cores) {
    // What counts is how much a block has to bring in, tile after tile, and how.
    const bool asynchronous_copies = device.compute_capability >= 80;
    const int64_t most_units = (forward ? 2048 : 1024) / (asynchronous_copies ? 1 : 2);
    constexpr int64_t kBatch = 256;
    const int64_t tiles_per_block = (tiles + plan.tile_groups - 1) / plan.tile_groups;
    return request.batch <= kBatch && tiles_per_block * request.hidden <= most_units;
  }
  // What counts is the work of a multiprocessor.
  const int64_t most_work = forward ? 4096 : 2048;
  return tiles * request.hidden * request.hidden <= most_work * device.multiprocessors;
}

}  // namespace

Plan choose_plan(const Request& request, const DeviceProperties& device) {
  constexpr int64_t kResidentWaves = 4;
  if (const auto plan = plan_path(Path::kResident, request, device);
      plan && plan->blocks <= kResidentWaves * device.multiprocessors) {
    return *plan;
  }
  if (const auto plan = plan_path(Path::kCluster, request, device); plan && cluster_pays(request)) {
    return *plan;
  }
  return plan_instead_of(Path::kCluster, request, device);
}

Plan plan_instead_of(Path path, const Request& request, const DeviceProperties& device) {
  if (path == Path::kCluster) {
    const auto plan = plan_path(Path::kCooperative, request, device);
    if (plan && cooperative_pays(request, device, *plan)) return *plan;
  }
  return *plan_path(Path::kStepwise, request, device);
}

namespace {
constexpr std::array<const char*, 4> kPathNames = {"stepwise", "resident", "cooperative",
                                                   "cluster"};
}

std::string path_name(Path path) { return kPathNames[static_cast<size_t>(path)]; }

std::optional<Path> path_named(const std::string& name) {
  for (size_t i = 0; i < kPathNames.size(); ++i) {
    if (name == kPathNames[i]) return static_cast<Path>(i);
  }
  return {};
}

}  // namespace rotcell::cuda
