// What PyTorch and Python see: the schema of the ops and a module that tells about this build.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/library.h>

#include "cpu/kernels.h"
#include "ops/plan_module.h"
#if defined(ROTCELL_CUDA)
#include "cuda/device.h"
#include "ops/cuda/path.h"
#endif

// One direction of one layer. Tokens are flattened, [N, .]: without batch_sizes every step has as
// many rows as h0; with batch_sizes they lie as in PackedSequence. The last outputs, `gates` and
// `cells`, are what backward needs; they are empty unless save. Gradients that are not wanted come
// back empty.
TORCH_LIBRARY(rotcell, m) {
  m.def(
      "rot_lstm(Tensor x, Tensor h0, Tensor c0, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? "
      "b_hh, "
      "Tensor? w_hr, Tensor? batch_sizes, bool reverse, bool save) "
      "-> (Tensor out, Tensor h_n, Tensor c_n, Tensor gates, Tensor cells)");
  m.def(
      "rot_lstm_backward(Tensor? grad_out, Tensor? grad_h_n, Tensor? grad_c_n, Tensor x, Tensor "
      "h0, "
      "Tensor c0, Tensor w_ih, Tensor w_hh, Tensor? w_hr, Tensor? batch_sizes, bool reverse, "
      "Tensor out, "
      "Tensor gates, Tensor cells, bool x_wanted, bool weights_wanted) "
      "-> (Tensor x, Tensor h0, Tensor c0, Tensor w_ih, Tensor w_hh, Tensor bias, Tensor w_hr)");
  m.def(
      "rot_gru(Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, "
      "Tensor? batch_sizes, bool reverse, bool save) -> (Tensor out, Tensor h_n, Tensor gates)");
  m.def(
      "rot_gru_backward(Tensor? grad_out, Tensor? grad_h_n, Tensor x, Tensor h0, Tensor w_ih, "
      "Tensor w_hh, Tensor? batch_sizes, bool reverse, Tensor out, Tensor gates, bool x_wanted, "
      "bool weights_wanted) -> (Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, Tensor bias)");
}

PYBIND11_MODULE(_C, m) {
  m.doc() = "The compiled part of rotcell; importing it registers the ops of torch.ops.rotcell.";
  m.def(
      "instruction_set",
      [] { return std::string(rotcell::cpu::instruction_set().float_kernels.instruction_set); },
      "The instruction set that the CPU kernels use.");
  m.def("instruction_sets", rotcell::cpu::instruction_set_names,
        "All instruction sets built in that this machine runs, narrowest first.");
  rotcell::ops::define_plan_functions(m);
#if defined(ROTCELL_CUDA)
  m.attr("has_cuda") = true;
  m.def(
      "cuda_device",
      [](int index) { return rotcell::ops::as_dict(rotcell::cuda::device_properties(index)); },
      "Properties of a GPU of this machine, as cuda_plan takes them.");
  m.def(
      "force_cuda_path",
      [](const std::optional<std::string>& path) {
        using rotcell::ops::path_argument;
        rotcell::ops::gpu::force_path(path ? std::optional(path_argument(*path)) : std::nullopt);
      },
      pybind11::arg("path"), "For tests: take this path always, or with None the fastest again.");
#else
  m.attr("has_cuda") = false;
#endif
}
