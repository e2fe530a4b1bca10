// The path of products by torch and one kernel for each stage of each step.
#pragma once

#include "ops/arguments.h"
#include "ops/cuda/launch.h"
#include "ops/tensor.h"

namespace rotcell::ops::gpu {

// Shapes as in cuda/kernels.h, but that with a projection out and h are P wide. All are contiguous;
// what a cell does not have is undefined.
struct ForwardTensors {
  GateFunctions functions;
  cuda::Keep keep;
  ChangeTensors changes;
  Tensor from_input;  // overwritten
  Tensor w_hh, w_hr;
  Tensor h0;
  Tensor h;  // at first h0, becomes h_n
  Tensor c;  // A: at first c0, becomes c_n
  Tensor out;
  Tensor gates, cells;  // kept
};

void forward_stepwise(const Launch& launch, const Sequence& sequence, const ForwardTensors& t);

struct BackwardTensors {
  GateFunctions functions;
  ChangeTensors changes;
  Tensor w_hh, w_hr;
  Tensor h0, out, gates, cells;
  Tensor c0;              // A
  Tensor grad_out;        // undefined: zero
  Tensor grad_cells;      // A: undefined: zero
  Tensor grad_c;          // A: of c_n, becomes that of c0
  Tensor grad_gates;      // written
  Tensor operands;        // written, [N, H]: what the second product multiplied
  Tensor grad_projected;  // written, [N, P]: the whole gradient of each output, if projected
  Tensor unprojected;     // written, [N, H]: what was projected, if needed
  Tensor seen;  // written, [N, P]: what the first product saw, if something happens before it
};

// grad_h [B, P], T: gradient of h_n. Returns that of h0.
Tensor backward_stepwise(const Launch& launch, const Sequence& sequence, const BackwardTensors& t,
                         Tensor grad_h);

}  // namespace rotcell::ops::gpu
