// The ops of all cells on a GPU: from tensors to a layer call of the CUDA runtime, and back.
#include "torch/cuda/ops.h"

#include "cuda/runtime/layer.h"
#include "torch/cuda/current_device.h"
#include "torch/cuda/matrix_library.h"
#include "torch/sequence.h"

namespace rotcell::ops::gpu {
namespace {

// The tensors of a layer as the kernels want them; those of the caller where they are so already.
struct LayerTensors {
  explicit LayerTensors(const LayerArguments& a)
      : x(a.x.borrow()),
        h0(a.h0.as_contiguous()),
        w_ih(a.w_ih.borrow()),
        w_hh(a.w_hh.as_contiguous()),
        w_hr(contiguous(a.w_hr)),
        resets(contiguous(a.hooks.resets)),
        recurrent_dropout(contiguous(a.hooks.recurrent_dropout)),
        zoneout_h(contiguous(a.hooks.zoneout_h)),
        zoneout_c(contiguous(a.hooks.zoneout_c)) {}

  cuda::Layer layer(CellIndex cell, const LayerSizes& sizes, const Sequence& sequence,
                    Activations activations) const {
    return {.index = cell,
            .device = x.device().index,
            .number = number_of(x.dtype()),
            .sizes = sizes,
            .sequence = sequence,
            .activations = activations,
            .hooks = {.resets = resets.const_data<bool>(),
                      .recurrent_dropout = recurrent_dropout.const_data<void>(),
                      .zoneout_h = keep(zoneout_h),
                      .zoneout_c = keep(zoneout_c)},
            .x = matrix_of(x),
            .h0 = matrix_of(h0),
            .w_ih = matrix_of(w_ih),
            .w_hh = matrix_of(w_hh),
            .w_hr = matrix_of(w_hr)};
  }

 private:
  static Tensor contiguous(const Tensor& tensor) {
    return tensor ? tensor.as_contiguous() : Tensor();
  }
  static cuda::ZoneoutKeepOfTokens keep(const Tensor& tensor) {
    if (!tensor) return {};
    return {tensor.raw_const_data(), tensor.size(0) == 1 ? 0 : tensor.size(1)};
  }

  Tensor x, h0, w_ih, w_hh, w_hr, resets, recurrent_dropout, zoneout_h, zoneout_c;
};

void check_device(const char* name, const Tensor& tensor, Device device) {
  // A kernel would read what is not there.
  if (tensor && tensor.device() != device) {
    fail("expected ", name, " on ", device_name(device), ", as x, got ",
         device_name(tensor.device()));
  }
}

// The gradient of a last state, which becomes that of the first.
Tensor running_gradient(const Tensor& of_last, const Tensor& first, DType dtype) {
  return of_last ? of_last.copied(dtype)
                 : Tensor::zeros({first.size(0), first.size(1)}, dtype, first.device());
}

}  // namespace

ForwardResult forward(CellIndex index, const ForwardArguments& a) {
  const CellDescription& cell = kCells[index];
  const LayerSizes sizes = check_arguments(cell, a);
  const Device device = a.x.device();
  const DeviceScope scope(device);
  const DType type = a.x.dtype();
  const Sequence sequence = sequence_of(a.batch_sizes, sizes.tokens, sizes.batch, a.reverse);
  const LayerTensors tensors(a);
  const Keep keep = a.save           ? Keep::kForBackward
                    : a.return_cells ? Keep::kCellStates
                                     : Keep::kNothing;
  const auto of_tokens = [&](bool needed, int64_t width) {
    return needed ? empty({sizes.tokens, width}, type, device) : Tensor::empty({0}, type, device);
  };
  ForwardResult result;
  result.out = of_tokens(true, sizes.outputs);
  result.h_n = a.h0.copied();
  result.gates = of_tokens(a.save, sizes.gate_rows);
  if (cell.has_cell_state) {
    result.c_n = a.c0.copied(compute_type(type));
    result.cells = of_tokens(keep != Keep::kNothing, sizes.hidden);
  }
  cuda::forward({tensors.layer(index, sizes, sequence, check_functions(a)),
                 /*b_ih=*/matrix_of(a.b_ih),
                 /*b_hh=*/matrix_of(a.b_hh),
                 /*keep=*/keep,
                 /*h=*/matrix_of(result.h_n),
                 /*c=*/matrix_of(result.c_n),
                 /*out=*/matrix_of(result.out),
                 /*gates=*/a.save ? matrix_of(result.gates) : cuda::Matrix(),
                 /*cells=*/keep == Keep::kNothing ? cuda::Matrix() : matrix_of(result.cells)});
  result.c_n = owned_as(std::move(result.c_n), type);
  return result;
}

BackwardResult backward(CellIndex index, const BackwardArguments& a) {
  const CellDescription& cell = kCells[index];
  const LayerSizes sizes = check_arguments(cell, a, Saved::kAsStored);
  const Device device = a.x.device();
  check_device("gates", a.gates, device);
  check_device("cells", a.cells, device);
  const DeviceScope scope(device);
  const DType type = a.x.dtype(), wide = compute_type(type);
  const Sequence sequence = sequence_of(a.batch_sizes, sizes.tokens, sizes.batch, a.reverse);
  const LayerTensors tensors(a);
  const Tensor c0 = a.c0.as_contiguous(wide), out = a.out.as_contiguous();
  const Tensor gates = a.gates.as_contiguous(), cells = a.cells.as_contiguous(type);
  const Tensor grad_out = a.grad_out.as_contiguous(type);
  const Tensor grad_cells = a.grad_cells.as_contiguous(wide);
  BackwardResult grad;
  grad.h0 = running_gradient(a.grad_h_n, a.h0, type);
  if (cell.has_cell_state) grad.c0 = running_gradient(a.grad_c_n, a.c0, wide);
  if (a.needs_grad_x) grad.x = empty({sizes.tokens, sizes.inputs}, type, device);
  if (a.needs_grad_weights) {
    grad.w_ih = empty({sizes.gate_rows, sizes.inputs}, type, device);
    grad.w_hh = empty({sizes.gate_rows, sizes.outputs}, type, device);
    grad.bias = empty({sizes.gate_rows}, type, device);
    if (a.w_hr) grad.w_hr = empty({sizes.outputs, sizes.hidden}, type, device);
  }
  cuda::backward({tensors.layer(index, sizes, sequence, check_functions(a)),
                  /*c0=*/matrix_of(c0),
                  /*out=*/matrix_of(out),
                  /*gates=*/matrix_of(gates),
                  /*cells=*/matrix_of(cells),
                  /*grad_out=*/matrix_of(grad_out),
                  /*grad_cells=*/matrix_of(grad_cells),
                  /*grad_h=*/matrix_of(grad.h0),
                  /*grad_c=*/matrix_of(grad.c0),
                  /*grad_x=*/matrix_of(grad.x),
                  /*grad_w_ih=*/matrix_of(grad.w_ih),
                  /*grad_w_hh=*/matrix_of(grad.w_hh),
                  /*grad_bias=*/matrix_of(grad.bias),
                  /*grad_w_hr=*/matrix_of(grad.w_hr)});
  const auto finish = [&](Tensor& tensor) {
    tensor = tensor ? owned_as(std::move(tensor), type) : Tensor::empty({0}, type, device);
  };
  for (Tensor* tensor : {&grad.x, &grad.h0, &grad.w_ih, &grad.w_hh, &grad.bias}) finish(*tensor);
  if (cell.has_cell_state) finish(grad.c0);
  if (cell.can_project) finish(grad.w_hr);
  return grad;
}

}  // namespace rotcell::ops::gpu
