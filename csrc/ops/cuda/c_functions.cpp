#include "ops/cuda/c_functions.h"

#include <atomic>
#include <exception>
#include <optional>

#include "cuda/device.h"
#include "ops/cuda/path.h"
#include "ops/cuda/step_graphs.h"
#include "ops/tensor.h"

#define ROTCELL_EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

namespace gpu = rotcell::ops::gpu;
using rotcell::cuda::Number;
using rotcell::cuda::Pass;
using rotcell::cuda::Path;

std::atomic<RotcellCheck> check_of_python{nullptr};
std::atomic<RotcellProductSettings> settings_of_python{nullptr};
std::atomic<RotcellCapture> capture_of_python{nullptr};

bool is_path(int path) { return path >= 0 && path <= static_cast<int>(Path::kCluster); }

std::optional<gpu::PathUse> known_use(const RotcellPathUse& use) {
  if (!is_path(use.path) || use.cell < 0 || use.cell >= rotcell::Cells::kCount || use.pass < 0 ||
      use.pass > static_cast<int>(Pass::kBackward) || use.number < 0 ||
      use.number > static_cast<int>(Number::kBFloat16) || use.option < 0 ||
      use.option > static_cast<int>(gpu::Option::kStateChanges)) {
    return {};
  }
  return gpu::PathUse{use.device,
                      use.cell,
                      static_cast<Pass>(use.pass),
                      static_cast<Number>(use.number),
                      static_cast<Path>(use.path),
                      static_cast<gpu::Option>(use.option)};
}

RotcellPathUse as_told(const gpu::PathUse& use, const rotcell::cuda::Request& request) {
  return {use.device,
          use.cell,
          static_cast<int>(use.pass),
          static_cast<int>(use.number),
          static_cast<int>(use.path),
          static_cast<int>(use.option),
          request.hidden,
          request.batch,
          request.steps};
}

void ask_python(const gpu::PathUse& use, const rotcell::cuda::Request& request) {
  const RotcellCheck check = check_of_python.load();
  if (check == nullptr) return;
  const RotcellPathUse told = as_told(use, request);
  if (const char* error = check(&told)) rotcell::ops::fail(error);
}

int64_t ask_settings() {
  const RotcellProductSettings settings = settings_of_python.load();
  return settings == nullptr ? -1 : settings();
}

void capture_by_python(const gpu::PathUse& use, const rotcell::cuda::Request& request,
                       RotcellRun run, void* context) {
  const RotcellCapture capture = capture_of_python.load();
  if (capture == nullptr) return;
  const RotcellPathUse told = as_told(use, request);
  if (const char* error = capture(&told, run, context)) rotcell::ops::fail(error);
}

constexpr gpu::GraphSupport kSupportOfPython{ask_settings, capture_by_python};

}  // namespace

ROTCELL_EXPORTED int rotcell_cuda_has_kernels(int device) {
  return rotcell::cuda::has_kernels(device) ? 1 : 0;
}

ROTCELL_EXPORTED int rotcell_cuda_device(int device, int64_t properties[7]) {
  try {
    const rotcell::cuda::DeviceProperties found = rotcell::cuda::device_properties(device);
    properties[0] = found.compute_capability;
    properties[1] = found.multiprocessors;
    properties[2] = found.shared_bytes_per_block;
    properties[3] = found.shared_bytes_per_multiprocessor;
    properties[4] = found.threads_per_multiprocessor;
    properties[5] = found.cooperative_launch ? 1 : 0;
    properties[6] = found.largest_cluster;
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

ROTCELL_EXPORTED int rotcell_cuda_force_path(int path) {
  if (path != -1 && !is_path(path)) return -1;
  gpu::force_path(path < 0 ? std::nullopt : std::optional(static_cast<Path>(path)));
  return 0;
}

ROTCELL_EXPORTED int rotcell_cuda_force_path_of_thread(int path) {
  if (path != -1 && !is_path(path)) return -1;
  gpu::force_path_of_thread(path < 0 ? std::nullopt : std::optional(static_cast<Path>(path)));
  return 0;
}

ROTCELL_EXPORTED int rotcell_cuda_allow_path(int path, int allowed) {
  if (!is_path(path)) return -1;
  gpu::allow_path(static_cast<Path>(path), allowed != 0);
  return 0;
}

ROTCELL_EXPORTED int rotcell_cuda_switch_off(const RotcellPathUse* use) {
  const std::optional<gpu::PathUse> known = known_use(*use);
  if (!known) return -1;
  gpu::switch_off(*known);
  return 0;
}

ROTCELL_EXPORTED int rotcell_cuda_is_switched_off(const RotcellPathUse* use) {
  const std::optional<gpu::PathUse> known = known_use(*use);
  if (!known) return -1;
  return gpu::is_switched_off(*known) ? 1 : 0;
}

ROTCELL_EXPORTED void rotcell_cuda_set_check(RotcellCheck check) {
  check_of_python.store(check);
  gpu::set_check(check == nullptr ? nullptr : ask_python);
}

ROTCELL_EXPORTED void rotcell_cuda_forget_checks() { gpu::forget_checks(); }

ROTCELL_EXPORTED void rotcell_cuda_set_graphs(RotcellProductSettings settings,
                                              RotcellCapture capture) {
  settings_of_python.store(settings);
  capture_of_python.store(capture);
  gpu::set_graph_support(settings == nullptr ? nullptr : &kSupportOfPython);
}

ROTCELL_EXPORTED void rotcell_cuda_graph_statistics(int64_t numbers[4]) {
  const gpu::GraphStatistics found = gpu::graph_statistics();
  numbers[0] = found.graphs;
  numbers[1] = found.bytes;
  numbers[2] = found.captured;
  numbers[3] = found.sequences;
}
