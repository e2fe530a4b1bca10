// The gradients of w_ih, w_hh and the bias on the CPU, added up chunk by chunk of a sequence.
#pragma once

#include <vector>

#include "cells/list.h"
#include "ops/arguments.h"
#include "ops/sequence.h"

namespace rotcell::ops {

// Every weight was multiplied with an element of x, of the old h, or, if it is a bias, with 1. With
// these side by side in one matrix, all gradients are one product, which for small layers is much
// faster than one product each.
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

  Tensor w_ih() const { return gradient(0, sizes_.inputs); }
  Tensor w_hh() const;
  Tensor bias() const;

 private:
  // The gradient of those weights that were multiplied with a run of columns of factors_.
  struct Part {
    int64_t first_column;
    Tensor gradient;  // [G, columns]
  };
  // Rows of w_hh that multiplied the operands, instead of the old h.
  struct OperandRows {
    int64_t first = 0, count = 0;
    int64_t end() const { return first + count; }
  };

  void add_single_step(const Tensor& grad_gates, const Tensor& operands, const Tensor& seen);
  void gather(const Chunk& chunk, const Tensor& seen);
  // gradient += grad_gates^T factors for a run of rows; = if nothing was added so far.
  void add_rows(const Tensor& gradient, int64_t first_row, const Tensor& grad_gates,
                const Tensor& factors) const;
  void add_operands(const Tensor& gradient, const Tensor& grad_gates, const Tensor& operands) const;
  Tensor gradient(int64_t first_column, int64_t columns) const;

  const LayerSizes& sizes_;
  const Sequence& sequence_;
  const Tensor &x_, &h0_, &out_;
  OperandRows operand_rows_;
  Tensor operand_gradient_;  // [operand_rows_.count, H], if all parts are one
  Tensor factors_;           // [chunk_tokens, columns]: x, the old h, 1, and zeros to fill up
  std::vector<Part> parts_;
  bool empty_ = true;  // nothing was added so far: the parts are not initialised
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
