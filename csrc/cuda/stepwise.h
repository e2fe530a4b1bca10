// How the threads of a stepwise kernel share the rows and pairs of a step.
#pragma once

#include "cuda/cell_io.h"
#include "cuda/platform.h"
#include "cuda/shapes.h"

namespace rotcell::cuda {

inline Grid step_grid(int64_t rows, int hidden) {
  const int64_t items = rows * divide_up(hidden, 2);
  return {static_cast<unsigned>((items + Tiles::kStepThreads - 1) / Tiles::kStepThreads),
          Tiles::kStepThreads, 0};
}

// This thread's row and pair of units; false if there is none.
ROTCELL_DEVICE bool find_work(int64_t rows, int hidden, int64_t& row, PairOfUnits& units) {
  const int pairs = divide_up(hidden, 2);
  const int64_t item = int64_t{1} * blockIdx.x * blockDim.x + threadIdx.x;
  row = item / pairs;
  units = {static_cast<int>(item - row * pairs) * 2, hidden};
  return row < rows;
}

}  // namespace rotcell::cuda
