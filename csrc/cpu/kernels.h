// What a sequence kernel is given, and the table of kernels of one instruction set. No torch here.
//
// Letters in shapes: N tokens, B rows of the batch, I inputs, H units, P outputs (P = H without
// projection), G rows of the weights. Tokens lie step by step, each step's rows in batch order, as
// in PackedSequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cpu/barrier.h"

namespace rotcell::cpu {

// Which rows of the batch are alive at which step. Rows are sorted by decreasing length, so the
// rows alive at a step are the first batch_sizes[step] ones.
struct Steps {
  int64_t count;
  const int64_t* batch_sizes;  // [count], never increasing
  const int64_t* offsets;      // [count]: the token of row 0
  bool reverse;                // from the last step to the first
};

// A run of steps, counted in the order of processing, and its tokens. A backward pass goes through
// a sequence piece by piece, so that what is made for every token only on the way to the weight
// gradients need not be kept for the whole sequence.
struct Piece {
  int64_t begin, end;
  int64_t first_token, tokens;
};

// Rows of the batch.
struct RowRange {
  int64_t begin;
  int64_t end;
};

// Units of a layer.
struct UnitRange {
  int64_t begin;  // a multiple of Kernels::unit_tile
  int64_t end;    // likewise, or the number of units
};

// What one thread carries through a whole sequence. A thread with all units of its rows need wait
// for nobody. Threads with the same rows and other units wait for each other at every step.
struct Work {
  RowRange rows;
  UnitRange units;
  Barrier* others;  // null: this thread has all units
};

// The input product x w_ih^T is made step by step, in one go with the recurrent product, if x is
// given; otherwise the caller has put it, with the biases, into `gates`.
template <class T>
struct LstmForward {
  Steps steps;
  int64_t inputs;       // I; 0 without x
  int64_t hidden;       // H
  int64_t outputs;      // P
  const T* weights;     // [w_ih, w_hh] packed, or w_hh alone without x; of the units in order
  const T* unpacked;    // w_hh [G, P], instead of weights: for a few tokens, without x
  const T* projection;  // w_hr packed, or null: no projection
  const T* x;           // [N, I], or null
  const T* bias;        // [G], or null; not used without x
  const T* h0;          // [B, P]
  const T* c0;          // [B, H]
  T* gates;             // [N, G]; becomes the activations if save. [B, G] scratch if x and not save
  T* out;               // [N, P]
  T* cells;             // [N, H] if save; otherwise [B, H], the running state
  T* unprojected;       // [B, H] scratch, or null: no projection
  T* h_n;               // [B, P]; may be h0
  T* c_n;               // [B, H]; may be c0, and cells if not save
  bool save;
};

template <class T>
struct LstmBackward {
  Steps steps;
  Piece piece;  // what to go back through; the pieces behind it are done
  int64_t inputs;
  int64_t hidden;
  int64_t outputs;
  const T* recurrent;  // w_hh, packed for the way back; of the units in order
  const T* unpacked;   // w_hh [G, P], instead of it: for a few tokens
  const T* input;      // w_ih, packed for the way back, or null: the gradient of x is not made here
  const T* projection;  // w_hr, packed for the way back, or null
  const T* c0;          // [B, H]
  const T* gates;       // [N, G] activations
  const T* cells;       // [N, H]
  const T* grad_out;    // [N, P], or null: zero
  T* grad_h;            // [B, P]: gradient of h after the piece, becomes that of h before it
  T* grad_c;            // [B, H]: gradient of c, likewise
  T* grad_gates;        // [piece.tokens, G] out
  T* grad_x;            // [N, I] out; null without input
  T* grad_projected;    // [N, P] out: the whole gradient of each output; null without projection
  T* unprojected;       // [N, H] out: o tanh(c) again; null without projection
  T* grad_unprojected;  // [B, H] scratch; null without projection
};

template <class T>
struct GruForward {
  Steps steps;
  int64_t inputs;
  int64_t hidden;
  const T* weights;   // [w_ih, w_hh] packed, or w_hh alone without x; of the units in order
  const T* unpacked;  // w_hh [G, H], instead of weights: for a few tokens, without x
  const T* x;         // [N, I], or null
  const T* bias;      // [G], or null; not used without x
  const T* h0;        // [B, H]
  T* gates;           // [N, G]; becomes the activations if save. [B, G] scratch if x and not save
  T* out;             // [N, H]
  T* rotated;         // [B, H] scratch
  T* h_n;             // [B, H]; may be h0
  bool save;
};

template <class T>
struct GruBackward {
  Steps steps;
  Piece piece;  // what to go back through; the pieces behind it are done
  int64_t inputs;
  int64_t hidden;
  const T* recurrent;  // w_hh, packed for the way back; of the units in order
  const T* unpacked;   // w_hh [G, P], instead of it: for a few tokens
  const T* input;      // w_ih, packed for the way back, or null: the gradient of x is not made here
  const T* h0;         // [B, H]
  const T* gates;      // [N, G] activations
  const T* out;        // [N, H]
  const T* grad_out;   // [N, H], or null: zero
  T* grad_h;           // [B, H]: gradient of h after the piece, becomes that of h before it
  T* grad_gates;       // [piece.tokens, G] out
  T* grad_x;           // [N, I] out; null without input
  T* rotated;          // [piece.tokens, H] out: what the candidate saw of the old state, again
};

// What one of several threads does of a piece of work that is shared out evenly.
struct Share {
  int64_t index, count;

