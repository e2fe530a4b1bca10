#include "cuda/runtime/weight_gradients.h"

#include <vector>

namespace rotcell::cuda {
namespace {

// Consecutive rows of one of several matrices, growing as long as rows follow each other.
class RowRuns {
 public:
  void add(const Matrix& from, int64_t first, int64_t rows) {
    if (rows == 0) return;
    if (from_ == &from && first_ + rows_ == first) {
      rows_ += rows;
      return;
    }
    finish();
    from_ = &from;
    first_ = first;
    rows_ = rows;
  }

  Matrix joined() {
    finish();
    return concatenated(views_);
  }

 private:
  void finish() {
    if (from_ != nullptr) views_.push_back(from_->rows_from(first_, rows_));
  }

  const Matrix* from_ = nullptr;
  int64_t first_ = 0, rows_ = 0;
  std::vector<Matrix> views_;
};

// The output that each token starts from, [N, P], in few launches.
Matrix outputs_before(const LayerBackward& layer) {
  const Steps& steps = layer.sequence.steps();
  RowRuns runs;
  for (int64_t i = 0; i < steps.count; ++i) {
    // In the order of the tokens in memory.
    const Step step = step_at(steps, steps.reverse ? steps.count - 1 - i : i);
    runs.add(layer.out, step.token_before, step.carried);
    runs.add(layer.h0, step.carried, step.rows - step.carried);
  }
  return runs.joined();
}

// The first matmul multiplied the old output, or what hooks left of it; the second one has its own
// operand.
void write_recurrent_gradient(const LayerBackward& layer, const TokenMatrices& t) {
  const Matrix masked_h = t.masked_h ? t.masked_h.borrow() : outputs_before(layer);
  matmul(layer.grad_w_hh, t.grad_gates.transposed(), masked_h);
  for (int later = 1; later < layer.cell().stages; ++later) {
    const int64_t first = layer.cell().first_row_of_matmul(later, layer.sizes.hidden);
    const int64_t rows = layer.cell().rows_of_matmul(later, layer.sizes.hidden);
    matmul(layer.grad_w_hh.rows_from(first, rows),
           t.grad_gates.columns_from(first, rows).transposed(), t.second_operand);
  }
}

}  // namespace

TokenMatrices make_token_matrices(const LayerBackward& layer) {
  const LayerSizes& sizes = layer.sizes;
  const auto of_tokens = [&](bool needed, int64_t width) {
    return needed ? layer.scratch(sizes.tokens, width) : Matrix();
  };
  const bool projects = bool(layer.w_hr);
  return {.grad_gates = of_tokens(true, sizes.gate_rows),
          .second_operand = of_tokens(layer.cell().stages > 1, sizes.hidden),
          .grad_projected = of_tokens(projects, sizes.outputs),
          .unprojected = of_tokens(projects && layer.needs_weights(), sizes.hidden),
          .masked_h = of_tokens(layer.hooks.what().before_matmuls(), sizes.outputs)};
}

void write_weight_gradients(const LayerBackward& layer, const TokenMatrices& t) {
  if (layer.grad_x) matmul(layer.grad_x, t.grad_gates, layer.w_ih);
  if (!layer.needs_weights()) return;
  matmul(layer.grad_w_ih, t.grad_gates.transposed(), layer.x);
  write_recurrent_gradient(layer, t);
  sum_of_rows(layer.device, layer.grad_bias, t.grad_gates);
  if (layer.w_hr) matmul(layer.grad_w_hr, t.grad_projected.transposed(), t.unprojected);
}

void write_zero_gradients(const LayerBackward& layer) {
  for (const Matrix* gradient :
       {&layer.grad_w_ih, &layer.grad_w_hh, &layer.grad_bias, &layer.grad_w_hr}) {
    if (*gradient) gradient->fill(0);
  }
}

}  // namespace rotcell::cuda
