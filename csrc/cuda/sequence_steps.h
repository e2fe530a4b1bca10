// The steps of a sequence, as a kernel walks them.
#pragma once

#include "cuda/kernels.h"
#include "cuda/platform.h"

namespace rotcell::cuda {

// One step in the order of processing.
struct StepView {
  int64_t token;         // of row 0
  int64_t token_before;  // of row 0 at the step processed before
  int64_t rows;          // alive at this step
  int64_t carried;       // of these, alive at the step processed before; the others begin here
  int64_t rows_after;    // alive at the step processed next; 0 after the last
};

ROTCELL_DEVICE int64_t rows_of_step(const Steps& steps, int64_t step) {
  return steps.batch_sizes ? steps.batch_sizes[step] : steps.batch;
}
ROTCELL_DEVICE int64_t token_of_step(const Steps& steps, int64_t step) {
  return steps.offsets ? steps.offsets[step] : step * steps.batch;
}

// The step at a position in the order of the forward pass.
ROTCELL_DEVICE StepView step_at(const Steps& steps, int64_t position) {
  const int64_t forward = steps.reverse ? -1 : 1;
  const int64_t step = steps.reverse ? steps.count - 1 - position : position;
  StepView view{token_of_step(steps, step), 0, rows_of_step(steps, step), 0, 0};
  if (position > 0) {
    const int64_t rows_before = rows_of_step(steps, step - forward);
    view.token_before = token_of_step(steps, step - forward);
    view.carried = rows_before < view.rows ? rows_before : view.rows;
  }
  if (position + 1 < steps.count) view.rows_after = rows_of_step(steps, step + forward);
  return view;
}

}  // namespace rotcell::cuda
