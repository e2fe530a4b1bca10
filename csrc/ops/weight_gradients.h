// The gradients of w_ih, w_hh and the bias on the CPU, added up chunk by chunk of a sequence.
#pragma once

#include <vector>

#include "cells/list.h"
#include "cpu/kernels.h"
#include "ops/arguments.h"
#include "ops/sequence.h"

namespace rotcell::ops {

// Every weight was multiplied with an element of x or of the old h. With these side by side in one
// matrix, all gradients are one product.
template <class T>
class WeightGradients {
 public:
  // x [N, I], h0 [B, P] and out [N, P] are contiguous and live on. No chunk has more than
  // chunk_tokens tokens.
  WeightGradients(const CellDescription& cell, const LayerSizes& sizes, const Sequence& sequence,
                  const Tensor& x, const Tensor& h0, const Tensor& out, int64_t chunk_tokens);

  // grad_gates [chunk.tokens, G]; operands [chunk.tokens, H]: what the second product multiplied,
  // undefined if the cell has none; seen [chunk.tokens, P]: what the first one did, undefined if
  // that is the output of the step before.
  void add(const Chunk& chunk, const Tensor& grad_gates, const Tensor& operands,
           const Tensor& seen);

  // Once all chunks are added: [G, I], [G, P] and [G].
  Tensor take_w_ih() { return std::move(w_ih_); }
  Tensor take_w_hh() { return std::move(w_hh_); }
  Tensor take_bias() { return std::move(bias_); }

 private:
  // Some tokens of a chunk.
  struct Piece {
    int64_t begin, end;
    int64_t tokens() const { return end - begin; }
  };
  // Rows of [., P] that lie together, and where they stand in a piece.
  struct Run {
    const T* rows;
    int64_t count, first_depth;
  };
  // Rows of w_hh that multiplied the operands, instead of the old h.
  struct OperandRows {
    int64_t first = 0, count = 0;
    int64_t end() const { return first + count; }
  };

  // What the tokens of a piece started from.
  std::vector<Run> old_h(const Chunk& chunk, const Piece& piece) const;
  // x, and beside it these rows.
  void pack(const Piece& piece, const std::vector<Run>& beside, const Tensor& factors) const;
  void add_piece(const Piece& piece, const T* grad_gates);

  const LayerSizes& sizes_;
  const Sequence& sequence_;
  const Tensor &x_, &h0_, &out_;
  OperandRows operand_rows_;
  Tensor with_h_, with_operands_;  // packed factors of a piece
  Tensor w_ih_, w_hh_, bias_;
  cpu::GradientSum start_ = cpu::GradientSum::kFirst;
};

// The same, where every thread made those of its own rows: partial sums, added up at the end in the
// order of the threads.
template <class T>
class PartialWeightGradients {
 public:
  // `width` columns, as the kernels want.
  PartialWeightGradients(const LayerSizes& sizes, int64_t width, int64_t slots);

  T* data() const { return partial_.template data<T>(); }

  // Once all threads are done. w_ih [G, I], w_hh [G, P], bias [G].
  void sum_into(const Tensor& w_ih, const Tensor& w_hh, const Tensor& bias) const;

 private:
  const LayerSizes& sizes_;
  int64_t width_, slots_;
  Tensor partial_;  // [slots, G, width]
};

}  // namespace rotcell::ops
