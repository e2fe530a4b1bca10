// The ops of all cells on the CPU: from tensors to a layer call of the CPU runtime, and back.
#include "cpu/runtime/buffer.h"
#include "cpu/runtime/layer.h"
#include "torch/arguments.h"
#include "torch/registration.h"
#include "torch/sequence.h"

namespace rotcell::ops {

template <>
DType dtype_of<cpu::BFloat16>() {
  return bfloat16();
}

namespace {

Tensor nothing(DType dtype) { return Tensor::empty({0}, dtype); }

// For what a call keeps of every token: large, and fresh memory each time.
template <class T>
Tensor empty_of_tokens(int64_t tokens, int64_t width) {
  Tensor tensor = Tensor::empty({tokens, width}, dtype_of<T>());
  cpu::prefer_huge_pages(tensor.raw_data(), tensor.bytes());
  return tensor;
}

cpu::Storage storage_of(DType dtype) {
  if (dtype == float64()) return cpu::Storage::kFloat64;
  if (dtype == float16()) return cpu::Storage::kFloat16;
  return dtype == bfloat16() ? cpu::Storage::kBFloat16 : cpu::Storage::kFloat32;
}

// The tensors of a layer, contiguous and of type T; those of the caller where they are so already.
template <class T>
struct LayerTensors {
  using Sum = cpu::MathType<T>;

  explicit LayerTensors(const LayerArguments& a)
      : h0(a.h0.as_contiguous(dtype_of<T>())),
        c0(a.c0.as_contiguous(dtype_of<T>())),
        w_ih(a.w_ih.as_contiguous(dtype_of<T>())),
        w_hh(a.w_hh.as_contiguous(dtype_of<T>())),
        w_hr(a.w_hr.as_contiguous(dtype_of<T>())),
        b_ih(a.b_ih.as_contiguous(dtype_of<T>())),
        b_hh(a.b_hh.as_contiguous(dtype_of<T>())),
        resets(a.hooks.resets.as_contiguous(boolean())),
        recurrent_dropout(a.hooks.recurrent_dropout.as_contiguous(dtype_of<T>())),
        zoneout_h(a.hooks.zoneout_h.as_contiguous(dtype_of<T>())),
        zoneout_c(a.hooks.zoneout_c.as_contiguous(dtype_of<T>())) {
    for (int i = 0; i < kMostRowParameters; ++i) {
      parameters[i] = a.parameters[i].as_contiguous(dtype_of<Sum>());
    }
  }

  cpu::Layer<T> layer(CellIndex cell, const LayerSizes& sizes, const Sequence& sequence,
                      const LayerArguments& a) const {
    return {.cell = cell,
            .sizes = sizes,
            .sequence = sequence,
            .activations = check_functions(a),
            .hooks = {.resets = resets.const_data<bool>(),
                      .recurrent_dropout = recurrent_dropout.const_data<T>(),
                      .zoneout_h = keep(zoneout_h),
                      .zoneout_c = keep(zoneout_c)},
            .h0 = h0.const_data<T>(),
            .c0 = c0.const_data<T>(),
            .w_ih = w_ih.const_data<T>(),
            .w_hh = w_hh.const_data<T>(),
            .w_hr = w_hr.const_data<T>(),
            .parameters = row_parameters(kCells[cell], sizes.hidden, a)};
  }

  // Null if the math of the cell adds the biases, not a matmul.
  const T* matmul_b_ih(const CellDescription& cell) const {
    return cell.adds_biases ? nullptr : b_ih.const_data<T>();
  }
  const T* matmul_b_hh(const CellDescription& cell) const {
    return cell.adds_biases ? nullptr : b_hh.const_data<T>();
  }

 private:
  RowParameters<Sum> row_parameters(const CellDescription& cell, int64_t hidden,
                                    const LayerArguments& a) const {
    // A single unit has no angles: layers of them, however many, turn nothing.
    const int64_t layers = hidden > 1 ? layers_of(cell, a) : 0;
    RowParameters<Sum> found{.hidden = hidden, .layers = layers, .norm = a.norm};
    if (cell.adds_biases) {
      found.b_ih = b_ih.const_data<Sum>();
      found.b_hh = b_hh.const_data<Sum>();
    }
    for (int i = 0; i < cell.parameter_count; ++i) found.of[i] = parameters[i].const_data<Sum>();
    return found;
  }

