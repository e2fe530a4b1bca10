// What may happen to the state between two steps besides the maths of the cell, for host and
// device:
//   resets             rows begin anew, from zeros
//   recurrent dropout  products see the old output through a mask; the last stage, which may carry
//                      the old output on, sees it whole
//   zoneout            units keep a share of what they held: all or nothing of it, in training
// In the order of a step: the old state is reset, then masked; the new one is mixed with what the
// reset left of the old one.
#pragma once

#include "cells/steps.h"

namespace rotcell {

struct StateChanges {
  bool resets = false;
  bool recurrent_dropout = false;
  bool zoneout_h = false, zoneout_c = false;

  // Of the old state, before the products.
  ROTCELL_INLINE constexpr bool before_products() const { return resets || recurrent_dropout; }
  ROTCELL_INLINE constexpr bool any() const { return before_products() || zoneout_h || zoneout_c; }
};

// The rows that begin anew at a step.
struct Beginnings {
  const bool* marks;  // [rows]
  int64_t rows;       // the others never do

  ROTCELL_INLINE bool operator()(int64_t row) const { return row < rows && marks[row]; }
};

// A mark stands at the first token of a new sequence, and no state crosses the border before it. In
// the reverse direction that border is met behind the mark: after the marked token was processed.
// marks [N].
ROTCELL_INLINE Beginnings beginnings(const bool* marks, const Steps& steps, const Step& step) {
  return steps.reverse ? Beginnings{marks + step.token_before, step.carried}
                       : Beginnings{marks + step.token, step.rows};
}

constexpr Beginnings kNoBeginnings{nullptr, 0};

}  // namespace rotcell
