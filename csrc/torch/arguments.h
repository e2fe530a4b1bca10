// What the ops of every device are given and give back, by name, and the checks of it.
#pragma once

#include "cells/activation.h"
#include "cells/list.h"
#include "cells/sizes.h"
#include "cells/state_hooks.h"
#include "torch/tensor.h"

namespace rotcell::ops {

// State hooks (cells/state_hooks.h); an undefined tensor is an absent hook.
struct HookTensors {
  Tensor resets;             // bool [N]: a new sequence begins at this token
  Tensor recurrent_dropout;  // [B, P]: factors of what the matmuls see of the old output
  Tensor zoneout_h;          // [N, P] or [1, P]: the share of h that stays; no projection
  Tensor zoneout_c;          // [N, H] or [1, H]: that of c

  StateHooks what() const {
    return {.resets = resets.defined(),
            .recurrent_dropout = recurrent_dropout.defined(),
            .zoneout_h = zoneout_h.defined(),
            .zoneout_c = zoneout_c.defined()};
  }
};

// One direction of one layer. Tokens are flattened, [N, .]. What a cell does not have, and what the
// caller left out, is undefined. Letters as in cells/sizes.h.
struct LayerArguments {
  Tensor x;           // [N, I]
  Tensor h0;          // [B, P]
  Tensor c0;          // [B, H]
  Tensor w_ih;        // [R_x, I]
  Tensor w_hh;        // [R_h, P]
  Tensor w_hr;        // [P, H]
  Tensor b_ih, b_hh;  // [R_x], or the first of these, and [R_h]; backward: if the math adds them
  Tensor parameters[kMostRowParameters];  // of a row cell
  Tensor batch_sizes;                     // as in PackedSequence; without it every step has B rows
  bool reverse;
  int64_t gate_activation, angle_activation;
  double norm = 0;  // RowParameters::norm
  HookTensors hooks;
};

struct ForwardArguments : LayerArguments {
  Tensor row_bias;            // [B, G], instead of biases: each row of the batch has its own
  bool save;                  // what backward needs
  bool return_cells = false;  // as a separate result, also without backward
};

// `gates` and `cells` are what backward needs; empty unless they were asked for.
struct ForwardResult {
  Tensor out, h_n, c_n, gates, cells;
};

struct BackwardArguments : LayerArguments {
  Tensor grad_out, grad_h_n, grad_c_n;
  Tensor grad_cells;  // [N, H], of the type that cells are saved in
  Tensor out, gates, cells;
  bool needs_grad_x, needs_grad_weights;
  bool has_row_bias = false;  // its gradient is wanted
};

// Gradients; those that are not needed are empty.
struct BackwardResult {
  Tensor x, h0, c0, w_ih, w_hh, bias, w_hr, row_bias;
  Tensor parameters[kMostRowParameters];
};

// The type a kernel computes in for tensors of this type: float32 for the fp16 and bf16.
DType compute_type(DType storage);

// In which type an op saves gates and cells for backward.
enum class Saved { kAsComputed, kAsStored };

// These throw an error that names the argument and says what was expected of it.
//
// Comes first: what follows may read the tensors.
void check_storages(const CellDescription& cell, const LayerArguments& arguments);
void check_storages(const CellDescription& cell, const ForwardArguments& arguments);
void check_storages(const CellDescription& cell, const BackwardArguments& arguments);
// That no size is huge without memory behind it.
void check_sizes(const LayerSizes& sizes);
LayerSizes check_arguments(const CellDescription& cell, const ForwardArguments& arguments);
LayerSizes check_arguments(const CellDescription& cell, const BackwardArguments& arguments,
                           Saved saved);
Activations check_functions(const LayerArguments& arguments);

// Layers of constant rotations, from the parameters that have an entry for each.
int64_t layers_of(const CellDescription& cell, const LayerArguments& arguments);

}  // namespace rotcell::ops
