// What may happen to the state between two steps, outside the math of the cell, for host and
// device:
//   resets             rows restart, from zeros
//   recurrent dropout  matmuls see the old output through a mask; the last stage, which may carry
//                      the old output on, sees it whole
//   zoneout            units keep a share of what they held: all or nothing of it, in training
// In the order of a step: the old state is reset, then masked; the new one is mixed with what the
// reset left of the old one.
#pragma once

#include "cells/steps.h"

namespace rotcell {

struct StateHooks {
  bool resets = false;
  bool recurrent_dropout = false;
  bool zoneout_h = false, zoneout_c = false;

  // Whether the old state changes before the matmuls.
  ROTCELL_INLINE constexpr bool before_matmuls() const { return resets || recurrent_dropout; }
  ROTCELL_INLINE constexpr bool any() const { return before_matmuls() || zoneout_h || zoneout_c; }
};

// The rows that restart at a step.
struct Beginnings {
  const bool* reset_mask;  // [rows]
  int64_t rows;            // rows from here on never restart

  ROTCELL_INLINE bool operator()(int64_t row) const { return row < rows && reset_mask[row]; }
};

// reset_mask [N] marks the first token of a new sequence: no state crosses the border before it. In
// the reverse direction the border comes after the marked token has been processed.
ROTCELL_INLINE Beginnings beginnings(const bool* reset_mask, const Steps& steps, const Step& step) {
  return steps.reverse ? Beginnings{reset_mask + step.token_before, step.carried}
                       : Beginnings{reset_mask + step.token, step.rows};
}

constexpr Beginnings kNoBeginnings{nullptr, 0};

}  // namespace rotcell
