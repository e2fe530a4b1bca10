// What a sequence kernel is given, and the table of kernels of one instruction set. No torch here.
//
// Letters in shapes: N tokens, B rows of the batch, I inputs, H units, P outputs (P = H without
// projection), G columns of the gates, R_x and R_h rows of w_ih and w_hh (cells/sizes.h). Tokens
// lie as cells/steps.h describes.
//
// T is the type of what is stored. Kernels compute in MathType<T>: the same, but for BFloat16.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cells/list.h"
#include "cells/passes.h"
#include "cells/state_hooks.h"
#include "cells/steps.h"
#include "cpu/bfloat16.h"
#include "cpu/loops/quantized.h"
#include "cpu/runtime/barrier.h"

namespace rotcell::cpu {

// Units of a layer.
struct UnitRange {
  int64_t begin;  // a multiple of CellKernels::unit_tile
  int64_t end;    // as begin, or the number of units
};

// What one thread carries through a chunk of a sequence. With all units of its rows it never waits;
// threads that share rows but not units meet at the barrier after every stage. If the math sees
// whole rows, they share units in the matmuls only, and rows in the math.
struct Work {
  RowRange rows;
  UnitRange units;
  Barrier* barrier;           // not used by a thread that has all units
  int64_t slot;               // which of the partial weight gradients is this thread's
  RowRange math_rows = rows;  // if the math sees whole rows
};

// What the lanes of a vector hold.
enum class Layout {
  kUnits,  // units of a row
  kBatch,  // rows of the batch, of one unit: for small weights; no projection, matmuls by step
};

// How the matmuls with w_ih are made, and whether w_hh is packed.
enum class MatmulMode {
  kByStep,    // in the kernel, in one go with the recurrent matmul; all weights are packed
  kByChunk,   // for all tokens of a chunk, outside the kernel; w_hh is packed
  kUnpacked,  // as kByChunk, but w_hh is not packed: for few tokens
};

// From this many rows on they are worth being brought into panels for a matmul with unpacked
// weights.
constexpr int64_t kManyUnpackedRows = 12;

enum class Projection { kNone, kPresent };

// What a bias belongs to.
enum class BiasOf {
  kLayer,  // one for all rows of the batch
  kRow,    // each row has its own; no state hooks
};

// Sizes and choices of a call, the same for all kernels of it.
struct Call {
  Steps steps;
  int64_t inputs, hidden, outputs;  // I, H, P
  MatmulMode matmuls;
  Keep keep;
  Projection projection;
  Activations activations;
  HiddenFeeds hidden_feeds = HiddenFeeds::kAll;  // Layout::kBatch: kAll
  BiasOf bias_of = BiasOf::kLayer;
};

// Which share of a state zoneout keeps.
template <class T>
struct ZoneoutKeep {
  const T* keep;   // [N, H], or [1, H], the same for all tokens
  int64_t stride;  // from one token to the next

