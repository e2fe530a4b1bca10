// The rows of one thread at one step.
#pragma once

#include "cpu/loops/kernels.h"

namespace rotcell::cpu::ROTCELL_ISA {

// The rows of one thread that a step concerns.
struct RowStep {
  Step step;
  int64_t begin, end;   // alive
  int64_t carried_end;  // [begin, carried_end) continue from the step before; other rows begin here
  int64_t ending;       // [ending, end) end here

  RowStep(const Steps& steps, RowRange rows, int64_t position)
      : step(step_at(steps, position)),
        begin(rows.begin),
        end(rows.clamp(step.rows)),
        carried_end(rows.clamp(step.carried)),
        ending(rows.clamp(step.going_on)) {}

  // The row of a state [N, width] that a row starts from; at its first step that of `initial`.
  template <class T>
  const T* before(const T* states, const T* initial, int64_t row, int64_t width) const {
    return row < carried_end ? states + (step.token_before + row) * width : initial + row * width;
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
