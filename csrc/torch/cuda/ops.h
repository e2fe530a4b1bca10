// The ops for CUDA tensors, of any cell: one direction of one layer over a whole sequence.
#pragma once

#include "torch/arguments.h"

namespace rotcell::ops::gpu {

ForwardResult forward(CellIndex cell, const ForwardArguments& arguments);
BackwardResult backward(CellIndex cell, const BackwardArguments& arguments);

}  // namespace rotcell::ops::gpu
