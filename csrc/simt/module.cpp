// Python module _simt, for tests only: the CUDA ops and kernels, run by the executor on CPU
// tensors.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "module/cuda_plan.h"
#include "ops/cuda/current_device.h"
#include "ops/cuda/ops.h"
#include "ops/cuda/path.h"
#include "ops/cuda/stream_graph.h"
#include "ops/registration.h"
#include "simt/control.h"
#include "simt/planted.h"
#include "simt/recording.h"

namespace rotcell::ops::gpu {
namespace {

std::atomic<bool> pretend_capture{false};
std::atomic<bool> no_graphs{false};
std::atomic<int> graph_milliseconds{0};
thread_local cuda::Stream stream_of_thread = nullptr;

void take_time() {
  std::this_thread::sleep_for(std::chrono::milliseconds(graph_milliseconds.load()));
}

// A matrix at an address, as a graph knows it.
struct Matrix {
  void* data;
  int64_t sizes[2], strides[2];
  DType dtype;

  explicit Matrix(const Tensor& tensor)
      : data(tensor.raw_data()),
        sizes{tensor.size(0), tensor.size(1)},
        strides{tensor.stride(0), tensor.stride(1)},
        dtype(tensor.dtype()) {}

  Tensor tensor() const {
    const Device device = cpu_device();
    AtenTensorHandle handle;
    ROTCELL_SHIM(aoti_torch_create_tensor_from_blob, data, 2, sizes, strides, 0, dtype, device.type,
                 device.index, &handle);
    return Tensor(handle);
  }
};

}  // namespace

DeviceScope::DeviceScope(Device) : guard_(nullptr) {}
DeviceScope::~DeviceScope() = default;

// The executor is done when a launch returns, so one stream is as good as any, and nobody has to
// wait for another. But one of them may be captured.
cuda::Stream current_stream(Device) { return stream_of_thread; }
bool is_capturing(cuda::Stream stream) {
  return pretend_capture.load() || simt::is_recording(stream);
}

cuda::Stream make_stream() { return reinterpret_cast<cuda::Stream>(new char); }

StreamScope::StreamScope(Device, cuda::Stream stream) : guard_(stream_of_thread) {
  stream_of_thread = stream;
}
StreamScope::~StreamScope() { stream_of_thread = static_cast<cuda::Stream>(guard_); }

Event::Event() : event_(nullptr) {}
void Event::record(cuda::Stream) {}
void Event::hold_back(cuda::Stream) const {}

StreamGraph::StreamGraph(cuda::Stream stream, const std::function<void()>& body) {
  if (no_graphs.load()) fail("CUDA capture failed: a planted fault");
  simt::begin_recording(stream);
  take_time();
  try {
    body();
  } catch (...) {
    simt::end_recording(stream);
    throw;
  }
  graph_ = new simt::Recording(simt::end_recording(stream));
}
StreamGraph::~StreamGraph() { delete static_cast<simt::Recording*>(graph_); }
void StreamGraph::launch(cuda::Stream stream) const {
  for (const auto& work : *static_cast<const simt::Recording*>(graph_)) {
    simt::run_in_order(stream, work);
  }
}

void step_product(const Tensor& out, const Tensor& a, const Tensor& b) {
  if (!simt::is_recording(stream_of_thread)) return mm_out(out, a, b);
  simt::run_in_order(stream_of_thread, [to = Matrix(out), left = Matrix(a), right = Matrix(b)] {
    mm_out(to.tensor(), left.tensor(), right.tensor());
  });
}

// Whoever reads what nobody wrote gets NaN.
Tensor empty(Sizes sizes, DType dtype, Device device) {
  if (stream_of_thread != nullptr) take_time();
  check(!simt::is_recording(stream_of_thread), "memory is allocated while a graph is captured");
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
namespace cuda = rotcell::cuda;
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
  m.def(
      "refuse_graphs", [](bool refuse) { gpu::no_graphs.store(refuse); }, py::arg("refuse"),
      "Whether the capture of a stream fails.");
  m.def(
      "slow_graphs", [](int milliseconds) { gpu::graph_milliseconds.store(milliseconds); },
      py::arg("milliseconds"),
      "So long a capture takes, and each allocation for one: threads come upon each other.");
  m.def(
      "record",
      [](const py::function& body) {
        const cuda::Stream stream = gpu::make_stream();
        const gpu::StreamScope scope(ops::cpu_device(), stream);
        const gpu::StreamGraph graph(stream, [&] { body(); });
      },
      py::arg("body"), "Calls it while its stream is captured, and forgets the graph.");
  m.def("plant_fault", plant_fault, py::arg("kernel"), py::arg("fault"),
        "Launches of kernels whose names begin so have this fault, until remove_faults.");
  m.def("remove_faults", simt::remove_faults);
  m.def("launches", simt::launches_by_kernel, "Launches since reset_launches, by kernel name.");
  m.def("reset_launches", simt::reset_launches);
}
