// The gradients that need no time loop: those of x and of the weights.
#pragma once

#include "cuda/runtime/layer.h"

namespace rotcell::cuda {

// What the time loop of a backward pass writes for every token. Undefined if the call does not need
// it.
struct TokenMatrices {
  Matrix grad_gates;      // T [N, G]
  Matrix second_operand;  // T [N, H]: what the second matmul multiplied
  Matrix grad_projected;  // T [N, P]: the whole gradient of each output, if projected
  Matrix unprojected;     // T [N, H]: what was projected
  Matrix masked_h;        // T [N, P]: what the first matmul saw, if hooks change it
};

TokenMatrices make_token_matrices(const LayerBackward& layer);

// Writes the gradients that the call needs, from what the time loop wrote.
void write_weight_gradients(const LayerBackward& layer, const TokenMatrices& t);

// The same for a call without tokens.
void write_zero_gradients(const LayerBackward& layer);

}  // namespace rotcell::cuda
