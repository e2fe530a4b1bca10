#include "cuda/plan.h"

#include <algorithm>
#include <array>

namespace rotcell::cuda {
namespace {

int as_int(int64_t size) { return static_cast<int>(size); }

// Sizes beyond this overflow nothing but fit no chip.
constexpr int64_t kLargestOnChip = 1 << 14;

template <class Matrix>
SharedLayout<Matrix> staged_layout(const Request& request, const Matrix& first,
                                   const Matrix& second) {
  return SharedLayout<Matrix>::of(first, second, Tiles::kStagedBytes, Tiles::kCooperativeRows,
                                  storage_bytes(request.number), compute_bytes(request.number));
}

bool has_tensor_cores(Number number, const DeviceProperties& device) {
  return number == Number::kFloat16 ||
         (number == Number::kBFloat16 && device.compute_capability >= 80);
}

std::optional<Plan> plan_resident(const Request& request, const DeviceProperties& device) {
  const auto try_rows = [&](int rows) -> std::optional<Plan> {
    const SharedLayout<ChunkedMatrix> layout = resident_layout(request, rows);
    const int pairs = divide_up(as_int(request.hidden), 2);
    const int threads = round_up(
        std::max({layout.first.threads(), layout.second.threads(), rows * pairs}), Tiles::kWarp);
    if (layout.total > device.shared_bytes_per_block ||
        threads > Tiles::resident_threads(storage_bytes(request.number), rows)) {
      return {};
    }
    return Plan{Path::kResident, rows,        0, false, (request.batch + rows - 1) / rows,
                threads,         layout.total};
  };
  const std::optional<Plan> one_row = try_rows(1);
  if (!one_row || one_row->blocks <= device.multiprocessors) return one_row;
  const std::optional<Plan> more_rows = try_rows(Tiles::kResidentRows);
  return more_rows ? more_rows : one_row;
}

std::optional<Plan> plan_cooperative(const Request& request, const DeviceProperties& device) {
  if (!device.cooperative_launch) return {};
  const int hidden = as_int(request.hidden);
  const int even_share = round_up(divide_up(hidden, device.multiprocessors), 2);
  const auto plan = [&](int units, int64_t bytes, int threads, bool tensor) -> std::optional<Plan> {
    if (bytes > device.shared_bytes_per_block || threads > Tiles::kCooperativeThreads) return {};
    return Plan{Path::kCooperative,         0,    units, tensor, divide_up(hidden, units),
                Tiles::kCooperativeThreads, bytes};
  };
  if (has_tensor_cores(request.number, device)) {
    // Backward has a row a unit, and a tile has 16.
    const int multiple = request.pass == Pass::kForward ? 2 : Tiles::kTensorSide;
    const int units = round_up(even_share, multiple);
    const SharedLayout<TensorMatrix> layout = tensor_layout(request, units);
    const int threads = std::max(layout.first.threads(), layout.second.threads());
    if (const auto found = plan(units, layout.total, threads, true)) return found;
  }
  const SharedLayout<ChunkedMatrix> layout = cooperative_layout(request, even_share);
  const int threads = std::max(layout.first.threads(), layout.second.threads());
  return plan(even_share, layout.total, threads, false);
}

}  // namespace

SharedLayout<ChunkedMatrix> resident_layout(const Request& request, int rows_per_block) {
  const int hidden = as_int(request.hidden), bytes = storage_bytes(request.number);
  const auto products = StepProducts::of(request.cell, request.pass, hidden, hidden);
  const auto matrix = [&](const MatrixSize& size) {
    return ChunkedMatrix::sliced(size.rows, size.depth, bytes,
                                 Tiles::resident_threads(bytes, rows_per_block),
                                 Tiles::register_chunks(request.cell, bytes));
  };
  return SharedLayout<ChunkedMatrix>::of(matrix(products.first), matrix(products.second), 0,
                                         rows_per_block, bytes, compute_bytes(request.number));
}

SharedLayout<ChunkedMatrix> cooperative_layout(const Request& request, int units_per_block) {
  const auto products =
      StepProducts::of(request.cell, request.pass, units_per_block, as_int(request.hidden));
  const auto matrix = [&](const MatrixSize& size) {
    return ChunkedMatrix::sliced(size.rows, size.depth, storage_bytes(request.number),
                                 Tiles::kCooperativeThreads, 0);
  };
  return staged_layout(request, matrix(products.first), matrix(products.second));
}

SharedLayout<TensorMatrix> tensor_layout(const Request& request, int units_per_block) {
  const auto products =
      StepProducts::of(request.cell, request.pass, units_per_block, as_int(request.hidden));
  const auto matrix = [&](const MatrixSize& size) {
    return TensorMatrix::sliced(size.rows, size.depth, Tiles::kCooperativeThreads);
  };
  return staged_layout(request, matrix(products.first), matrix(products.second));
}

std::optional<Plan> plan_path(Path path, const Request& request, const DeviceProperties& device) {
  if (path == Path::kStepwise) return Plan{Path::kStepwise, 0, 0, false, 0, 0, 0};
  if (request.projection || request.hidden == 0 || request.hidden > kLargestOnChip) return {};
  return path == Path::kResident ? plan_resident(request, device)
                                 : plan_cooperative(request, device);
}

Plan choose_plan(const Request& request, const DeviceProperties& device) {
  // Beyond these, torch's products keep the device busy by themselves and stepwise is predicted to
  // be faster: see docs/cuda.md. Without tensor cores what counts is the elements of the state.
  constexpr int64_t kResidentWaves = 4;
  constexpr int64_t kTensorBatch = 128;
  constexpr int64_t kCooperativeElements = 1 << 13;
  // Below this, bringing the weights on chip does not pay.
  constexpr int64_t kCooperativeSteps = 3;
  if (const auto plan = plan_path(Path::kResident, request, device);
      plan && plan->blocks <= kResidentWaves * device.multiprocessors) {
    return *plan;
  }
  if (const auto plan = plan_path(Path::kCooperative, request, device);
      plan && request.steps >= kCooperativeSteps) {
    const int64_t tiles = (request.batch + Tiles::kCooperativeRows - 1) / Tiles::kCooperativeRows;
    const int64_t elements = tiles * Tiles::kCooperativeRows * request.hidden;
    if (plan->tensor_cores ? request.batch <= kTensorBatch : elements <= kCooperativeElements) {
      return *plan;
    }
  }
  return *plan_path(Path::kStepwise, request, device);
}

namespace {
constexpr std::array<const char*, 3> kPathNames = {"stepwise", "resident", "cooperative"};
}

std::string path_name(Path path) { return kPathNames[static_cast<size_t>(path)]; }

std::optional<Path> path_named(const std::string& name) {
  for (size_t i = 0; i < kPathNames.size(); ++i) {
    if (name == kPathNames[i]) return static_cast<Path>(i);
  }
  return {};
}

}  // namespace rotcell::cuda