  static cpu::ZoneoutKeep<T> keep(const Tensor& tensor) {
    if (!tensor) return {};
    return {tensor.const_data<T>(), tensor.size(0) == 1 ? 0 : tensor.size(1)};
  }

  Tensor h0, c0, w_ih, w_hh, w_hr, b_ih, b_hh, resets, recurrent_dropout, zoneout_h, zoneout_c;
  Tensor parameters[kMostRowParameters];
};

template <class T>
ForwardResult forward(CellIndex index, const LayerSizes& sizes, const ForwardArguments& a) {
  const CellDescription& cell = kCells[index];
  const DType type = dtype_of<T>(), storage = a.x.dtype();
  const Sequence sequence = sequence_of(a.batch_sizes, sizes.tokens, sizes.batch, a.reverse);
  const LayerTensors<T> tensors(a);
  const Tensor x = a.x.as_contiguous();
  const Tensor row_bias = a.row_bias.as_contiguous(dtype_of<cpu::MathType<T>>());
  const Keep keep = a.save           ? Keep::kForBackward
                    : a.return_cells ? Keep::kCellStates
                                     : Keep::kNothing;
  ForwardResult result;
  result.out = Tensor::empty({sizes.tokens, sizes.outputs}, type);
  result.h_n = Tensor::empty({sizes.batch, sizes.outputs}, type);
  result.gates = a.save ? empty_of_tokens<T>(sizes.tokens, sizes.gate_rows) : nothing(type);
  if (cell.has_cell_state) {
    const bool keeps_cells = keep != Keep::kNothing;
    result.c_n = Tensor::empty({sizes.batch, sizes.hidden}, type);
    result.cells = keeps_cells ? empty_of_tokens<T>(sizes.tokens, sizes.hidden) : nothing(type);
  }
  cpu::forward<T>({tensors.layer(index, sizes, sequence, a),
                   /*x=*/{x.raw_const_data(), storage_of(storage)},
                   /*b_ih=*/tensors.matmul_b_ih(cell),
                   /*b_hh=*/tensors.matmul_b_hh(cell),
                   /*row_bias=*/row_bias.const_data<cpu::MathType<T>>(),
                   /*keep=*/keep,
                   /*out=*/result.out.template data<T>(),
                   /*h_n=*/result.h_n.template data<T>(),
                   /*c_n=*/result.c_n.template data<T>(),
                   /*gates=*/result.gates.template data<T>(),
                   /*cells=*/result.cells.template data<T>()});
  result.out = owned_as(std::move(result.out), storage);
  result.h_n = owned_as(std::move(result.h_n), storage);
  result.c_n = owned_as(std::move(result.c_n), storage);
  return result;
}

// The gradient of a last state, which becomes that of the first.
template <class T>
Tensor running_gradient(const Tensor& of_last, int64_t rows, int64_t columns) {
  return of_last ? of_last.copied(dtype_of<T>()) : Tensor::zeros({rows, columns}, dtype_of<T>());
}

template <class T>
BackwardResult backward(CellIndex index, const LayerSizes& sizes, const BackwardArguments& a) {
  const CellDescription& cell = kCells[index];
  using Sum = cpu::MathType<T>;
  const DType type = dtype_of<T>(), sum_type = dtype_of<Sum>(), storage = a.x.dtype();
  const Sequence sequence = sequence_of(a.batch_sizes, sizes.tokens, sizes.batch, a.reverse);
  const LayerTensors<T> tensors(a);
  const Tensor grad_out = a.grad_out.as_contiguous(type), x = a.x.as_contiguous(type);
  const Tensor gates = a.gates.as_contiguous(type), cells = a.cells.as_contiguous(type);
  const Tensor grad_cells = a.grad_cells.as_contiguous(type), out = a.out.as_contiguous(type);
  BackwardResult grad;
  Tensor bias_of_math;  // gradient of biases that the math adds, not a matmul
  RowGradients<Sum> of_parameters;
  grad.h0 = running_gradient<Sum>(a.grad_h_n, sizes.batch, sizes.outputs);
  if (cell.has_cell_state) grad.c0 = running_gradient<Sum>(a.grad_c_n, sizes.batch, sizes.hidden);
  if (a.needs_grad_x) grad.x = Tensor::empty({sizes.tokens, sizes.inputs}, type);
  if (a.needs_grad_weights) {
    grad.w_ih = Tensor::empty({sizes.input_rows, sizes.inputs}, sum_type);
    grad.w_hh = Tensor::empty({sizes.recurrent_rows(), sizes.outputs}, sum_type);
    grad.bias = Tensor::empty({sizes.gate_rows}, sum_type);
    if (cell.adds_biases) bias_of_math = Tensor::empty({sizes.input_rows}, sum_type);
    for (int i = 0; i < cell.parameter_count; ++i) {
      grad.parameters[i] = Tensor::empty(a.parameters[i].sizes(), sum_type, cpu_device());
      of_parameters.of[i] = grad.parameters[i].template data<Sum>();
    }
    of_parameters.bias = bias_of_math.data<Sum>();
    if (a.w_hr) grad.w_hr = Tensor::empty({sizes.outputs, sizes.hidden}, sum_type);
  }
  if (a.has_row_bias) grad.row_bias = Tensor::zeros({sizes.batch, sizes.gate_rows}, sum_type);
  cpu::backward<T>({tensors.layer(index, sizes, sequence, a),
                    /*x=*/x.const_data<T>(),
                    /*out=*/out.const_data<T>(),
                    /*gates=*/gates.const_data<T>(),
                    /*cells=*/cells.const_data<T>(),
                    /*grad_out=*/grad_out.const_data<T>(),
                    /*grad_cells=*/grad_cells.const_data<T>(),
                    /*grad_h=*/grad.h0.template data<Sum>(),
                    /*grad_c=*/grad.c0.template data<Sum>(),
                    /*grad_x=*/grad.x.template data<T>(),
                    /*grad_w_ih=*/grad.w_ih.template data<Sum>(),
                    /*grad_w_hh=*/grad.w_hh.template data<Sum>(),
                    /*grad_bias=*/grad.bias.template data<Sum>(),
                    /*grad_w_hr=*/grad.w_hr.template data<Sum>(),
                    /*grad_row_bias=*/grad.row_bias.template data<Sum>(),
                    /*grad_parameters=*/of_parameters});
  if (bias_of_math) grad.bias = std::move(bias_of_math);
  const auto finish = [&](Tensor& tensor) {
    tensor = tensor ? owned_as(std::move(tensor), storage) : nothing(storage);
  };
  for (Tensor* tensor : {&grad.x, &grad.h0, &grad.w_ih, &grad.w_hh, &grad.bias}) finish(*tensor);
  if (cell.has_cell_state) finish(grad.c0);
  if (cell.can_project) finish(grad.w_hr);
  if (a.has_row_bias) finish(grad.row_bias);
  for (int i = 0; i < cell.parameter_count; ++i) finish(grad.parameters[i]);
  return grad;
}

// Whether the instruction set in use has separate kernels for layers of this type.
bool computes_in_bfloat16(CellIndex cell, DType type) {
  return type == bfloat16() && cpu::instruction_set().bfloat16_kernels && !kCells[cell].sees_rows;
}

ForwardResult cpu_forward(CellIndex cell, const ForwardArguments& a) {
  const LayerSizes sizes = check_arguments(kCells[cell], a);
  if (computes_in_bfloat16(cell, a.x.dtype())) return forward<cpu::BFloat16>(cell, sizes, a);
  const bool in_double = a.x.dtype() == float64();
  return in_double ? forward<double>(cell, sizes, a) : forward<float>(cell, sizes, a);
}

BackwardResult cpu_backward(CellIndex cell, const BackwardArguments& a) {
  const bool in_bfloat16 = computes_in_bfloat16(cell, a.x.dtype());
  const LayerSizes sizes =
      check_arguments(kCells[cell], a, in_bfloat16 ? Saved::kAsStored : Saved::kAsComputed);
  if (in_bfloat16) return backward<cpu::BFloat16>(cell, sizes, a);
  const bool in_double = a.x.dtype() == float64();
  return in_double ? backward<double>(cell, sizes, a) : backward<float>(cell, sizes, a);
}

const AtLoad registration([] {
  Library library = Library::that_defines();
  for (const CellDescription& cell : kCells) {
    for (const Overload overload : {Overload::kPlain, Overload::kExtended, Overload::kRowBias}) {
      if (cell.sees_rows && overload == Overload::kRowBias) continue;
      library.define(forward_schema(cell, overload));
      library.define(backward_schema(cell, overload));
    }
  }
  implement_ops<cpu_forward, cpu_backward, Overload::kPlain, Overload::kExtended,
                Overload::kRowBias>("CPU");
  implement_row_cell_ops<cpu_forward, cpu_backward, Overload::kPlain, Overload::kExtended>("CPU");
});

}  // namespace
}  // namespace rotcell::ops
