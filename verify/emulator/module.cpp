// Python module _emulator, for tests only: the CUDA ops and kernels, run by the emulator on CPU
// tensors.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "cuda/runtime/path.h"
#include "cuda/runtime/plan.h"
#include "emulator/control.h"
#include "emulator/planted.h"
#include "torch/cuda/current_device.h"
#include "torch/cuda/ops.h"
#include "torch/registration.h"

namespace rotcell::ops::gpu {
DeviceScope::DeviceScope(Device) : guard_(nullptr) {}
DeviceScope::~DeviceScope() = default;

Device device_at(int) { return cpu_device(); }

// The emulator is done when a launch returns, so one stream is as good as any.
cuda::Stream current_stream(int) { return nullptr; }

// Reading uninitialized memory gives NaN.
Tensor empty(Sizes sizes, DType dtype, Device device) {
  Tensor tensor = Tensor::empty(sizes, dtype, device);
  tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  return tensor;
}

Tensor copied_to_device(std::span<const int64_t> values, Device device) {
  Tensor copy = Tensor::empty({static_cast<int64_t>(values.size())}, int64(), device);
  std::copy(values.begin(), values.end(), copy.data<int64_t>());
  return copy;
}

}  // namespace rotcell::ops::gpu

namespace {

namespace py = pybind11;
namespace gpu = rotcell::ops::gpu;
namespace ops = rotcell::ops;
namespace cuda = rotcell::cuda;
namespace emulator = rotcell::emulator;

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
    emulator::set_order(emulator::Order::forward, seed);
  } else if (order == "reverse") {
    emulator::set_order(emulator::Order::reverse, seed);
  } else if (order == "random") {
    emulator::set_order(emulator::Order::random, seed);
  } else {
    throw py::value_error("order must be forward, reverse or random, got '" + order + "'");
  }
}

void plant_fault(const std::string& kernel, const std::string& fault) {
  if (fault == "fails to launch") {
    emulator::plant_fault(kernel, emulator::Fault::fails_to_launch);
  } else if (fault == "does nothing") {
    emulator::plant_fault(kernel, emulator::Fault::does_nothing);
  } else if (fault == "hangs") {
    emulator::plant_fault(kernel, emulator::Fault::hangs);
  } else {
    throw py::value_error("fault must be 'fails to launch', 'does nothing' or 'hangs', got '" +
                          fault + "'");
  }
}

}  // namespace

PYBIND11_MODULE(_emulator, m) {
  m.doc() = "The CUDA ops and kernels of rotcell, run on a CPU.";
  m.def("install", install, "Make the CUDA ops the ones for CPU tensors.");
  m.def("remove", uninstall, "Bring the CPU's own ops back.");
  m.def(
      "force_path",
      [](const std::optional<std::string>& path) {
        const auto found = path ? cuda::path_named(*path) : std::nullopt;
        if (path && !found) {
          throw py::value_error("path must be stepwise, resident, cooperative or cluster, got '" +
                                *path + "'");
        }
        cuda::force_path(found);
      },
      py::arg("path"), "Take this path always, or with None the fastest again.");
  m.def("set_order", set_order, py::arg("order"), py::arg("seed") = 0,
        "In which order threads run: forward, reverse or random.");
  m.def(
      "pose_as",
      [](const py::dict& device) {
#define ROTCELL_PROPERTY(type, name) device[#name].cast<type>(),
        emulator::pose_as({ROTCELL_DEVICE_PROPERTIES(ROTCELL_PROPERTY)});
#undef ROTCELL_PROPERTY
      },
      py::arg("device"), "The GPU to be, by its properties.");
  m.def("pretend_capture", emulator::pretend_capture, py::arg("capturing"),
        "Whether is_capturing() reports that a CUDA graph is being captured.");
  m.def("plant_fault", plant_fault, py::arg("kernel"), py::arg("fault"),
        "Launches of kernels whose names begin so have this fault, until remove_faults.");
  m.def("remove_faults", emulator::remove_faults);
  m.def("launches", emulator::launches_by_kernel, "Launches since reset_launches, by kernel name.");
  m.def("reset_launches", emulator::reset_launches);
}