  constexpr int64_t begin(int64_t items) const { return items * index / count; }
  constexpr int64_t end(int64_t items) const { return items * (index + 1) / count; }
};

// Weights [rows, depth] packed for products with rows of length depth or, on the way back, `rows`.
template <class T>
struct Packing {
  int64_t (*elements)(int64_t rows, int64_t depth);
  void (*pack)(const T* weights, int64_t rows, int64_t depth, T* packed, Share);
};

// w_hh [G, depth], with w_ih [G, x_depth] before it on the way forward if it takes part, packed as
// the kernels of one cell want it for those units. Packed units lie one range behind the other.
template <class T>
struct RecurrentPacking {
  int64_t (*elements)(int64_t hidden, int64_t x_depth, int64_t depth, UnitRange);
  void (*pack)(const T* x_weights, const T* weights, int64_t hidden, int64_t x_depth, int64_t depth,
               UnitRange, T* packed, Share);
};

template <class T>
struct Kernels {
  const char* instruction_set;
  int64_t row_tile;   // rows of a register tile: a range of rows is best a multiple of it
  int64_t unit_tile;  // units that the cell maths takes at once: a range of units is cut there
  Packing<T> forward_weights, backward_weights;
  RecurrentPacking<T> lstm_forward_weights, lstm_backward_weights;
  RecurrentPacking<T> gru_forward_weights, gru_backward_weights;
  // result [count, columns] = bias + rows [count, depth] x panels; no bias: null.
  void (*product)(const T* rows, int64_t count, int64_t depth, const T* panels, int64_t columns,
                  const T* bias, T* result);
  // For a few rows, with weights that are not packed: result [count, columns] += rows [count,
  // depth] x weights^T [columns, depth].
  void (*add_unpacked)(const T* rows, int64_t count, int64_t depth, const T* weights,
                       int64_t columns, T* result, int64_t result_stride);
  // Likewise result [count, columns] = rows [count, depth] x weights [depth, columns].
  void (*unpacked_back)(const T* rows, int64_t count, int64_t depth, const T* weights,
                        int64_t weight_stride, int64_t columns, T* result, int64_t result_stride);
  void (*lstm_forward)(const LstmForward<T>&, const Work&);
  void (*lstm_backward)(const LstmBackward<T>&, const Work&);
  void (*gru_forward)(const GruForward<T>&, const Work&);
  void (*gru_backward)(const GruBackward<T>&, const Work&);
};

// One table for each number type: all that an instruction set offers.
struct InstructionSet {
  Kernels<float> float_kernels;
  Kernels<double> double_kernels;
};

extern const InstructionSet generic_set;
#if defined(ROTCELL_X86)
extern const InstructionSet avx2_set;
extern const InstructionSet avx512_set;
#endif

// The widest set that this machine runs, or the one that the environment variable ROTCELL_ISA
// names.
const InstructionSet& instruction_set();

// The names of all sets built in that this machine runs, narrowest first.
std::vector<std::string> instruction_set_names();

template <class T>
const Kernels<T>& kernels();

template <>
inline const Kernels<float>& kernels<float>() {
  return instruction_set().float_kernels;
}
template <>
inline const Kernels<double>& kernels<double>() {
  return instruction_set().double_kernels;
}

}  // namespace rotcell::cpu
