#include "ops/cuda/stepwise.h"

#include <vector>

#include "ops/cuda/current_device.h"
#include "ops/cuda/tensors.h"

namespace rotcell::ops::gpu {
namespace {

// The weights of one product of a step. Its rows of w_hh lie together, but that there may be rows
// of other products before the angles: those are zero here, so that one product is enough.
struct ProductWeights {
  int64_t first, rows;  // of w_hh, so columns of a matrix of gates
  Tensor weights;       // [rows, P]

  // Those columns of the gates of some tokens.
  Tensor columns(const Tensor& gates, int64_t token, int64_t tokens) const {
    const int64_t width = gates.size(1);
    return gates.view({tokens, rows}, {width, 1}, token * width + first);
  }
};

std::vector<ProductWeights> product_weights(const CellDescription& cell, const Tensor& w_hh,
                                            int64_t hidden) {
  std::vector<ProductWeights> products;
  for (int product = 0; product < cell.stages; ++product) {
    const int64_t first = cell.first_row_of_product(product, hidden);
    const int64_t own = cell.rows_of_product(product, hidden);
    const bool to_the_end = product == 0 && cell.has_angles;
    const int64_t rows = to_the_end ? w_hh.size(0) - first : own;
    Tensor weights = w_hh.narrow(0, first, rows);
    if (rows > own) {
      weights = weights.copied();
      for (int other = 1; other < cell.stages; ++other) {
        weights
            .narrow(0, cell.first_row_of_product(other, hidden) - first,
                    cell.rows_of_product(other, hidden))
            .zero_();
      }
    }
    products.push_back({first, rows, std::move(weights)});
  }
  return products;
}

cuda::Shares shares_at(const Tensor& shares, int64_t token) {
  if (!shares) return {};
  const bool same = shares.size(0) == 1;
  return {row(shares, same ? 0 : token), same ? 0 : shares.size(1)};
}

Beginnings beginnings_at(const Tensor& resets, const Steps& steps, const Step& step) {
  return resets ? beginnings(resets.const_data<bool>(), steps, step) : kNoBeginnings;
}

}  // namespace

void forward_stepwise(const Launch& launch, const Sequence& sequence, const ForwardTensors& t) {
  const CellDescription& cell = launch.cell();
  const int64_t hidden = launch.request.hidden, batch = t.h.size(0);
  const int last = cell.stages - 1;
  const bool projected = t.w_hr.defined(), keep = t.keep == cuda::Keep::kForBackward;
  const bool keep_cells = t.keep != cuda::Keep::kNothing;
  const StateChanges changes = t.changes.what();
  const auto scratch = [&](bool needed) {
    return needed ? empty({batch, hidden}, t.h.dtype(), t.h.device()) : Tensor();
  };
  const Tensor operand_rows = scratch(last > 0), unprojected_rows = scratch(projected);
  // What the first product sees of h.
  const Tensor seen_rows = changes.recurrent_dropout
                               ? empty({batch, t.h.size(1)}, t.h.dtype(), t.h.device())
                               : t.h.borrow();
  FirstRows h(t.h), seen(seen_rows), operands(operand_rows), unprojected(unprojected_rows);
  const std::vector<ProductWeights> products = product_weights(cell, t.w_hh, hidden);
  std::vector<Tensor> transposed;
  for (const ProductWeights& product : products) {
    transposed.push_back(product.weights.transposed());
  }
  const Tensor w_hr_t = projected ? t.w_hr.transposed() : Tensor();

  const Steps& steps = sequence.steps();
  for (int64_t position = 0; position < steps.count; ++position) {
    const Step step = step_at(steps, position);
    if (changes.before_products()) {
      cuda::enter(launch.request.number,
                  {.changes = changes,
                   .rows = step.rows,
                   .hidden = launch.hidden(),
                   .outputs = static_cast<int>(t.h.size(1)),
                   .begins_anew = beginnings_at(t.changes.resets, steps, step),
                   .dropout = row(t.changes.recurrent_dropout),
                   .h = row(t.h),
                   .c = row(t.c),
                   .has_memory = cell.has_memory,
                   .seen = row(seen_rows)},
                  launch.stream);
    }
    for (int stage = 0; stage < cell.stages; ++stage) {
      addmm_out(products[stage].columns(t.from_input, step.token, step.rows),
                stage == 0 ? seen(step.rows) : operands(step.rows), transposed[stage], 1.0);
      const cuda::ResultIs result_is = stage < last ? cuda::ResultIs::kOperand
                                       : projected  ? cuda::ResultIs::kUnprojected
                                                    : cuda::ResultIs::kOutput;
      const Tensor& result = stage < last ? operand_rows : projected ? unprojected_rows : t.h;
      cuda::stage(launch.request.cell, launch.request.number,
                  {.stage = stage,
                   .rows = step.rows,
                   .hidden = launch.hidden(),
                   .functions = t.functions,
                   .keep = t.keep,
                   .result_is = result_is,
                   .changes = changes,
                   .zoneout_h = shares_at(t.changes.zoneout_h, step.token),
                   .zoneout_c = shares_at(t.changes.zoneout_c, step.token),
                   .preactivations_t = row(t.from_input, step.token),
                   .h = row(stage < last ? seen_rows : t.h),
                   .c = row(t.c),
                   .result = row(result),
                   .out_t = row(t.out, step.token),
                   .gates_t = keep ? row(t.gates, step.token) : nullptr,
                   .cells_t = keep_cells ? row(t.cells, step.token) : nullptr},
                  launch.stream);
    }
    if (projected) {
      mm_out(h(step.rows), unprojected(step.rows), w_hr_t);
      t.out.narrow(0, step.token, step.rows).copy_(h(step.rows));
    }
  }
}

Tensor backward_stepwise(const Launch& launch, const Sequence& sequence, const BackwardTensors& t,
                         Tensor grad_h) {
  const CellDescription& cell = launch.cell();
  const int64_t hidden = launch.request.hidden, batch = t.h0.size(0);
  const int last = cell.stages - 1;
  const bool projected = t.w_hr.defined();
  const StateChanges changes = t.changes.what();
  const Device device = t.h0.device();
  const DType type = t.h0.dtype();
  const auto scratch = [&](bool needed) {
    return needed ? empty({batch, hidden}, type, device) : Tensor();
  };
  // Of the results of the stages before the last; of the output before its projection.
  const Tensor grad_operand_rows = scratch(last > 0), grad_unprojected_rows = scratch(projected);
  // Of h, what passes no product.
  const bool has_direct = cell.reads_output || changes.zoneout_h;
  const Tensor grad_direct =
      has_direct ? Tensor::zeros({batch, hidden}, compute_type(type), device) : Tensor();
  FirstRows grad_through(grad_h), grad_operands(grad_operand_rows);
  FirstRows grad_unprojected(grad_unprojected_rows);
  const std::vector<ProductWeights> products = product_weights(cell, t.w_hh, hidden);

  const Steps& steps = sequence.steps();
  for (int64_t position = steps.count - 1; position >= 0; --position) {
    const Step step = step_at(steps, position);
    if (projected) {
      const Tensor grad_projected = t.grad_projected.narrow(0, step.token, step.rows);
      if (t.grad_out) {
        grad_projected.copy_(
            add(grad_through(step.rows), t.grad_out.narrow(0, step.token, step.rows)));
      } else {
        grad_projected.copy_(grad_through(step.rows));
      }
      mm_out(grad_unprojected(step.rows), grad_projected, t.w_hr);
    }
    for (int stage = last; stage >= 0; --stage) {
      const bool adds_grad_out = stage == last && !projected && t.grad_out;
      const Tensor& result = stage < last ? t.operands : t.unprojected;
      const Tensor& grad_result = stage < last ? grad_operand_rows
                                  : projected  ? grad_unprojected_rows
                                               : grad_h;
      cuda::stage(launch.request.cell, launch.request.number,
                  {.stage = stage,
                   .rows = step.rows,
                   .carried = step.carried,
                   .hidden = launch.hidden(),
                   .functions = t.functions,
                   .output_gradient =
                       adds_grad_out ? cuda::OutputGradient::kGiven : cuda::OutputGradient::kZero,
                   .memory_gradient = t.grad_cells ? cuda::MemoryGradient::kOfEveryStep
                                                   : cuda::MemoryGradient::kOfLast,
                   .result_again = result ? cuda::Again::kYes : cuda::Again::kNo,
                   .changes = changes,
                   .begins_anew = beginnings_at(t.changes.resets, steps, step),
                   .dropout = row(t.changes.recurrent_dropout),
                   .zoneout_h = shares_at(t.changes.zoneout_h, step.token),
                   .zoneout_c = shares_at(t.changes.zoneout_c, step.token),
                   .gates_t = row(t.gates, step.token),
                   .cells_t = row(t.cells, step.token),
                   .cells_before = row(t.cells, step.token_before),
                   .c0 = row(t.c0),
                   .out_before = row(t.out, step.token_before),
                   .h0 = row(t.h0),
                   .grad_out_t = row(t.grad_out, step.token),
                   .grad_cells_t = row(t.grad_cells, step.token),
                   .grad_result = row(grad_result),
                   .grad_direct = row(grad_direct),
                   .grad_c = row(t.grad_c),
                   .grad_gates_t = row(t.grad_gates, step.token),
                   .result_t = row(result, step.token)},
                  launch.stream);
      mm_out(stage == 0 ? grad_through(step.rows) : grad_operands(step.rows),
             products[stage].columns(t.grad_gates, step.token, step.rows), products[stage].weights);
    }
    if (changes.before_products()) {
      cuda::leave(launch.request.number,
                  {.changes = changes,
                   .rows = step.rows,
                   .carried = step.carried,
                   .hidden = launch.hidden(),
                   .outputs = static_cast<int>(t.h0.size(1)),
                   .begins_anew = beginnings_at(t.changes.resets, steps, step),
                   .dropout = row(t.changes.recurrent_dropout),
                   .out_before = row(t.out, step.token_before),
                   .h0 = row(t.h0),
                   .seen_t = row(t.seen, step.token),
                   .grad_h = row(grad_h),
                   .has_direct = has_direct,
                   .has_memory = cell.has_memory,
                   .grad_direct = row(grad_direct),
                   .grad_c = row(t.grad_c)},
                  launch.stream);
    }
  }
  return grad_direct ? add(grad_direct, grad_h) : std::move(grad_h);
}

}  // namespace rotcell::ops::gpu
