// The stepwise path over a whole sequence: what all its steps share, and what of it a stage of one
// step is given. For host and device, as there are two ways to launch a stage: now, told where its
// rows are; or ahead, as a part of a CUDA graph, which is used for many sequences. Then it finds
// out when it runs, from the sequence that is placed in the device's memory at the time.
//
// Letters in shapes as in kernels.h; P is the width of h, which a projection makes another than H.
#pragma once

#include "cuda/kernels.h"

namespace rotcell::cuda {

// The shares of a state that stay, of all tokens.
struct SharesOfTokens {
  const void* shares = nullptr;  // T [N, H], or [1, H]
  int64_t stride = 0;            // from one token to the next; 0: the same for all
};

// What the steps of both directions have in common.
struct StepwiseSequence {
  Steps steps;          // in the device's memory of equal lengths
  int64_t first;        // in the device's memory: the position that the first step ahead is at
  int hidden, outputs;  // H, P
  int64_t gate_rows;    // G
  int number_bytes, compute_bytes;  // of T, of A
  int last_stage;
  bool has_memory;
  GateFunctions functions;
  StateChanges changes;
  const bool* resets;   // [N], if so
  const void* dropout;  // T [B, P], if so
  SharesOfTokens zoneout_h, zoneout_c;
  const void* h0;  // T [B, P]
};

struct StepwiseForward : StepwiseSequence {
  Keep keep;
  ResultIs result_is;  // of the last stage
  // Of all tokens:
  void* from_input;  // T [N, G]
  void* out;         // T [N, P]
  void* gates;       // T [N, G], if kept; may be from_input
  void* cells;       // T [N, H], if kept
  // Handed from step to step, or from stage to stage:
  void* h;         // T [B, P]
  void* c;         // A [B, H]
  void* seen;      // T [B, P]: what the first product sees of h; may be h
  void* products;  // T [B, G]
  void* operands;  // T [B, H], if there are several stages
  void* result;    // T [B, H]: of the last stage; may be h
};

struct StepwiseBackward : StepwiseSequence {
  OutputGradient output_gradient;
  MemoryGradient memory_gradient;
  Again operands_again, result_again;
  bool has_direct;
  // Of all tokens:
  const void *gates, *cells, *out;  // as kept
  const void* grad_out;             // T [N, P], if given
  const void* grad_cells;           // A [N, H], if of every step
  void* grad_gates;                 // T [N, G]
  void* seen;                       // T [N, P], if something changes before the products
  void *operands, *results;         // T [N, H], if wanted again
  const void* c0;                   // A [B, H]
  // Handed from step to step, or from stage to stage:
  void* grad_h;         // T [B, P]
  void* grad_c;         // A [B, H]
  void* grad_direct;    // A [B, H], if something passes the products
  void* grad_operands;  // T [B, H], if there are several stages
  void* grad_result;    // T [B, H]: of the last stage; may be grad_h
  Again gates_again;
  void* grad_gates_of_step;  // T [B, G], if wanted again
};

// ---- Of one step

ROTCELL_INLINE void* row_at(const void* rows, int64_t index, int64_t row_bytes) {
  if (rows == nullptr) return nullptr;
  return const_cast<char*>(static_cast<const char*>(rows)) + index * row_bytes;
}

ROTCELL_INLINE Shares shares_at(const StepwiseSequence& s, const SharesOfTokens& of,
                                int64_t token) {
  return {row_at(of.shares, token, of.stride * s.number_bytes), of.stride};
}

ROTCELL_INLINE Beginnings beginnings_at(const StepwiseSequence& s, const Step& step) {
  return s.changes.resets ? beginnings(s.resets, s.steps, step) : kNoBeginnings;
}

ROTCELL_INLINE StageForward stage_of(const StepwiseForward& s, int stage, const Step& step) {
  const bool last = stage == s.last_stage;
  const int64_t bytes = s.number_bytes;
  return {.stage = stage,
          .rows = step.rows,
          .hidden = s.hidden,
          .functions = s.functions,
          .keep = s.keep,
          .result_is = last ? s.result_is : ResultIs::kOperand,
          .changes = s.changes,
          .zoneout_h = shares_at(s, s.zoneout_h, step.token),
          .zoneout_c = shares_at(s, s.zoneout_c, step.token),
          .preactivations_t = row_at(s.from_input, step.token, s.gate_rows * bytes),
          .products = s.products,
          .h = last ? s.h : s.seen,
          .c = s.c,
          .result = last ? s.result : s.operands,
          .out_t = row_at(s.out, step.token, s.outputs * bytes),
          .gates_t = row_at(s.gates, step.token, s.gate_rows * bytes),
          .cells_t = row_at(s.cells, step.token, s.hidden * bytes)};
}

ROTCELL_INLINE EnterStep entry_of(const StepwiseForward& s, const Step& step) {
  return {.changes = s.changes,
          .rows = step.rows,
          .hidden = s.hidden,
          .outputs = s.outputs,
          .begins_anew = beginnings_at(s, step),
          .dropout = s.dropout,
          .h = s.h,
          .c = s.c,
          .has_memory = s.has_memory,
          .seen = s.seen};
}

ROTCELL_INLINE StageBackward stage_of(const StepwiseBackward& s, int stage, const Step& step) {
  const bool last = stage == s.last_stage;
  const int64_t bytes = s.number_bytes, units = s.hidden * bytes, width = s.outputs * bytes;
  return {.stage = stage,
          .rows = step.rows,
          .carried = step.carried,
          .hidden = s.hidden,
          .functions = s.functions,
          .output_gradient = last ? s.output_gradient : OutputGradient::kZero,
          .memory_gradient = s.memory_gradient,
          .result_again = last ? s.result_again : s.operands_again,
          .changes = s.changes,
          .begins_anew = beginnings_at(s, step),
          .dropout = s.dropout,
          .zoneout_h = shares_at(s, s.zoneout_h, step.token),
          .zoneout_c = shares_at(s, s.zoneout_c, step.token),
          .gates_t = row_at(s.gates, step.token, s.gate_rows * bytes),
          .cells_t = row_at(s.cells, step.token, units),
          .cells_before = row_at(s.cells, step.token_before, units),
          .c0 = s.c0,
          .out_before = row_at(s.out, step.token_before, width),
          .h0 = s.h0,
          .grad_out_t = row_at(s.grad_out, step.token, width),
          .grad_cells_t = row_at(s.grad_cells, step.token, int64_t{1} * s.hidden * s.compute_bytes),
          .grad_result = last ? s.grad_result : s.grad_operands,
          .grad_direct = s.grad_direct,
          .grad_c = s.grad_c,
          .grad_gates_t = row_at(s.grad_gates, step.token, s.gate_rows * bytes),
          .gates_again = s.gates_again,
          .grad_gates = s.grad_gates_of_step,
          .result_t = row_at(last ? s.results : s.operands, step.token, units)};
}

ROTCELL_INLINE LeaveStep exit_of(const StepwiseBackward& s, const Step& step) {
  const int64_t width = int64_t{1} * s.outputs * s.number_bytes;
  return {.changes = s.changes,
          .rows = step.rows,
          .carried = step.carried,
          .hidden = s.hidden,
          .outputs = s.outputs,
          .begins_anew = beginnings_at(s, step),
          .dropout = s.dropout,
          .out_before = row_at(s.out, step.token_before, width),
          .h0 = s.h0,
          .seen_t = row_at(s.seen, step.token, width),
          .grad_h = s.grad_h,
          .has_direct = s.has_direct,
          .has_memory = s.has_memory,
          .grad_direct = s.grad_direct,
          .grad_c = s.grad_c};
}

// ---- Ahead: the `ahead`th step from the first position on, of the sequence that is at that
// address when it runs. Every row is alive.

template <class Sequence>
struct Ahead {
  const Sequence* sequence;
  int ahead;
  // As those of every such sequence.
  int64_t rows;
  int hidden, outputs;
  bool has_memory;
};

ROTCELL_INLINE Step step_ahead(const StepwiseForward& s, int ahead) {
  return step_at(s.steps, s.first + ahead);
}
ROTCELL_INLINE Step step_ahead(const StepwiseBackward& s, int ahead) {
  return step_at(s.steps, s.first - ahead);
}

void stage_ahead(CellIndex, Number, int stage, const Ahead<StepwiseForward>&, Stream);
void stage_ahead(CellIndex, Number, int stage, const Ahead<StepwiseBackward>&, Stream);
void enter_ahead(Number, const Ahead<StepwiseForward>&, Stream);
void leave_ahead(Number, const Ahead<StepwiseBackward>&, Stream);

// Puts a sequence there, in the order of the stream.
void place(const StepwiseForward&, StepwiseForward* there, Stream);
void place(const StepwiseBackward&, StepwiseBackward* there, Stream);

}  // namespace rotcell::cuda
