// From torch's batch_sizes to the steps of a sequence.
#pragma once

#include "cells/sequence.h"
#include "torch/tensor.h"

namespace rotcell::ops {

// batch_sizes as in PackedSequence; undefined if all rows have the same length. Throws unless they
// fit a sequence of so many tokens and rows.
Sequence sequence_of(const Tensor& batch_sizes, int64_t tokens, int64_t batch, bool reverse);

}  // namespace rotcell::ops
