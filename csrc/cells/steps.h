// The walk of the steps of a sequence, for host and device: which rows of the batch are alive,
// where their tokens lie, what came before and what comes next.
//
// Tokens lie step by step, each step's rows in batch order, as in PackedSequence. Rows are sorted
// by decreasing length, so the rows alive at a step are the first ones. Steps are numbered as they
// lie in memory; positions count them in the order of processing, which the reverse direction turns
// round.
#pragma once

#include <cstdint>

#include "cells/portable.h"

namespace rotcell {

enum class Lengths {
  kEqual,   // every row is alive at every step
  kTabled,  // from batch_sizes and offsets
};

struct Steps {
  int64_t count;
  int64_t batch;  // B, rows alive at step 0
  Lengths lengths;
  const int64_t* batch_sizes;  // [count] if kTabled: rows alive, never increasing
  const int64_t* offsets;      // [count] if kTabled: the token of row 0
  bool reverse;                // from the last step to the first

  ROTCELL_INLINE int64_t rows(int64_t step) const {
    return lengths == Lengths::kEqual ? batch : batch_sizes[step];
  }
  ROTCELL_INLINE int64_t token(int64_t step) const {
    return lengths == Lengths::kEqual ? step * batch : offsets[step];
  }
  ROTCELL_INLINE int64_t step(int64_t position) const {
    return reverse ? count - 1 - position : position;
  }
};

// A run of steps by their positions, and its tokens, which lie together.
struct Chunk {
  int64_t begin, end;
  int64_t first_token, tokens;
};

// One step, at a position in the order of the forward pass.
struct Step {
  int64_t token;  // of row 0; that of another row is token + row
  int64_t
      token_before;  // of row 0 at the step processed before; means nothing if nothing is carried
  int64_t rows;      // alive at this step
  int64_t carried;   // the first of these rows continue from the step before; the rest begin here
  int64_t going_on;  // the first of these rows continue at the step processed next; the rest end
};

ROTCELL_INLINE Step step_at(const Steps& steps, int64_t position) {
  const int64_t step = steps.step(position), rows = steps.rows(step);
  Step found{steps.token(step), 0, rows, 0, 0};
  const auto at_most_rows = [rows](int64_t other)
                                ROTCELL_LAMBDA_INLINE { return other < rows ? other : rows; };
  if (position > 0) {
    const int64_t before = steps.step(position - 1);
    found.token_before = steps.token(before);
    found.carried = at_most_rows(steps.rows(before));
  }
  if (position + 1 < steps.count)
    found.going_on = at_most_rows(steps.rows(steps.step(position + 1)));
  return found;
}

// Rows of the batch.
struct RowRange {
  int64_t begin, end;

  ROTCELL_INLINE int64_t clamp(int64_t row) const {
    return row < begin ? begin : row < end ? row : end;
  }
};

}  // namespace rotcell
