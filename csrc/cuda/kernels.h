// What the CUDA kernels are given, and the functions that launch them. No CUDA headers and no torch
// here.
//
// Letters in shapes: N tokens, B rows of the batch, H units, G rows of the weights. T is the number
// type of the tensors, A the one computed in (float32 for half types). Tokens lie step by step,
// each step's rows in batch order, as in PackedSequence; a step's pointers (..._t) point at the
// first of its tokens.
#pragma once

#include <cstdint>

#include "cuda/numbers.h"
#include "cuda/plan.h"
#include "cuda/stream.h"

namespace rotcell::cuda {

// Which rows of the batch are alive at which step. Rows are sorted by decreasing length, so the
// rows alive at a step are the first batch_sizes[step] ones.
struct Steps {
  int64_t count;
  int64_t batch;               // B
  const int64_t* batch_sizes;  // [count] on the device, or null: B at every step
  const int64_t* offsets;      // [count] on the device: the token of row 0; null with batch_sizes
  bool reverse;                // from the last step to the first
};

// ---- A whole sequence: the resident and the cooperative kernels.

struct LstmForward {
  Steps steps;
  int hidden;
  const void* from_input;  // T [N, G]: x w_ih^T and the biases
  const void* w_hh;        // T [G, H]
  const void* h0;          // T [B, H]
  void* c;                 // A [B, H]: c0, becomes c_n
  void* out;               // T [N, H]
  void* h_n;               // T [B, H]
  void* gates;             // A [N, G]: the activations, or null: not kept; may be from_input
  void* cells;             // A [N, H], or null: not kept
};

struct LstmBackward {
  Steps steps;
  int hidden;
  const void* w_hh;      // T [G, H]
  const void* c0;        // A [B, H]
  const void* gates;     // A [N, G] activations
  const void* cells;     // A [N, H]
  const void* grad_out;  // T [N, H], or null: zero
  void* grad_h;          // A [B, H]: gradient of h_n, becomes that of h0
  void* grad_c;          // A [B, H]: gradient of c_n, becomes that of c0
  void* grad_gates;      // T [N, G] out
};

struct GruForward {
  Steps steps;
  int hidden;
  const void* from_input;  // T [N, G]
  const void* w_hh;        // T [G, H]
  const void* h0;          // T [B, H]
  void* out;               // T [N, H]
  void* h_n;               // T [B, H]
  void* gates;             // A [N, G] if save, may be from_input; otherwise [B, G] scratch
  void* rotated;           // T [B, H] scratch
  bool save;
};

struct GruBackward {
  Steps steps;
  int hidden;
  const void* w_hh;      // T [G, H]
  const void* h0;        // T [B, H]
  const void* gates;     // A [N, G] activations
  const void* out;       // T [N, H]
  const void* grad_out;  // T [N, H], or null: zero
  void* grad_h;          // A [B, H]: gradient of h_n, becomes that of h0
  void* grad_gates;      // T [N, G] out
  void* rotated;         // T [N, H] out: what the candidate saw of the old state, again
};

// The path of the plan must be the one of the function; the request is the one it was made for.
void resident(const Request&, const Plan&, const LstmForward&, Stream);
void resident(const Request&, const Plan&, const LstmBackward&, Stream);
void resident(const Request&, const Plan&, const GruForward&, Stream);
void resident(const Request&, const Plan&, const GruBackward&, Stream);
void cooperative(const Request&, const Plan&, const LstmForward&, Stream);
void cooperative(const Request&, const Plan&, const LstmBackward&, Stream);
void cooperative(const Request&, const Plan&, const GruForward&, Stream);
void cooperative(const Request&, const Plan&, const GruBackward&, Stream);

// ---- One step: what is left of it when torch has made the products. R rows are alive.

struct LstmStepForward {
  int64_t rows;  // R
  int hidden;
  const void* preactivations_t;  // T [R, G]
  void* c;                       // A [B, H]: the running state
  void* h;        // T [B, H]: the running state; with a projection, what is projected
  void* out_t;    // T [R, H], or null: h is enough
  void* gates_t;  // A [R, G], or null: not kept; may be preactivations_t
  void* cells_t;  // A [R, H], or null: not kept
};

struct LstmStepBackward {
  int64_t rows;  // R
  int hidden;
  int64_t carried;           // rows that went on from the step before; the others began at c0
  const void* gates_t;       // A [R, G] activations
  const void* cells_t;       // A [R, H]
  const void* cells_before;  // A [carried, H]
  const void* c0;            // A [B, H]
  const void* grad_out_t;    // T [R, H], or null: zero
  const void* grad_h;        // T [B, H]: what later steps say; with a projection, all of it
  void* grad_c;              // A [B, H]: of c, becomes that of c before
  void* grad_gates_t;        // T [R, G] out
  void* unprojected_t;       // T [R, H] out: o tanh(c) again, or null: not wanted
};

// What the candidate sees of the old state.
struct GruStepReset {
  int64_t rows;  // R
  int hidden;
  const void* from_input_t;  // T [R, G]
  const void* recurrent;     // T [R, G]: h w_hh^T; the candidate's columns mean nothing
  const void* h;             // T [B, H]: the running state
  void* gates_t;             // A [R, G] out, but for the candidate; may be from_input_t
  void* rotated;             // T [R, H] out
};

struct GruStepUpdate {
  int64_t rows;  // R
  int hidden;
  const void* candidate_t;  // T [R, G]: preactivations in the candidate's columns
  void* gates_t;            // A [R, G]: z in, the candidate out; may be candidate_t
  void* h;                  // T [B, H]: the running state
  void* out_t;              // T [R, H]
};

struct GruStepUpdateBackward {
  int64_t rows;  // R
  int hidden;
  int64_t carried;           // rows that went on from the step before; the others began at h0
  const void* gates_t;       // A [R, G] activations
  const void* out_before;    // T [carried, H]
  const void* h0;            // T [B, H]
  const void* grad_out_t;    // T [R, H], or null: zero
  const void* grad_through;  // T [B, H]: what came through the later step's product
  void* grad_direct;         // A [B, H]: what came past it; becomes that of h before
  void* grad_gates_t;        // T [R, G]: z and candidate out
};

struct GruStepResetBackward {
  int64_t rows;  // R
  int hidden;
  int64_t carried;
  const void* gates_t;       // A [R, G] activations
  const void* out_before;    // T [carried, H]
  const void* h0;            // T [B, H]
  const void* grad_rotated;  // T [R, H]
  void* grad_direct;         // A [B, H]: added to
  void* grad_gates_t;        // T [R, G]: reset and angles out
  void* rotated_t;           // T [R, H] out
};

void step(Number, const LstmStepForward&, Stream);
void step(Number, const LstmStepBackward&, Stream);
void step(Number, const GruStepReset&, Stream);
void step(Number, const GruStepUpdate&, Stream);
void step(Number, const GruStepUpdateBackward&, Stream);
void step(Number, const GruStepResetBackward&, Stream);

}  // namespace rotcell::cuda
