#include "cuda/runtime/stepwise_path.h"

#include <vector>

namespace rotcell::cuda {
namespace {

// The weights of one matmul of a step. Rows of other matmuls between its rows are zero here, so
// that one matmul is enough.
struct MatmulWeights {
  int64_t first, rows;  // of w_hh, so columns of a matrix of gates
  Matrix weights;       // [rows, P]
};

MatmulWeights matmul_weights(const Layer& layer, int number) {
  const CellDescription& cell = layer.cell();
  const int64_t hidden = layer.sizes.hidden;
  const int64_t first = cell.first_row_of_matmul(number, hidden);
  const int64_t rows = cell.span_of_matmul(number, hidden);
  if (rows == cell.rows_of_matmul(number, hidden))
    return {first, rows, layer.w_hh.rows_from(first, rows)};
  Matrix weights = layer.scratch(rows, layer.sizes.outputs);
  weights.copy(layer.w_hh.rows_from(first, rows));
  for (int other = number + 1; other < cell.stages; ++other) {
    weights
        .rows_from(cell.first_row_of_matmul(other, hidden) - first,
                   cell.rows_of_matmul(other, hidden))
        .fill(0);
  }
  return {first, rows, std::move(weights)};
}

// The gates of some tokens that a matmul makes.
Matrix gates_of(const MatmulWeights& matmul, const Matrix& gates, int64_t token, int64_t tokens) {
  return gates.block(token, tokens, matmul.first, matmul.rows);
}

// What steps hand to each other and matmuls read or write.
struct StepBuffers {
  std::vector<MatmulWeights> matmuls;
  Matrix state;           // [B, P]: h; in the backward pass its gradient
  Matrix masked_h;        // [B, P]: what the first matmul sees of h; undefined: h itself
  Matrix second_operand;  // [B, H]: of the second matmul; in the backward pass their gradient
  Matrix gates;           // [B, G]: what matmuls add to the gates, in the forward pass
  Matrix unprojected;     // [B, H]: the output, or its gradient, before its projection
};

StepBuffers make_buffers(const Layer& layer, Pass pass, const Matrix& state) {
  const LayerSizes& sizes = layer.sizes;
  const bool forward = pass == Pass::kForward;
  const auto scratch = [&](bool needed, int64_t width) {
    return needed ? layer.scratch(sizes.batch, width) : Matrix();
  };
  StepBuffers buffers{
      .matmuls = {},
      .state = state.borrow(),
      .masked_h = scratch(layer.hooks.recurrent_dropout != nullptr && forward, sizes.outputs),
      .second_operand = scratch(layer.cell().stages > 1, sizes.hidden),
      .gates = scratch(forward, sizes.gate_rows),
      .unprojected = scratch(bool(layer.w_hr), sizes.hidden)};
  for (int number = 0; number < layer.cell().stages; ++number) {
    buffers.matmuls.push_back(matmul_weights(layer, number));
  }
  return buffers;
}

StepwiseSequence stepwise_sequence(const Layer& layer) {
  return {.steps = layer.sequence.steps(),
          .hidden = static_cast<int>(layer.sizes.hidden),
          .outputs = static_cast<int>(layer.sizes.outputs),
          .gate_rows = layer.sizes.gate_rows,
          .number_bytes = storage_bytes(layer.number),
          .compute_bytes = compute_bytes(layer.number),
          .last_stage = layer.cell().stages - 1,
          .has_cell_state = layer.cell().has_cell_state,
          .activations = layer.activations,
          .hooks = layer.hooks.what(),
          .resets = layer.hooks.resets,
          .dropout = layer.hooks.recurrent_dropout,
          .zoneout_h = layer.hooks.zoneout_h,
          .zoneout_c = layer.hooks.zoneout_c,
          .h0 = layer.h0.data()};
}

// The sequence works on these buffers.
void point_at(const StepBuffers& buffers, StepwiseForward& s) {
  s.h = buffers.state.data();
  s.masked_h = (buffers.masked_h ? buffers.masked_h : buffers.state).data();
  s.matmuls = buffers.gates.data();
  s.second_operand = buffers.second_operand.data();
  s.result = (buffers.unprojected ? buffers.unprojected : buffers.state).data();
}

void point_at(const StepBuffers& buffers, StepwiseBackward& s) {
  s.grad_h = buffers.state.data();
  s.grad_second_operand = buffers.second_operand.data();
  s.grad_result = (buffers.unprojected ? buffers.unprojected : buffers.state).data();
}

// The buffers as the matmuls of a step take them. Views are rebuilt only when the number of rows
// changes.
class StepViews {
 public:
  explicit StepViews(const StepBuffers& buffers)
      : buffers_(buffers),
        state(buffers.state),
        masked_h(buffers.masked_h ? buffers.masked_h : buffers.state),
        second_operand(buffers.second_operand),
        unprojected(buffers.unprojected) {
    for (const MatmulWeights& matmul : buffers.matmuls) {
      transposed.push_back(matmul.weights.transposed());
      gates_.emplace_back();
    }
  }

  // What matmul `number` makes, or its gradient.
  const Matrix& gates(size_t number, int64_t rows) {
    if (!gates_[number] || gates_[number].rows() != rows) {
      gates_[number] = gates_of(buffers_.matmuls[number], buffers_.gates, 0, rows);
    }
    return gates_[number];
  }

 private:
  const StepBuffers& buffers_;
  std::vector<Matrix> gates_;

