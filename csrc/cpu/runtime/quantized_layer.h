// A layer call with int8 weights, forward only. States, gates and outputs are float32.
#pragma once

#include "cpu/matmul/int8.h"
#include "cpu/runtime/layer.h"

namespace rotcell::cpu {

struct QuantizedLayer {
  LayerForward<float> layer;  // without weights and biases; x is float32
  Int8Weights w_ih;           // [R_x, I]
  Int8Weights w_hh;           // [R_h, P]
  Int8Weights w_hr;           // [P, H]
  const float* bias;          // [G]
};

void forward(const QuantizedLayer& layer);

}  // namespace rotcell::cpu
