// The ops of all cells on the CPU: one direction of one layer over a whole sequence.
#include <optional>

#include "cpu/kernels.h"
#include "ops/arguments.h"
#include "ops/buffers.h"
#include "ops/input_products.h"
#include "ops/plan.h"
#include "ops/registration.h"
#include "ops/row_bias.h"
#include "ops/sequence.h"
#include "ops/state_changes.h"
#include "ops/weight_gradients.h"

namespace rotcell::ops {
namespace {

Tensor nothing(DType dtype) { return Tensor::empty({0}, dtype); }

cpu::Projection projection_of(const LayerArguments& a) {
  return a.w_hr ? cpu::Projection::kPresent : cpu::Projection::kNone;
}

Extras extras_of(const LayerArguments& a, bool memory_for_its_own_sake) {
  return a.changes.what().any() || memory_for_its_own_sake ? Extras::kSome : Extras::kNone;
}

template <class T>
ForwardResult forward(CellIndex index, const LayerSizes& sizes, const ForwardArguments& a) {
  const CellDescription& cell = kCells[index];
  const cpu::CellKernels<T>& kernels = cpu::kernels<T>().cells[index];
  const DType type = dtype_of<T>();
  const Sequence sequence(a.batch_sizes, sizes.tokens, sizes.batch, a.reverse);
  const bool keeps_cells = a.save || a.return_cells;
  const CallPlan plan = plan_call<T>(sizes, sequence.steps().lengths, projection_of(a),
                                     extras_of(a, a.return_cells && !a.save));
  const AloneWhereCrowded alone(plan.threads);
  const Tensor h0 = a.h0.as_contiguous(type), c0 = a.c0.as_contiguous(type);
  const Tensor w_ih = a.w_ih.as_contiguous(type), w_hh = a.w_hh.as_contiguous(type);
  const Tensor b_ih = a.b_ih.as_contiguous(type), b_hh = a.b_hh.as_contiguous(type);
  const Tensor w_hr = a.w_hr.as_contiguous(type), row_bias = a.row_bias.as_contiguous(type);
  const cpu::BiasOf bias_of = row_bias ? cpu::BiasOf::kRow : cpu::BiasOf::kLayer;
  ForwardResult result;
  result.out = Tensor::empty({sizes.tokens, sizes.outputs}, type);
  if (sequence.steps().count == 0) {
    result.h_n = h0.copied();
    if (cell.has_memory) result.c_n = c0.copied();
  } else {
    result.h_n = Tensor::empty({sizes.batch, sizes.outputs}, type);
    // The running memory, unless that of every token is kept.
    if (cell.has_memory) {
      result.c_n = keeps_cells ? Tensor::empty({sizes.batch, sizes.hidden}, type) : c0.copied();
    }
  }
  const int64_t chunk_tokens = forward_chunk_tokens(plan, sizes, a.x.dtype() != type);
  result.gates = a.save ? empty_buffer<T>({sizes.tokens, sizes.gate_rows}) : nothing(type);
  if (cell.has_memory) {
    result.cells = keeps_cells ? empty_buffer<T>({sizes.tokens, sizes.hidden}) : nothing(type);
  }
  Tensor scratch_gates, operands, unprojected;
  if (!a.save && !plan.rows_in_lanes()) {
    const int64_t tokens = plan.by_step() ? 0 : std::min(sizes.tokens, chunk_tokens);
    scratch_gates = Tensor::empty({std::max(sizes.batch, tokens), sizes.gate_rows}, type);
  }
  if (cell.stages > 1) operands = Tensor::empty({sizes.batch, sizes.hidden}, type);
  if (plan.projects()) unprojected = Tensor::empty({sizes.batch, sizes.hidden}, type);
  InputProducts<T> inputs(plan, sizes, a.x, w_ih, b_ih, b_hh, row_bias);
  const cpu::RecurrentWeights<T> recurrent{.w_ih = w_ih.const_data<T>(),
                                           .w_hh = w_hh.const_data<T>(),
                                           .hidden = sizes.hidden,
                                           .inputs = plan.by_step() ? sizes.inputs : 0,
                                           .outputs = sizes.outputs};
  Tensor weights;
  if (plan.rows_in_lanes()) {
    weights = packed_forward(kernels.row_layout, recurrent, bias_of, inputs.bias());
  } else if (plan.uses_packed_weights()) {
    weights = packed(kernels.forward_weights, recurrent, plan.threads.units());
  }
  const Tensor projection = packed(cpu::kernels<T>().forward_weights, w_hr);
  const ForwardChanges<T> changes(cell, sizes, a.changes);
  const cpu::Keep keep = a.save        ? cpu::Keep::kForBackward
                         : keeps_cells ? cpu::Keep::kMemory
                                       : cpu::Keep::kNothing;
  cpu::Forward<T> p{
      .call = plan.call(sizes, sequence.steps(), check_functions(a), keep, bias_of),
      .chunk = {},
      .changes = changes.pointers(),
      .weights = weights.const_data<T>(),
      .w_hh = w_hh.const_data<T>(),
      .projection = projection.const_data<T>(),
      .x = nullptr,
      .bias = inputs.bias(),
      .h0 = h0.const_data<T>(),
      .c0 = c0.const_data<T>(),
      .gates = (a.save ? result.gates : scratch_gates).template data<T>(),
      .operands = operands.data<T>(),
      .out = result.out.template data<T>(),
      .cells = (keeps_cells ? result.cells : result.c_n).template data<T>(),
      .unprojected = unprojected.data<T>(),
      .h_n = result.h_n.template data<T>(),
      .c_n = result.c_n.template data<T>(),
  };
  for (const Chunk& chunk : sequence.chunks(chunk_tokens)) {
    p.chunk = chunk;
    if (plan.by_step()) {
      p.x = inputs.x(chunk);
    } else {
      T* gates = p.gates + (a.save ? chunk.first_token * sizes.gate_rows : 0);
      inputs.write(chunk, gates);
      if (row_bias) {
        add_row_bias(sequence.steps(), chunk, sizes.gate_rows, row_bias.const_data<T>(), gates);
      }
    }
    const auto run = plan.rows_in_lanes() ? kernels.row_layout.forward : kernels.forward;
    plan.threads.run(sequence.steps(), chunk, [&](const cpu::Work& work) { run(p, work); });
  }
  const DType storage = a.x.dtype();
  result.out = owned_as(std::move(result.out), storage);
  result.h_n = owned_as(std::move(result.h_n), storage);
  result.c_n = owned_as(std::move(result.c_n), storage);
  return result;
}

template <class T>
BackwardResult backward(CellIndex index, const LayerSizes& sizes, const BackwardArguments& a) {
  const CellDescription& cell = kCells[index];
  const cpu::CellKernels<T>& kernels = cpu::kernels<T>().cells[index];
  const DType type = dtype_of<T>();
  const Sequence sequence(a.batch_sizes, sizes.tokens, sizes.batch, a.reverse);
  const CallPlan plan = plan_call<T>(sizes, sequence.steps().lengths, projection_of(a),
                                     extras_of(a, a.grad_cells.defined()));
  const AloneWhereCrowded alone(plan.threads);
  const Tensor grad_out = a.grad_out.as_contiguous(type), x = a.x.as_contiguous(type);
  const Tensor h0 = a.h0.as_contiguous(type), c0 = a.c0.as_contiguous(type);
  const Tensor w_ih = a.w_ih.as_contiguous(type), w_hh = a.w_hh.as_contiguous(type);
  const Tensor w_hr = a.w_hr.as_contiguous(type), out = a.out.as_contiguous(type);
  const Tensor gates = a.gates.as_contiguous(type), cells = a.cells.as_contiguous(type);
  const Tensor grad_cells = a.grad_cells.as_contiguous(type);
  // The gradients of the last states become, step by step, those of the first.
  BackwardResult grad;
  grad.h0 =
      a.grad_h_n ? a.grad_h_n.copied(type) : Tensor::zeros({sizes.batch, sizes.outputs}, type);
  if (cell.has_memory) {
    grad.c0 =
        a.grad_c_n ? a.grad_c_n.copied(type) : Tensor::zeros({sizes.batch, sizes.hidden}, type);
  }
  if (a.has_row_bias) grad.row_bias = Tensor::zeros({sizes.batch, sizes.gate_rows}, type);
  const int64_t chunk_tokens = backward_chunk_tokens(plan, sizes);
  Tensor grad_gates, operands, grad_projected, unprojected, grad_unprojected;
  if (!plan.rows_in_lanes()) {
    grad_gates = Tensor::empty({chunk_tokens, sizes.gate_rows}, type);
    if (cell.stages > 1) operands = Tensor::empty({chunk_tokens, sizes.hidden}, type);
  }
  if (plan.projects()) {
    grad_projected = Tensor::empty({sizes.tokens, sizes.outputs}, type);
    unprojected = Tensor::empty({sizes.tokens, sizes.hidden}, type);
    grad_unprojected = Tensor::empty({sizes.batch, sizes.hidden}, type);
  }
  const bool input_in_kernel = plan.rows_in_lanes() && a.needs_grad_x;
  const cpu::RecurrentWeights<T> unpacked{.w_ih = w_ih.const_data<T>(),
                                          .w_hh = w_hh.const_data<T>(),
                                          .hidden = sizes.hidden,
                                          .inputs = input_in_kernel ? sizes.inputs : 0,
                                          .outputs = sizes.outputs};
  Tensor recurrent;
  if (plan.rows_in_lanes()) {
    recurrent = packed_backward(kernels.row_layout, unpacked);
  } else if (plan.uses_packed_weights()) {
    recurrent = packed(kernels.backward_weights, unpacked, plan.threads.units());
  }
  const Tensor projection = packed(cpu::kernels<T>().backward_weights, w_hr);
  std::optional<InputGradient<T>> input;
  if (a.needs_grad_x) input.emplace(plan, sizes, w_ih);
  const bool input_by_step = input && plan.by_step();
  std::optional<WeightGradients<T>> weights;
  std::optional<PartialWeightGradients<T>> partial;
  if (a.needs_grad_weights && plan.rows_in_lanes()) {
    partial.emplace(sizes, kernels.row_layout.gradient_width(sizes.inputs, sizes.outputs),
                    plan.threads.row_threads());
  } else if (a.needs_grad_weights) {
    weights.emplace(cell, sizes, sequence, x, h0, out, chunk_tokens);
  }
  const BackwardChanges<T> changes(cell, sizes, a.changes, chunk_tokens);
  cpu::Backward<T> p{
      .call = plan.call(sizes, sequence.steps(), check_functions(a), cpu::Keep::kForBackward,
                        a.has_row_bias ? cpu::BiasOf::kRow : cpu::BiasOf::kLayer),
      .chunk = {},
      .changes = changes.pointers(),
      .input_gradient = input_by_step ? cpu::InputGradient::kByStep : cpu::InputGradient::kNotHere,
      .output_gradient = grad_out ? cpu::OutputGradient::kGiven : cpu::OutputGradient::kZero,
      .memory_gradient =
          grad_cells ? cpu::MemoryGradient::kOfEveryStep : cpu::MemoryGradient::kOfLast,
      .weight_gradient = partial ? cpu::WeightGradient::kBySlot : cpu::WeightGradient::kNotHere,
      .recurrent = recurrent.const_data<T>(),
      .w_hh = w_hh.const_data<T>(),
      .w_ih = input_by_step ? input->packed_weights() : nullptr,
      .projection = projection.const_data<T>(),
      .h0 = h0.const_data<T>(),
      .c0 = c0.const_data<T>(),
      .gates = gates.const_data<T>(),
      .cells = cells.const_data<T>(),
      .out = out.const_data<T>(),
      .grad_out = grad_out.const_data<T>(),
      .grad_cells = grad_cells.const_data<T>(),
      .x = x.const_data<T>(),
      .grad_h = grad.h0.template data<T>(),
      .grad_c = grad.c0.template data<T>(),
      .grad_gates = grad_gates.data<T>(),
      .grad_x = input_by_step ? input->data() : nullptr,
      .operands = operands.data<T>(),
      .grad_weights = partial ? partial->data() : nullptr,
      .grad_row_bias = grad.row_bias.template data<T>(),
      .grad_projected = grad_projected.data<T>(),
      .unprojected = unprojected.data<T>(),
      .grad_unprojected = grad_unprojected.data<T>(),
  };
  const std::vector<Chunk> chunks = sequence.chunks(chunk_tokens);
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
    p.chunk = *chunk;
    const auto run = plan.rows_in_lanes() ? kernels.row_layout.backward : kernels.backward;
    plan.threads.run(sequence.steps(), *chunk, [&](const cpu::Work& work) { run(p, work); });
    if (input) input->write(*chunk, p.grad_gates);
    if (a.has_row_bias && !plan.rows_in_lanes()) {
      add_row_bias_gradient(sequence.steps(), *chunk, sizes.gate_rows, grad_gates.const_data<T>(),
                            grad.row_bias.template data<T>());
    }
    if (weights) {
      weights->add(*chunk, grad_gates.narrow(0, 0, chunk->tokens),
                   operands ? operands.narrow(0, 0, chunk->tokens) : Tensor(),
                   changes.seen(chunk->tokens));
    }
  }
  const DType storage = a.x.dtype();
  const auto stored = [&](Tensor tensor) {
    return tensor ? owned_as(std::move(tensor), storage) : nothing(storage);
  };
  if (plan.projects() && weights) {
    grad.w_hr = Tensor::empty({sizes.outputs, sizes.hidden}, type);
    mm_out(grad.w_hr, grad_projected.transposed(), unprojected);
  }
  grad.x = stored(input ? input->take() : Tensor());
  grad.h0 = stored(std::move(grad.h0));
  if (cell.has_memory) grad.c0 = stored(std::move(grad.c0));
  if (weights) {
    grad.w_ih = weights->take_w_ih();
    grad.w_hh = weights->take_w_hh();
    grad.bias = weights->take_bias();
  } else if (partial) {
    grad.w_ih = Tensor::empty({sizes.gate_rows, sizes.inputs}, type);
    grad.w_hh = Tensor::empty({sizes.gate_rows, sizes.outputs}, type);
    grad.bias = Tensor::empty({sizes.gate_rows}, type);
    partial->sum_into(grad.w_ih, grad.w_hh, grad.bias);
  }
  grad.w_ih = stored(std::move(grad.w_ih));
  grad.w_hh = stored(std::move(grad.w_hh));
  grad.bias = stored(std::move(grad.bias));
  if (cell.can_project) grad.w_hr = stored(std::move(grad.w_hr));
  if (a.has_row_bias) grad.row_bias = stored(std::move(grad.row_bias));
  return grad;
}

ForwardResult cpu_forward(CellIndex cell, const ForwardArguments& a) {
  const LayerSizes sizes = check_arguments(kCells[cell], a);
  const bool in_double = a.x.dtype() == float64();
  return in_double ? forward<double>(cell, sizes, a) : forward<float>(cell, sizes, a);
}

BackwardResult cpu_backward(CellIndex cell, const BackwardArguments& a) {
  const LayerSizes sizes = check_arguments(kCells[cell], a, Saved::kAsComputed);
  const bool in_double = a.x.dtype() == float64();
  return in_double ? backward<double>(cell, sizes, a) : backward<float>(cell, sizes, a);
}

const AtLoad registration([] {
  Library library = Library::that_defines();
  for (const CellDescription& cell : kCells) {
    for (const Overload overload : {Overload::kPlain, Overload::kExtended, Overload::kRowBias}) {
      library.define(forward_schema(cell, overload));
      library.define(backward_schema(cell, overload));
    }
  }
  implement_ops<cpu_forward, cpu_backward, Overload::kPlain, Overload::kExtended,
                Overload::kRowBias>("CPU");
});

}  // namespace
}  // namespace rotcell::ops