 public:
  FirstRows state, masked_h, second_operand, unprojected;
  std::vector<Matrix> transposed;  // the weights
};

void forward_steps(const Launch& launch, const LayerForward& layer, const StepBuffers& buffers,
                   const StepwiseForward& s) {
  const Matrix w_hr_t = layer.w_hr ? layer.w_hr.transposed() : Matrix();
  StepViews views(buffers);
  for (int64_t position = 0; position < s.steps.count; ++position) {
    const Step step = step_at(s.steps, position);
    if (s.hooks.before_matmuls()) enter(layer.number, entry_of(s, step), launch.stream);
    for (size_t number = 0; number < buffers.matmuls.size(); ++number) {
      matmul(views.gates(number, step.rows),
             number == 0 ? views.masked_h(step.rows) : views.second_operand(step.rows),
             views.transposed[number]);
      stage(layer.index, layer.number, stage_of(s, static_cast<int>(number), step), launch.stream);
    }
    if (layer.w_hr) {
      matmul(views.state(step.rows), views.unprojected(step.rows), w_hr_t);
      layer.out.rows_from(step.token, step.rows).copy(views.state(step.rows));
    }
  }
}

// The whole gradient of a step's outputs, and that of what was projected.
void backward_through_projection(const LayerBackward& layer, const TokenMatrices& t,
                                 const Step& step, StepViews& views) {
  const Matrix grad_projected = t.grad_projected.rows_from(step.token, step.rows);
  const Matrix& grad_h = views.state(step.rows);
  if (layer.grad_out) {
    grad_projected.copy(add(grad_h, layer.grad_out.rows_from(step.token, step.rows)));
  } else {
    grad_projected.copy(grad_h);
  }
  matmul(views.unprojected(step.rows), grad_projected, layer.w_hr);
}

void backward_steps(const Launch& launch, const LayerBackward& layer, const TokenMatrices& t,
                    const StepBuffers& buffers, const StepwiseBackward& s) {
  StepViews views(buffers);
  for (int64_t position = s.steps.count - 1; position >= 0; --position) {
    const Step step = step_at(s.steps, position);
    if (layer.w_hr) backward_through_projection(layer, t, step, views);
    for (size_t number = buffers.matmuls.size(); number-- > 0;) {
      const MatmulWeights& weights = buffers.matmuls[number];
      stage(layer.index, layer.number, stage_of(s, static_cast<int>(number), step), launch.stream);
      matmul(number == 0 ? views.state(step.rows) : views.second_operand(step.rows),
             gates_of(weights, t.grad_gates, step.token, step.rows), weights.weights);
    }
    if (s.hooks.before_matmuls()) leave(layer.number, exit_of(s, step), launch.stream);
  }
}

}  // namespace

void forward_stepwise(const Launch& launch, const LayerForward& layer, const Matrix& from_input) {
  StepwiseForward s{};
  static_cast<StepwiseSequence&>(s) = stepwise_sequence(layer);
  s.keep = layer.keep;
  s.result_is = layer.w_hr ? ResultIs::kUnprojected : ResultIs::kOutput;
  s.from_input = from_input.data();
  s.out = layer.out.data();
  s.gates = layer.gates.data();
  s.cells = layer.cells.data();
  s.c = layer.c.data();
  const StepBuffers buffers = make_buffers(layer, Pass::kForward, layer.h);
  point_at(buffers, s);
  forward_steps(launch, layer, buffers, s);
}

void backward_stepwise(const Launch& launch, const LayerBackward& layer, const TokenMatrices& t) {
  const auto recompute_if = [](const Matrix& wanted) {
    return wanted ? Recompute::kYes : Recompute::kNo;
  };
  const LayerSizes& sizes = layer.sizes;
  // The gradient of h that no matmul carries.
  const bool has_direct = layer.cell().reads_output || layer.hooks.what().zoneout_h;
  const Matrix grad_direct =
      has_direct ? Matrix::zeros(layer.device, layer.compute_number(), sizes.batch, sizes.hidden)
                 : Matrix();
  StepwiseBackward s{};
  static_cast<StepwiseSequence&>(s) = stepwise_sequence(layer);
  s.output_gradient =
      layer.grad_out && !layer.w_hr ? OutputGradient::kGiven : OutputGradient::kZero;
  s.cell_state_gradient =
      layer.grad_cells ? CellStateGradient::kEveryStep : CellStateGradient::kLast;
  s.recompute_second_operand = recompute_if(t.second_operand);
  s.recompute_result = recompute_if(t.unprojected);
  s.has_direct = has_direct;
  s.gates = layer.gates.data();
  s.cells = layer.cells.data();
  s.out = layer.out.data();
  s.grad_out = layer.grad_out.data();
  s.grad_cells = layer.grad_cells.data();
  s.grad_gates = t.grad_gates.data();
  s.masked_h = t.masked_h.data();
  s.second_operand = t.second_operand.data();
  s.results = t.unprojected.data();
  s.c0 = layer.c0.data();
  s.grad_c = layer.grad_c.data();
  s.grad_direct = grad_direct.data();
  const StepBuffers buffers = make_buffers(layer, Pass::kBackward, layer.grad_h);
  point_at(buffers, s);
  backward_steps(launch, layer, t, buffers, s);
  if (grad_direct) layer.grad_h.copy(add(grad_direct, layer.grad_h));
}

}  // namespace rotcell::cuda
