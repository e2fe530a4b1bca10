// What the CUDA kernels are given, and the functions that launch them. No CUDA headers and no torch
// here.
//
// Letters in shapes: N tokens, B rows of the batch, H units, G rows of the weights. T is the dtype
// of the tensors, A the dtype of the computation (float32 for fp16 and bf16). Tokens lie as
// cells/steps.h describes; a step's pointers (..._t) point at the first of its tokens.
#pragma once

#include <cstdint>

#include "cells/list.h"
#include "cells/passes.h"
#include "cells/state_hooks.h"
#include "cells/steps.h"
#include "cuda/kernels/numbers.h"
#include "cuda/platform/stream.h"
#include "cuda/runtime/plan.h"

namespace rotcell::cuda {

// ---- A whole sequence: the resident and the cooperative kernels.

struct Forward {
  Steps steps;  // tables, if there are any, on the device
  int hidden;   // H
  Activations activations;
  Keep keep;
  const void* from_input;  // T [N, G]: x w_ih^T and the biases
  const void* w_hh;        // T [G, H]
  const void* h0;          // T [B, H]
  void* c;                 // A [B, H]: c0, becomes c_n, if the cell has a cell state
  void* out;               // T [N, H]
  void* h_n;               // T [B, H]
  void* gates;             // T [N, G] if kept, as KeptActivation says; may be from_input
  void* cells;             // T [N, H] if kept and the cell has a cell state
  void* waiting;  // A [B, G] scratch: gates that wait for a later stage, on the cooperative path
  void* second_operand;  // T [B, H] scratch: what the second matmul multiplies, if there is one
  uint64_t* signals;     // [signal_count(B)] zeros, on the cooperative path
};

struct Backward {
  Steps steps;  // tables, if there are any, on the device
  int hidden;   // H
  Activations activations;
  OutputGradient output_gradient;
  const void* w_hh;      // T [G, H]
  const void* h0;        // T [B, H], if the cell reads its output, as for out
  const void* c0;        // A [B, H], if the cell has a cell state, as for cells and grad_c
  const void* gates;     // T [N, G] activations as they were kept
  const void* cells;     // T [N, H]
  const void* out;       // T [N, H]
  const void* grad_out;  // T [N, H], if given
  void* grad_h;          // A [B, H]: gradient of h_n, becomes that of h0
  void* grad_c;          // A [B, H]: gradient of c_n, becomes that of c0
  void* grad_gates;      // T [N, G] out
  void* second_operand;  // T [N, H] out: what the second matmul multiplied, if there is one
  uint64_t* signals;     // [signal_count(B)] zeros, on the cooperative path
};

// The path of the plan must be the one of the function; the request is the one it was made for.
// A cooperative launch that the device refuses is a LaunchRefused (grid.h), before anything is
// done.
void resident(const Request&, const Plan&, const Forward&, Stream);
void resident(const Request&, const Plan&, const Backward&, Stream);
void cooperative(const Request&, const Plan&, const Forward&, Stream);
void cooperative(const Request&, const Plan&, const Backward&, Stream);

// ---- One stage of one step: what is left of it when torch has made the matmuls. R rows are
// alive.

// Which share of a state zoneout keeps.
struct ZoneoutKeep {
  const void* keep_t;  // T [R, H], or [1, H], the same for all rows
  int64_t stride;      // from one row to the next
};

// Where the result of a stage goes.
enum class ResultIs {
  kOperand,      // of the next stage's matmul
  kOutput,       // the new h
  kUnprojected,  // what a projection makes the new h of
};

struct StageForward {
  int stage;
  int64_t rows;  // R
  int hidden;    // H
  Activations activations;
  Keep keep;
  ResultIs result_is;
  StateHooks hooks = {};                       // of the last stage: zoneout
  ZoneoutKeep zoneout_h = {}, zoneout_c = {};  // if so; no projection
  const void* preactivations_t;                // T [R, G]: what x and the biases give
  const void* matmuls;                         // T [B, G]: what the matmuls so far add to it
  const void*
      h;         // T [B, H]: the old output, as the stage sees it; if the cell reads it, or zoneout
  void* c;       // A [B, H]: the running cell state, if there is one; new after the last stage
  void* result;  // T [B, H]; may be h
  void* out_t;   // T [R, H], if the result is the output
  void* gates_t;  // T [R, G] if kept for backward; may be preactivations_t
  void* cells_t;  // T [R, H] if kept and the cell has a cell state; written by the last stage
};

// Whether the result of a stage is recomputed.
enum class Recompute { kNo, kYes };

struct StageBackward {
  int stage;
  int64_t rows;     // R
  int64_t carried;  // rows that continue from the step before; the rest begin at h0 and c0
  int hidden;       // H
  Activations activations;
  OutputGradient output_gradient;
  CellStateGradient cell_state_gradient = CellStateGradient::kLast;
  Recompute recompute_result;
  StateHooks hooks = {};
  Beginnings starts_sequence = {};  // if resets
  const void* dropout = nullptr;    // T [B, H], if recurrent dropout and the cell reads its output
  ZoneoutKeep zoneout_h = {}, zoneout_c = {};  // if so; no projection
  const void* gates_t;                         // T [R, G] activations as they were kept
  // The cell states, c0 and grad_c: if the cell has a cell state.
  const void* cells_t;       // T [R, H]
  const void* cells_before;  // T [carried, H]
  const void* c0;            // A [B, H]
  const void* out_before;    // T [carried, H], if the cell reads its output, as for h0, grad_direct
  const void* h0;            // T [B, H]
  const void* grad_out_t;    // T [R, H], if given
  const void* grad_cells_t = nullptr;  // A [R, H], if of every step
  const void* grad_result;             // T [B, H]: what came through the matmul behind this stage
  void* grad_direct;   // A [B, H]: of h, what came past all matmuls, if anything does (the cell
                       // reads its output, or zoneout); becomes that of h before
  void* grad_c;        // A [B, H]: of c, becomes that of c before
  void* grad_gates_t;  // T [R, G]: the stage's gates are written
  void* result_t;      // T [R, H] out, if recomputed
};

void stage(CellIndex, Number, const StageForward&, Stream);
void stage(CellIndex, Number, const StageBackward&, Stream);

// ---- The old state of a step with resets or recurrent dropout.

// Before the matmuls.
struct EnterStep {
  StateHooks hooks;
  int64_t rows;                // R
  int hidden, outputs;         // H, P
  Beginnings starts_sequence;  // if resets
  const void* dropout;         // T [B, P], if recurrent dropout
  void* h;                     // T [B, P]: as it was left, becomes what the step starts from
  void* c;                     // A [B, H], if the cell has a cell state, as h
  bool has_cell_state;
  void* masked_h;  // T [B, P] out, if recurrent dropout: what the first matmul sees of h
};

// In the backward pass, behind the matmuls.
struct LeaveStep {
  StateHooks hooks;
  int64_t rows;                // R
  int64_t carried;             // rows that continue from the step before; the rest begin at h0
  int hidden, outputs;         // H, P
  Beginnings starts_sequence;  // if resets
  const void* dropout;         // T [B, P], if recurrent dropout
  const void* out_before;      // T [carried, P]
  const void* h0;              // T [B, P]
  void* masked_h_t;            // T [R, P] out: what the first matmul saw
  void* grad_h;                // T [B, P]: of what it saw, becomes that of h as it was left
  bool has_direct, has_cell_state;
  void* grad_direct;  // A [B, H]: of h, what came past the matmuls, if anything did
  void* grad_c;       // A [B, H]: of c, if the cell has a cell state
};

void enter(Number, const EnterStep&, Stream);
void leave(Number, const LeaveStep&, Stream);

}  // namespace rotcell::cuda
