// One direction of one layer over a whole sequence on the CPU: what a call is given, and the two
// functions that run it.
//
// All memory is the caller's, contiguous, and of type T unless it says otherwise: BFloat16 is
// stored only, its sums are of MathType<T>. What a cell or a call does not have is null. Letters in
// shapes: cells/sizes.h.
#pragma once

#include "cells/activation.h"
#include "cells/list.h"
#include "cells/sequence.h"
#include "cells/sizes.h"
#include "cells/state_hooks.h"
#include "cpu/loops/kernels.h"
#include "cpu/runtime/storage.h"

namespace rotcell::cpu {

// What happens to the state between steps.
template <class T>
struct HookMasks {
  const bool* resets = nullptr;          // [N]: a new sequence begins at this token
  const T* recurrent_dropout = nullptr;  // [B, P]: factors of what matmuls see of the old output
  ZoneoutKeep<T> zoneout_h = {};         // which share of h stays; no projection
  ZoneoutKeep<T> zoneout_c = {};         // which share of c stays

  StateHooks what() const {
    return {.resets = resets != nullptr,
            .recurrent_dropout = recurrent_dropout != nullptr,
            .zoneout_h = zoneout_h.keep != nullptr,
            .zoneout_c = zoneout_c.keep != nullptr};
  }
};

template <class T>
struct Layer {
  CellIndex cell;
  LayerSizes sizes;
  const Sequence& sequence;
  Activations activations;
  HookMasks<T> hooks;
  const T* h0;                                 // [B, P]
  const T* c0;                                 // [B, H]
  const T* w_ih;                               // [R_x, I]
  const T* w_hh;                               // [R_h, P]
  const T* w_hr;                               // [P, H]
  RowParameters<MathType<T>> parameters = {};  // of a row cell

  Projection projection() const { return w_hr ? Projection::kPresent : Projection::kNone; }
};

template <class T>
struct LayerForward : Layer<T> {
  StoredRows x;                 // [N, I], in any floating-point format
  const T* b_ih;                // [R_x]
  const T* b_hh;                // [R_h]
  const MathType<T>* row_bias;  // [B, G], instead of these: each row of the batch has its own
  Keep keep;
  T* out;    // [N, P]
  T* h_n;    // [B, P]
  T* c_n;    // [B, H]
  T* gates;  // [N, G] with Keep::kForBackward
  T* cells;  // [N, H] unless Keep::kNothing
};

template <class T>
struct LayerBackward : Layer<T> {
  const T* x;           // [N, I]
  const T* out;         // [N, P]
  const T* gates;       // [N, G], as forward kept them
  const T* cells;       // [N, H]
  const T* grad_out;    // [N, P], zero if null
  const T* grad_cells;  // [N, H], zero if null
  MathType<T>* grad_h;  // [B, P]: gradient of h_n, becomes that of h0
  MathType<T>* grad_c;  // [B, H]: gradient of c_n, becomes that of c0
  // Results; null if they are not needed.
  T* grad_x;                   // [N, I]
  MathType<T>* grad_w_ih;      // [R_x, I]; those of the weights are needed together
  MathType<T>* grad_w_hh;      // [R_h, P]
  MathType<T>* grad_bias;      // [G]: of b_ih the first R_x, of b_hh those of columns that h feeds
  MathType<T>* grad_w_hr;      // [P, H]
  MathType<T>* grad_row_bias;  // [B, G], at first zero
  RowGradients<MathType<T>> grad_parameters = {};

  // Without input features grad_w_ih is null in any case.
  bool needs_weights() const { return grad_bias != nullptr; }
};

// What a forward pass begins with: the running cell state and, without any steps, h_n. Whether
// there are steps.
template <class T>
bool start_states(const LayerForward<T>& layer);

template <class T>
void forward(const LayerForward<T>& layer);
template <class T>
void backward(const LayerBackward<T>& layer);

}  // namespace rotcell::cpu