  ROTCELL_INLINE const T* of(int64_t token) const { return keep + token * stride; }
};

// What happens to the state between steps, and scratch for it if anything does. Layout::kUnits
// only.
template <class T>
struct HookPointers {
  StateHooks what;
  const bool* reset_mask;    // [N], if resets: a new sequence begins at this token
  const T* dropout;          // [B, P], if recurrent dropout: factors of what the matmuls see
  ZoneoutKeep<T> zoneout_h;  // if zoneout of h
  ZoneoutKeep<T> zoneout_c;  // if zoneout of c
  T* h;                      // [B, P]: what a step starts from
  MathType<T>* c;            // [B, H]: as h, if the cell has a cell state; forward
  T* stored_c;               // [B, H]: the same in the backward pass
  T* masked_h;  // what matmuls see of h. Forward: [B, P], may be h; backward: [chunk.tokens, P] out
  // In the backward pass:
  MathType<T>* grad_masked_h;  // [B, P]
  MathType<T>* grad_h_past;    // [B, H], if zoneout of h: gradient of what stayed
  MathType<T>* grad_c_past;    // [B, H], if zoneout of c, as for c_unmixed
  T* c_unmixed;                // [B, H]: the recomputed cell state before zoneout
};

// What the math of whole rows gets in addition to a row's states and gates; empty for other cells.
template <class T>
struct RowPointers {
  RowParameters<T> parameters;
  const T* prepared = nullptr;  // RowKernels::prepared numbers
  T* scratch = nullptr;         // by slot: [slots, scratch_width]
  int64_t scratch_width = 0;
  T* gradients = nullptr;  // backward: [ceil(B / row_tile), gradient_width] added to; a slot for
                           // the rows of each tile, so that no thread changes the order of a sum
  int64_t gradient_width = 0;
};

template <class T>
struct Forward {
  Call call;
  Chunk chunk;
  HookPointers<T> hooks = {};
  const T* weights;     // kByStep: [w_ih, w_hh] packed; kByChunk: w_hh packed; by ranges of units
  const T* w_hh;        // kUnpacked: [R_h, P]
  const T* projection;  // w_hr packed, if kPresent
  const T* x;           // kByStep: [chunk.tokens, I]
  const MathType<T>* bias;  // kByStep: [G], zeros if the layer has none; [B, G] if of rows
  const T* h0;              // [B, P]
  const T* c0;              // [B, H], if the cell has a cell state, as for c, cells and c_n
  T* gates;                 // [N, G] with kForBackward
  // As `gates` if these are kept and T is MathType<T>; otherwise [chunk.tokens, G], or for kByStep
  // [B, G]. Unless kByStep it holds what x and the biases give.
  MathType<T>* preactivations;
  T* second_operand;  // [B, H] scratch: what the second matmul multiplies, if there is one
  T* out;             // [N, P]
  MathType<T>* c;     // [B, H] the running cell state, at first c0; may be c_n. Not used if cells
                      // are kept and T is MathType<T>
  T* cells;           // [N, H], if kept
  T* unprojected;     // [B, H] scratch, if projected
  T* h_n;             // [B, P]
  T* c_n;             // [B, H]
  RowPointers<MathType<T>> row = {};
  const QuantizedMatmuls* int8 = nullptr;  // instead of w_hh and projection; kUnpacked, float
};

enum class WeightGradient { kNotHere, kBySlot };
enum class InputGradient { kNotHere, kByStep };

template <class T>
struct Backward {
  Call call;
  Chunk chunk;  // what to go back through; the chunks behind it are done
  HookPointers<T> hooks = {};
  InputGradient input_gradient;
  OutputGradient output_gradient;
  CellStateGradient cell_state_gradient = CellStateGradient::kLast;  // Layout::kBatch: kLast
  WeightGradient weight_gradient;                                    // Layout::kBatch only
  const T* recurrent;   // w_hh packed for the backward pass, by ranges of units; unless kUnpacked
  const T* w_hh;        // kUnpacked: [R_h, P]
  const T* w_ih;        // packed for the backward pass, if the gradient of x is made by step; with
                        // Layout::kBatch it is part of `recurrent`
  const T* projection;  // w_hr packed for the backward pass, if projected
  const T* h0;          // [B, P]
  const T* c0;          // [B, H]; if the cell has a cell state, as are cells and grad_c
  const T* gates;       // [N, G] activations
  const T* cells;       // [N, H]
  const T* out;         // [N, P]
  const T* grad_out;    // [N, P], if given
  const T* grad_cells = nullptr;  // [N, H], if of every step
  const T* x;                     // [N, I], for the weight gradient by slot
  MathType<T>* grad_h;  // [B, P]: gradient of h after the chunk, becomes that of h before it
  MathType<T>* grad_c;  // [B, H]: gradient of c, as grad_h
  T* grad_gates;        // [chunk.tokens, G] out
  T* grad_x;            // [N, I] out, if made by step
  T* second_operand;    // [chunk.tokens, H] out: what the second matmul multiplied, if there is one
  MathType<T>* grad_second_operand = nullptr;  // [B, H] scratch: its gradient; Layout::kUnits
  MathType<T>*
      grad_weights;  // by slot: [slots, G, BatchVectorizedKernels::gradient_width], added to
  MathType<T>* grad_row_bias =
      nullptr;                    // [B, G] added to, if the bias is of rows; Layout::kBatch only
  T* grad_projected;              // [N, P] out, if projected: the whole gradient of each output
  T* unprojected;                 // [N, H] out, if projected: what was projected, recomputed
  MathType<T>* grad_unprojected;  // [B, H] scratch, if projected
  RowPointers<MathType<T>> row = {};
};

// One thread's part of work that is split evenly.
struct Slice {
  int64_t index, count;

