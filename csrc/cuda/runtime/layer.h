// One direction of one layer over a whole sequence on a GPU: what a call is given, and the two
// functions that run it.
//
// All matrices are the caller's, and contiguous unless a comment states otherwise. T is the dtype
// of the tensors, A the dtype of the computation. What a cell or a call does not have is undefined
// or null. Letters in shapes: cells/sizes.h.
#pragma once

#include "cells/activation.h"
#include "cells/list.h"
#include "cells/passes.h"
#include "cells/sequence.h"
#include "cells/sizes.h"
#include "cells/state_hooks.h"
#include "cuda/kernels/stepwise.h"
#include "cuda/runtime/matrix.h"

namespace rotcell::cuda {

// What happens to the state between steps.
struct HookMasks {
  const bool* resets = nullptr;             // [N]: a new sequence begins at this token
  const void* recurrent_dropout = nullptr;  // T [B, P]: factors of what matmuls see of the old h
  ZoneoutKeepOfTokens zoneout_h = {};       // which share of h stays; no projection
  ZoneoutKeepOfTokens zoneout_c = {};       // which share of c stays

  StateHooks what() const {
    return {.resets = resets != nullptr,
            .recurrent_dropout = recurrent_dropout != nullptr,
            .zoneout_h = zoneout_h.keep != nullptr,
            .zoneout_c = zoneout_c.keep != nullptr};
  }
};

struct Layer {
  CellIndex index;
  int device;
  Number number;  // T
  LayerSizes sizes;
  const Sequence& sequence;
  Activations activations;
  HookMasks hooks;
  Matrix x;     // T [N, I], with any strides
  Matrix h0;    // T [B, P]
  Matrix w_ih;  // T [G, I], with any strides
  Matrix w_hh;  // T [G, P]
  Matrix w_hr;  // T [P, H]

  const CellDescription& cell() const { return kCells[index]; }
  Number compute_number() const { return computed_in(number); }
  // Uninitialized, for the time of the call.
  Matrix scratch(int64_t rows, int64_t columns) const {
    return Matrix::empty(device, number, rows, columns);
  }
};

struct LayerForward : Layer {
  Matrix b_ih;  // T [1, G], with any strides
  Matrix b_hh;  // T [1, G], with any strides
  Keep keep;
  Matrix h;      // T [B, P]: h0, becomes h_n
  Matrix c;      // A [B, H]: c0, becomes c_n
  Matrix out;    // T [N, P]
  Matrix gates;  // T [N, G] with Keep::kForBackward
  Matrix cells;  // T [N, H] unless Keep::kNothing
};

struct LayerBackward : Layer {
  Matrix c0;          // A [B, H]
  Matrix out;         // T [N, P]
  Matrix gates;       // T [N, G], as forward kept them
  Matrix cells;       // T [N, H]
  Matrix grad_out;    // T [N, P], zero if undefined
  Matrix grad_cells;  // A [N, H], zero if undefined
  Matrix grad_h;      // T [B, P]: gradient of h_n, becomes that of h0
  Matrix grad_c;      // A [B, H]: gradient of c_n, becomes that of c0
  // Results; undefined if they are not needed.
  Matrix grad_x;     // T [N, I]
  Matrix grad_w_ih;  // T [G, I]; those of the weights are needed together
  Matrix grad_w_hh;  // T [G, P]
  Matrix grad_bias;  // T [1, G]
  Matrix grad_w_hr;  // T [P, H]

  bool needs_weights() const { return bool(grad_bias); }
};

// The device must be the current one.
void forward(const LayerForward& layer);
void backward(const LayerBackward& layer);

}  // namespace rotcell::cuda
