// The rows of the GRU's recurrent weights that see the old state itself: those of all gates but
// the candidate, in the order of RotGruRows with the candidate's left out.
#pragma once

#include "cells/rot_gru.h"
#include "cuda/platform.h"
#include "cuda/shapes.h"

namespace rotcell::cuda {

struct GruMemoryRows {
  // The row of the weights that has this place.
  static ROTCELL_DEVICE int64_t weight_row(int place, int hidden) {
    const int64_t candidate = RotGruRows::offset(RotGruRows::kCandidate, hidden);
    return place < candidate ? place : place + hidden;
  }
  // The place of a row of the weights.
  static ROTCELL_DEVICE int place(int64_t weight_row, int hidden) {
    const int64_t candidate = RotGruRows::offset(RotGruRows::kCandidate, hidden);
    return static_cast<int>(weight_row < candidate ? weight_row : weight_row - hidden);
  }
};

static_assert(RotGruRows::kCandidate + 1 == RotGruRows::kGateCount,
              "the angles follow the candidate");

}  // namespace rotcell::cuda
