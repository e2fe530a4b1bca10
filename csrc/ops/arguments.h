// What the ops of every device are given and give back, by name, and the checks of it.
#pragma once

#include "cells/gate_function.h"
#include "cells/list.h"
#include "ops/tensor.h"

namespace rotcell::ops {

// One direction of one layer. Tokens are flattened, [N, .]. What a cell does not have, and what the
// caller left out, is undefined. Letters as in cpu/kernels.h.
struct LayerArguments {
  Tensor x;            // [N, I]
  Tensor h0;           // [B, P]
  Tensor c0;           // [B, H]
  Tensor w_ih;         // [G, I]
  Tensor w_hh;         // [G, P]
  Tensor w_hr;         // [P, H]
  Tensor batch_sizes;  // as in PackedSequence; without it every step has B rows
  bool reverse;
  int64_t gate_function, angle_function;
};

struct ForwardArguments : LayerArguments {
  Tensor b_ih, b_hh;  // [G]
  bool save;          // what backward needs
};

// `gates` and `cells` are what backward needs; empty unless it was asked for.
struct ForwardResult {
  Tensor out, h_n, c_n, gates, cells;
};

struct BackwardArguments : LayerArguments {
  Tensor grad_out, grad_h_n, grad_c_n;
  Tensor out, gates, cells;
  bool needs_grad_x, needs_grad_weights;
};

// Gradients; those that are not needed are empty.
struct BackwardResult {
  Tensor x, h0, c0, w_ih, w_hh, bias, w_hr;
};

struct LayerSizes {
  int64_t tokens, inputs, batch, hidden, outputs, gate_rows;

  int64_t recurrent_weights() const { return gate_rows * outputs; }
  int64_t input_weights() const { return gate_rows * inputs; }
};

// The type a kernel computes in for tensors of this type: float32 for the half types.
DType compute_type(DType storage);

// These throw an error that names the argument and says what was expected of it.
LayerSizes check_arguments(const CellDescription& cell, const ForwardArguments& arguments);
LayerSizes check_arguments(const CellDescription& cell, const BackwardArguments& arguments);
GateFunctions check_functions(const LayerArguments& arguments);

}  // namespace rotcell::ops
