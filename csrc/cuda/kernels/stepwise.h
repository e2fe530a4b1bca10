// The stepwise path over a whole sequence: what all its steps share, and what of it a stage of one
// step is given.
//
// Letters in shapes as in kernels.h; P is the width of h, which a projection makes another than H.
#pragma once

#include "cuda/kernels/kernels.h"

namespace rotcell::cuda {

// The shares of a state that zoneout keeps, for all tokens.
struct ZoneoutKeepOfTokens {
  const void* keep = nullptr;  // T [N, H], or [1, H]
  int64_t stride = 0;          // from one token to the next; 0: the same for all
};

// What the steps of both directions have in common.
struct StepwiseSequence {
  Steps steps;
  int hidden, outputs;              // H, P
  int64_t gate_rows;                // G
  int number_bytes, compute_bytes;  // of T, of A
  int last_stage;
  bool has_cell_state;
  Activations activations;
  StateHooks hooks;
  const bool* resets;   // [N], if there are resets
  const void* dropout;  // T [B, P], if there is recurrent dropout
  ZoneoutKeepOfTokens zoneout_h, zoneout_c;
  const void* h0;  // T [B, P]
};

struct StepwiseForward : StepwiseSequence {
  Keep keep;
  ResultIs result_is;  // of the last stage
  // For all tokens:
  void* from_input;  // T [N, G]
  void* out;         // T [N, P]
  void* gates;       // T [N, G], if kept; may be from_input
  void* cells;       // T [N, H], if kept
  // Handed from step to step, or from stage to stage:
  void* h;               // T [B, P]
  void* c;               // A [B, H]
  void* masked_h;        // T [B, P]: what the first matmul sees of h; may be h
  void* matmuls;         // T [B, G]
  void* second_operand;  // T [B, H], if there are several stages
  void* result;          // T [B, H]: of the last stage; may be h
};

struct StepwiseBackward : StepwiseSequence {
  OutputGradient output_gradient;
  CellStateGradient cell_state_gradient;
  Recompute recompute_second_operand, recompute_result;
  bool has_direct;
  // For all tokens:
  const void *gates, *cells, *out;  // as kept
  const void* grad_out;             // T [N, P], if given
  const void* grad_cells;           // A [N, H], if of every step
  void* grad_gates;                 // T [N, G]
  void* masked_h;                   // T [N, P], if something changes before the matmuls
  void *second_operand, *results;   // T [N, H], if recomputed
  const void* c0;                   // A [B, H]
  // Handed from step to step, or from stage to stage:
  void* grad_h;               // T [B, P]
  void* grad_c;               // A [B, H]
  void* grad_direct;          // A [B, H], if something passes the matmuls
  void* grad_second_operand;  // T [B, H], if there are several stages
  void* grad_result;          // T [B, H]: of the last stage; may be grad_h
};

// ---- One step

ROTCELL_INLINE void* row_at(const void* rows, int64_t index, int64_t row_bytes) {
  if (rows == nullptr) return nullptr;
  return const_cast<char*>(static_cast<const char*>(rows)) + index * row_bytes;
}

ROTCELL_INLINE ZoneoutKeep keep_at(const StepwiseSequence& s, const ZoneoutKeepOfTokens& of,
                                   int64_t token) {
  return {row_at(of.keep, token, of.stride * s.number_bytes), of.stride};
}

ROTCELL_INLINE Beginnings beginnings_at(const StepwiseSequence& s, const Step& step) {
  return s.hooks.resets ? beginnings(s.resets, s.steps, step) : kNoBeginnings;
}

ROTCELL_INLINE StageForward stage_of(const StepwiseForward& s, int stage, const Step& step) {
  const bool last = stage == s.last_stage;
  const int64_t bytes = s.number_bytes;
  return {.stage = stage,
          .rows = step.rows,
          .hidden = s.hidden,
          .activations = s.activations,
          .keep = s.keep,
          .result_is = last ? s.result_is : ResultIs::kOperand,
          .hooks = s.hooks,
          .zoneout_h = keep_at(s, s.zoneout_h, step.token),
          .zoneout_c = keep_at(s, s.zoneout_c, step.token),
          .preactivations_t = row_at(s.from_input, step.token, s.gate_rows * bytes),
          .matmuls = s.matmuls,
          .h = last ? s.h : s.masked_h,
          .c = s.c,
          .result = last ? s.result : s.second_operand,
          .out_t = row_at(s.out, step.token, s.outputs * bytes),
          .gates_t = row_at(s.gates, step.token, s.gate_rows * bytes),
          .cells_t = row_at(s.cells, step.token, s.hidden * bytes)};
}

ROTCELL_INLINE EnterStep entry_of(const StepwiseForward& s, const Step& step) {
  return {.hooks = s.hooks,
          .rows = step.rows,
          .hidden = s.hidden,
          .outputs = s.outputs,
          .starts_sequence = beginnings_at(s, step),
          .dropout = s.dropout,
          .h = s.h,
          .c = s.c,
          .has_cell_state = s.has_cell_state,
          .masked_h = s.masked_h};
}

ROTCELL_INLINE StageBackward stage_of(const StepwiseBackward& s, int stage, const Step& step) {
  const bool last = stage == s.last_stage;
  const int64_t bytes = s.number_bytes, units = s.hidden * bytes, width = s.outputs * bytes;
  return {.stage = stage,
          .rows = step.rows,
          .carried = step.carried,
          .hidden = s.hidden,
          .activations = s.activations,
          .output_gradient = last ? s.output_gradient : OutputGradient::kZero,
          .cell_state_gradient = s.cell_state_gradient,
          .recompute_result = last ? s.recompute_result : s.recompute_second_operand,
          .hooks = s.hooks,
          .starts_sequence = beginnings_at(s, step),
          .dropout = s.dropout,
          .zoneout_h = keep_at(s, s.zoneout_h, step.token),
          .zoneout_c = keep_at(s, s.zoneout_c, step.token),
          .gates_t = row_at(s.gates, step.token, s.gate_rows * bytes),
          .cells_t = row_at(s.cells, step.token, units),
          .cells_before = row_at(s.cells, step.token_before, units),
          .c0 = s.c0,
          .out_before = row_at(s.out, step.token_before, width),
          .h0 = s.h0,
          .grad_out_t = row_at(s.grad_out, step.token, width),
          .grad_cells_t = row_at(s.grad_cells, step.token, int64_t{1} * s.hidden * s.compute_bytes),
          .grad_result = last ? s.grad_result : s.grad_second_operand,
          .grad_direct = s.grad_direct,
          .grad_c = s.grad_c,
          .grad_gates_t = row_at(s.grad_gates, step.token, s.gate_rows * bytes),
          .result_t = row_at(last ? s.results : s.second_operand, step.token, units)};
}

ROTCELL_INLINE LeaveStep exit_of(const StepwiseBackward& s, const Step& step) {
  const int64_t width = int64_t{1} * s.outputs * s.number_bytes;
  return {.hooks = s.hooks,
          .rows = step.rows,
          .carried = step.carried,
          .hidden = s.hidden,
          .outputs = s.outputs,
          .starts_sequence = beginnings_at(s, step),
          .dropout = s.dropout,
          .out_before = row_at(s.out, step.token_before, width),
          .h0 = s.h0,
          .masked_h_t = row_at(s.masked_h, step.token, width),
          .grad_h = s.grad_h,
          .has_direct = s.has_direct,
          .has_cell_state = s.has_cell_state,
          .grad_direct = s.grad_direct,
          .grad_c = s.grad_c};
}

}  // namespace rotcell::cuda