  ROTCELL_INLINE constexpr int64_t begin(int64_t items) const { return items * index / count; }
  ROTCELL_INLINE constexpr int64_t end(int64_t items) const { return items * (index + 1) / count; }
};

// Weights [rows, depth] packed for matmuls with rows of length depth or, in the backward pass,
// `rows`.
template <class T>
struct Packing {
  int64_t (*elements)(int64_t rows, int64_t depth);
  void (*pack)(const T* weights, int64_t rows, int64_t depth, T* packed, Slice);
};

// The place of some rows in panels that are `depth` deep and have `columns` columns in all.
struct FactorPlace {
  int64_t first_column, first_depth;
  int64_t columns, depth;
};

// Whether a gradient holds a sum already.
enum class Accumulate { kOverwrite, kAdd };

// So many tokens at once are added to the weight gradients at most: a panel of their factors, used
// again and again, stays in the second-level cache.
constexpr int64_t kMostPieceTokens = 512;

// What some tokens add to the gradients of some rows of the weights.
template <class T>
struct GradientPiece {
  const T* grads;  // gradients of the rows' gates: [tokens, rows], `stride` apart
  int64_t stride, rows, tokens;
  const T* factors;  // packed: x, and what w_hh was multiplied with
  int64_t inputs, outputs;
  Accumulate start;
  MathType<T>* w_ih;  // [rows, inputs]; null if x does not feed the rows
  MathType<T>* w_hh;  // [rows, outputs]; null if h does not
  MathType<T>* bias;  // [rows]
};

// The weights that enter a cell's recurrent matmuls: [w_ih, w_hh] or w_hh alone.
template <class T>
struct RecurrentWeights {
  const T* w_ih;  // [R_x, inputs]; not read if inputs is 0
  const T* w_hh;  // [R_h, outputs]
  int64_t hidden, inputs, outputs;
  HiddenFeeds hidden_feeds;
};

// These packed for a range of units. Packed ranges lie one behind the other.
template <class T>
struct RecurrentPacking {
  int64_t (*elements)(const RecurrentWeights<T>&, UnitRange);
  void (*pack)(const RecurrentWeights<T>&, UnitRange, T* packed, Slice);
};

// Kernels with Layout::kBatch. Weights are packed for all units, with the biases of the layer. All
// null for storage types, which compute in another type.
template <class T>
struct BatchVectorizedKernels {
  int64_t block_rows;  // rows of the batch that a block of lanes holds
  int64_t (*forward_elements)(const RecurrentWeights<T>&, BiasOf);
  // bias [G] is not read if it is of rows.
  void (*pack_forward)(const RecurrentWeights<T>&, BiasOf, const MathType<T>* bias, T* packed);
  int64_t (*backward_elements)(const RecurrentWeights<T>&);
  void (*pack_backward)(const RecurrentWeights<T>&, T* packed);
  // Columns of a partial weight gradient: those of x, of the old output, 1 for the bias, padding.
  int64_t (*gradient_width)(int64_t inputs, int64_t outputs);
  void (*forward)(const Forward<T>&, const Work&);
  void (*backward)(const Backward<T>&, const Work&);
};

// For cells whose math sees whole rows, otherwise null. H units, L layers of constant rotations.
template <class T>
struct RowKernels {
  int64_t (*prepared)(int64_t hidden, int64_t layers) = nullptr;  // numbers made once per call
  void (*prepare)(const RowParameters<T>&, T* to) = nullptr;
  int64_t (*scratch)(int64_t hidden) = nullptr;  // numbers of scratch per thread
  // Numbers of the gradients of all parameters, and where each is.
  int64_t (*gradients)(int64_t hidden, int64_t layers) = nullptr;
  RowGradients<T> (*find_gradients)(T*, int64_t hidden, int64_t layers) = nullptr;
};

template <class T>
struct CellKernels {
  int64_t unit_tile;  // units that the cell math takes at once: a range of units is cut there
  RecurrentPacking<T> forward_weights, backward_weights;
  void (*forward)(const Forward<T>&, const Work&);
  void (*backward)(const Backward<T>&, const Work&);
  BatchVectorizedKernels<T> batch_vectorized;  // null pointers if the cell has no such loop
  RowKernels<MathType<T>> row = {};
};

template <class T>
struct Kernels {
  const char* instruction_set;
  int64_t row_tile;  // rows of a register tile: a range of rows is best a multiple of it
  Packing<T> forward_weights, backward_weights;
  // result [count, columns] = bias [columns] + rows [count, depth] x panels; the strides are
  // those of rows and results.
  void (*matmul)(const T* rows, int64_t row_stride, int64_t count, int64_t depth, const T* panels,
                 int64_t columns, const MathType<T>* bias, MathType<T>* result,
                 int64_t result_stride);
  // The same with a rounded result.
  void (*matmul_stored)(const T* rows, int64_t row_stride, int64_t count, int64_t depth,
                        const T* panels, int64_t columns, const MathType<T>* bias, T* result,
                        int64_t result_stride);
  // With weights that are not packed; null for storage types. result [count,
  // columns] += rows [count, depth] x weights^T [columns, depth].
  void (*add_unpacked)(const T* rows, int64_t count, int64_t depth, const T* weights,
                       int64_t columns, T* result, int64_t result_stride);
  // Also unpacked: result [count, columns] = rows [count, depth] x weights [depth, columns].
  void (*unpacked_back)(const T* rows, int64_t row_stride, int64_t count, int64_t depth,
                        const T* weights, int64_t weight_stride, int64_t columns, T* result,
                        int64_t result_stride);
  // [x, h] of the weight gradient: the elements it takes, and packing `count` rows of it.
  int64_t (*factor_elements)(int64_t tokens, int64_t columns);
  void (*pack_factors)(const T* rows, int64_t count, int64_t width, const FactorPlace&, T* packed,
                       Slice);
  void (*add_gradients)(const GradientPiece<T>&);
  std::array<CellKernels<T>, AllCells::kCount> cells;  // by CellIndex
};

// One table for each dtype.
extern const Kernels<float> generic_float_kernels, avx2_float_kernels, avx512_float_kernels;
extern const Kernels<double> generic_double_kernels, avx2_double_kernels, avx512_double_kernels;
extern const Kernels<BFloat16> generic_bfloat16_kernels, avx512_bf16_bfloat16_kernels;

// All that an instruction set offers.
struct InstructionSet {
  const Kernels<float>& float_kernels;
  const Kernels<double>& double_kernels;
  const Kernels<BFloat16>* bfloat16_kernels;  // null: layers in bfloat16 run in float
};

// The widest set that this machine runs, or the one that the environment variable ROTCELL_ISA
// names.
const InstructionSet& instruction_set();

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
template <>
inline const Kernels<BFloat16>& kernels<BFloat16>() {
  return *instruction_set().bfloat16_kernels;
}

}  // namespace rotcell::cpu
