// The sizes of one direction of one layer in one call.
#pragma once

#include <cstdint>

#include "cells/rows.h"

namespace rotcell {

// Letters in shapes, everywhere: N tokens, I inputs, B rows of the batch, H units, P outputs (P = H
// without a projection), G columns of the gates, R_x rows of w_ih, R_h rows of w_hh. Of most cells
// G, R_x and R_h are the same.
struct LayerSizes {
  int64_t tokens, inputs, batch, hidden, outputs, gate_rows;
  int64_t input_rows;  // R_x: x feeds the first columns of the gates
  int64_t bias_rows;   // of b_ih: the first columns that x feeds, mostly all
  bool sees_rows;      // the math of a row needs all of its units
  HiddenFeeds hidden_feeds;
  RecurrentSpans recurrent;  // the columns that h feeds

  int64_t recurrent_rows() const {
    int64_t rows = 0;
    for (const RecurrentSpan& span : recurrent) rows += span.count;
    return rows;
  }
  int64_t recurrent_weights() const { return recurrent_rows() * outputs; }
  int64_t input_weights() const { return input_rows * inputs; }
};

}  // namespace rotcell
