// Python module _simt, for tests only: the CUDA ops and kernels, run by the executor on CPU
// tensors.
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <string>

#include "ops/cuda/current_device.h"
#include "ops/cuda/ops.h"
#include "ops/cuda/path.h"
#include "ops/plan_module.h"
#include "simt/control.h"

namespace rotcell::ops::gpu {

// The executor is done when a launch returns, so one stream is as good as any.
cuda::Stream current_stream(c10::Device) { return nullptr; }
bool is_capturing(c10::Device) { return false; }

}  // namespace rotcell::ops::gpu

namespace {

namespace py = pybind11;
namespace gpu = rotcell::ops::gpu;
namespace simt = rotcell::simt;

// While it lives, the ops on CPU tensors are the CUDA ones.
std::unique_ptr<torch::Library> installed;

class NoWarnings : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void install() {
  if (installed) return;
  NoWarnings handler;  // that an op is registered a second time is the point
  const c10::WarningUtils::WarningHandlerGuard quiet(&handler);
  installed = std::make_unique<torch::Library>(torch::Library::IMPL, "rotcell",
                                               c10::DispatchKey::CPU, __FILE__, __LINE__);
  installed->impl("rot_lstm", gpu::rot_lstm);
  installed->impl("rot_lstm_backward", gpu::rot_lstm_backward);
  installed->impl("rot_gru", gpu::rot_gru);
  installed->impl("rot_gru_backward", gpu::rot_gru_backward);
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

}  // namespace

PYBIND11_MODULE(_simt, m) {
  m.doc() = "The CUDA ops and kernels of rotcell, run on a CPU.";
  m.def("install", install, "Make the CUDA ops the ones for CPU tensors.");
  m.def("remove", [] { installed.reset(); }, "Bring the CPU's own ops back.");
  m.def(
      "force_path",
      [](const std::optional<std::string>& path) {
        using rotcell::ops::path_argument;
        gpu::force_path(path ? std::optional(path_argument(*path)) : std::nullopt);
      },
      py::arg("path"), "Take this path always, or with None the fastest again.");
  m.def("set_order", set_order, py::arg("order"), py::arg("seed") = 0,
        "In which order threads run: forward, reverse or random.");
  m.def(
      "pose_as",
      [](const py::object& device) { simt::pose_as(rotcell::ops::device_argument(device)); },
      py::arg("device"), "The GPU to be, by its name or a dict of its properties.");
  m.def("launches", simt::launches_by_kernel, "Launches since reset_launches, by kernel name.");
  m.def("reset_launches", simt::reset_launches);
}
