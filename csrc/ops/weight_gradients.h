// The gradients of w_ih, w_hh and the bias, added up piece by piece of a sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cpu/kernels.h"
#include "ops/sequence.h"

namespace rotcell::ops {

// How many tokens a piece may have: few enough that their grad_gates are still in the cache when
// the weight gradients read them, and enough for the product to run at full speed.
int64_t gradient_piece_tokens(int64_t gate_rows);

// Rows of w_hh that were multiplied with something else than the old h; none by default.
struct OtherRows {
  int64_t first = 0, count = 0;
};

// Every weight was multiplied with an element of x, of the old h, or, if it is a bias, with 1. With
// these side by side in one matrix, all gradients are one product, which for small layers is much
// faster than one product each.
class WeightGradients {
 public:
  // x [N, I], h0 [B, P] and out [N, P] are contiguous. No piece has more than piece_tokens tokens.
  WeightGradients(const at::Tensor& x, const at::Tensor& h0, const at::Tensor& out,
                  const SequenceSteps& steps, int64_t gate_rows, int64_t piece_tokens,
                  OtherRows other = {});

  // others [piece.tokens, P]: what the other rows were multiplied with; undefined without any.
  void add(const cpu::Piece& piece, const at::Tensor& grad_gates,  // [piece.tokens, gate_rows]
           const at::Tensor& others = {});

  at::Tensor w_ih() const { return gradient(0, inputs_); }
  at::Tensor w_hh() const;
  at::Tensor bias() const { return gradient(inputs_ + outputs_, 1).squeeze(1); }

 private:
  // The gradient of those weights that were multiplied with a run of columns of factors_.
  struct Part {
    int64_t first_column;
    at::Tensor gradient;  // [gate_rows, columns]
  };

  void gather(const cpu::Piece& piece);
  // gradient += grad_gates^T factors for a run of rows; = if nothing was added so far.
  void add_rows(at::Tensor gradient, int64_t first_row, int64_t rows, const at::Tensor& grad_gates,
                const at::Tensor& factors) const;
  at::Tensor gradient(int64_t first_column, int64_t columns) const;

  at::Tensor x_, h0_, out_;
  const SequenceSteps& steps_;
  int64_t inputs_, outputs_;
  OtherRows other_;
  at::Tensor other_gradient_;  // [other_.count, P], if all parts are one
  at::Tensor factors_;         // [piece_tokens, columns]: x, the old h, 1, and zeros to fill up
  std::vector<Part> parts_;
  bool empty_ = true;  // nothing was added so far: the parts are not initialised
};

}  // namespace rotcell::ops
