// Python module _simt, for tests only: the CUDA ops and kernels, run by the executor on CPU
// tensors.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <string>

#include "module/cuda_plan.h"
#include "ops/cuda/current_device.h"
#include "ops/cuda/ops.h"
#include "ops/cuda/path.h"
#include "ops/registration.h"
#include "simt/control.h"
#include "simt/planted.h"

namespace rotcell::ops::gpu {
namespace {

std::atomic<bool> pretend_capture{false};

}  // namespace

DeviceScope::DeviceScope(Device) : guard_(nullptr) {}
DeviceScope::~DeviceScope() = default;

// The executor is done when a launch returns, so one stream is as good as any.
cuda::Stream current_stream(Device) { return nullptr; }
bool is_capturing(cuda::Stream) { return pretend_capture.load(); }

// Whoever reads what nobody wrote gets NaN.
Tensor empty(Sizes sizes, DType dtype, Device device) {
  Tensor tensor = Tensor::empty(sizes, dtype, device);
  tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  return tensor;
}

Tensor table_of(const Steps& steps, Device) {
  Tensor table = Tensor::empty({2, steps.count}, int64());
  int64_t* values = table.data<int64_t>();
  std::copy_n(steps.batch_sizes, steps.count, values);
  std::copy_n(steps.offsets, steps.count, values + steps.count);
  return table;
}

}  // namespace rotcell::ops::gpu

namespace {

namespace py = pybind11;
namespace gpu = rotcell::ops::gpu;
namespace ops = rotcell::ops;
namespace simt = rotcell::simt;

// While it lives, the ops on CPU tensors are the CUDA ones.
TorchLibraryHandle installed = nullptr;

template <ops::Overload overload, rotcell::CellIndex... CELLS>
void install_cells(std::integer_sequence<rotcell::CellIndex, CELLS...>) {
  const auto implement = [](const std::string& name, ops::BoxedFunction function) {
    ROTCELL_SHIM(torch_library_impl, installed, name.c_str(), function, TORCH_ABI_VERSION);
  };
  (implement(ops::forward_name(rotcell::kCells[CELLS], overload),
             ops::detail::boxed_forward<CELLS, overload, gpu::forward>),
   ...);
  (implement(ops::backward_name(rotcell::kCells[CELLS], overload),
             ops::detail::boxed_backward<CELLS, overload, gpu::backward>),
   ...);
}

void install() {
  if (installed) return;
  ROTCELL_SHIM(aoti_torch_library_init_impl, "rotcell", "CPU", __FILE__, __LINE__, &installed);
  const std::make_integer_sequence<rotcell::CellIndex, rotcell::Cells::kCount> cells;
  install_cells<ops::Overload::kPlain>(cells);
  install_cells<ops::Overload::kExtended>(cells);
}

void uninstall() {
  if (!installed) return;
  ROTCELL_SHIM(aoti_torch_delete_library_object, installed);
  installed = nullptr;
}

void set_order(const std::string& order, uint64_t seed) {
  if (order == "forward") {
    simt::set_order(simt::Order::forward, seed);
  } else if (order == "reverse") {
    simt::set_order(simt::Order::reverse, seed);
  } else if (order == "random") {
    simt::set_order(simt::Order::random, seed);
  } else {
    throw py::value_error("order must be forward, reverse or random, got '" + order + "'");
  }
}

void plant_fault(const std::string& kernel, const std::string& fault) {
  if (fault == "fails to launch") {
    simt::plant_fault(kernel, simt::Fault::fails_to_launch);
  } else if (fault == "does nothing") {
    simt::plant_fault(kernel, simt::Fault::does_nothing);
  } else if (fault == "hangs") {
    simt::plant_fault(kernel, simt::Fault::hangs);
  } else {
    throw py::value_error("fault must be 'fails to launch', 'does nothing' or 'hangs', got '" +
                          fault + "'");
  }
}

}  // namespace

PYBIND11_MODULE(_simt, m) {
  m.doc() = "The CUDA ops and kernels of rotcell, run on a CPU.";
  m.def("install", install, "Make the CUDA ops the ones for CPU tensors.");
  m.def("remove", uninstall, "Bring the CPU's own ops back.");
  m.def(
      "force_path",
      [](const std::optional<std::string>& path) {
        using rotcell::module::path_argument;
        gpu::force_path(path ? std::optional(path_argument(*path)) : std::nullopt);
      },
      py::arg("path"), "Take this path always, or with None the fastest again.");
  m.def("set_order", set_order, py::arg("order"), py::arg("seed") = 0,
        "In which order threads run: forward, reverse or random.");
  m.def(
      "pose_as",
      [](const py::object& device) { simt::pose_as(rotcell::module::device_argument(device)); },
      py::arg("device"), "The GPU to be, by its name or a dict of its properties.");
  m.def(
      "pretend_capture", [](bool capturing) { gpu::pretend_capture.store(capturing); },
      py::arg("capturing"), "Whether the ops are told that their work goes into a CUDA graph.");
  m.def("plant_fault", plant_fault, py::arg("kernel"), py::arg("fault"),
        "Launches of kernels whose names begin so have this fault, until remove_faults.");
  m.def("remove_faults", simt::remove_faults);
  m.def("launches", simt::launches_by_kernel, "Launches since reset_launches, by kernel name.");
  m.def("reset_launches", simt::reset_launches);
}
