#include "cuda/runtime/c_functions.h"

#include <exception>
#include <optional>

#include "cuda/platform/device.h"
#include "cuda/runtime/path.h"
#include "cuda/runtime/plan_functions.h"

#define ROTCELL_EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

namespace cuda = rotcell::cuda;
using cuda::Number;
using cuda::Path;

bool is_path(int path) { return path >= 0 && path <= static_cast<int>(Path::kCluster); }

std::optional<Path> as_path(int path) {
  return path < 0 ? std::nullopt : std::optional(static_cast<Path>(path));
}

bool is_known(int cell, int number) {
  return cell >= 0 && cell < rotcell::Cells::kCount && number >= 0 &&
         number <= static_cast<int>(Number::kBFloat16);
}

}  // namespace

ROTCELL_EXPORTED int rotcell_cuda_has_kernels(int device) {
  return cuda::has_kernels(device) ? 1 : 0;
}

ROTCELL_EXPORTED int rotcell_cuda_device(int device, int64_t properties[]) {
  try {
    cuda::write_properties(cuda::device_properties(device), properties);
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

ROTCELL_EXPORTED int rotcell_cuda_force_path(int path) {
  if (path != -1 && !is_path(path)) return -1;
  cuda::force_path(as_path(path));
  return 0;
}

ROTCELL_EXPORTED int rotcell_cuda_force_path_of_thread(int path) {
  if (path != -1 && !is_path(path)) return -1;
  cuda::force_path_of_thread(as_path(path));
  return 0;
}

ROTCELL_EXPORTED int rotcell_cuda_allow_path(int path, int allowed) {
  if (!is_path(path)) return -1;
  cuda::allow_path(static_cast<Path>(path), allowed != 0);
  return 0;
}

ROTCELL_EXPORTED int rotcell_cuda_switch_off(int device, int cell, int number, int what) {
  if (!is_known(cell, number) || what < 0 || what >= cuda::kSwitches) return -1;
  cuda::switch_off(device, cell, static_cast<Number>(number), static_cast<cuda::Switch>(what));
  return 0;
}

ROTCELL_EXPORTED int rotcell_cuda_can_run(int device, int cell, int number, int projection,
                                          int state_hooks) {
  if (!is_known(cell, number)) return -1;
  return cuda::can_run(device, cell, static_cast<Number>(number), projection != 0, state_hooks != 0)
             ? 1
             : 0;
}

ROTCELL_EXPORTED void rotcell_cuda_switch_on_all() { cuda::switch_on_all(); }
