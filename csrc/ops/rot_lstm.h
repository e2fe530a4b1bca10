// The arguments that the RotLSTM ops of every device take: their sizes, and the check of them.
#pragma once

#include "cells/rot_lstm.h"
#include "ops/sequence.h"

namespace rotcell::ops {

struct LstmSizes {
  int64_t tokens, batch, hidden, outputs, gate_rows;

  int64_t recurrent_weights() const { return gate_rows * outputs; }
};

inline LstmSizes check_arguments(const at::Tensor& x, const at::Tensor& h0, const at::Tensor& c0,
                                 const at::Tensor& w_ih, const at::Tensor& w_hh,
                                 const OptionalTensor& w_hr) {
  check_matrix("x", x);
  check_matrix("h0", h0);
  check_matrix("c0", c0);
  const int64_t hidden = c0.size(1), outputs = w_hr ? h0.size(1) : hidden;
  const LstmSizes sizes{x.size(0), h0.size(0), hidden, outputs, RotLstmRows::count(hidden)};
  check_tensor("h0", h0, {sizes.batch, outputs}, x);
  check_tensor("c0", c0, {sizes.batch, hidden}, x);
  check_tensor("w_ih", w_ih, {sizes.gate_rows, x.size(1)}, x);
  check_tensor("w_hh", w_hh, {sizes.gate_rows, outputs}, x);
  check_tensor("w_hr", w_hr, {outputs, hidden}, x);
  return sizes;
}

}  // namespace rotcell::ops
