// How the rows of a batch are cut for threads.
#pragma once

#include <cstdint>
#include <vector>

#include "cells/steps.h"

namespace rotcell::cpu {

// At most `threads` ranges that cover all rows and hold about the same number of the chunk's tokens
// each. All but the last hold a multiple of row_tile rows, so that no thread ends its matmuls with
// a half-empty register tile.
std::vector<RowRange> partition_rows(const Steps& steps, const Chunk& chunk, int64_t threads,
                                     int64_t row_tile);

}  // namespace rotcell::cpu
