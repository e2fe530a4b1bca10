// The path of matmuls by the program's library and one kernel for each stage of each step.
#pragma once

#include "cuda/runtime/launch.h"
#include "cuda/runtime/weight_gradients.h"

namespace rotcell::cuda {

// from_input [N, G], T: what x and the biases give to the gates; overwritten.
void forward_stepwise(const Launch& launch, const LayerForward& layer, const Matrix& from_input);

void backward_stepwise(const Launch& launch, const LayerBackward& layer, const TokenMatrices& t);

}  // namespace rotcell::cuda
