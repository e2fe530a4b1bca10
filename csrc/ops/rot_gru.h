// The arguments that the RotGRU ops of every device take: their sizes, and the check of them.
#pragma once

#include "cells/rot_gru.h"
#include "ops/sequence.h"

namespace rotcell::ops {

struct GruSizes {
  int64_t tokens, batch, hidden, gate_rows;

  int64_t recurrent_weights() const { return gate_rows * hidden; }
};

inline GruSizes check_arguments(const at::Tensor& x, const at::Tensor& h0, const at::Tensor& w_ih,
                                const at::Tensor& w_hh) {
  check_matrix("x", x);
  check_matrix("h0", h0);
  const int64_t hidden = h0.size(1);
  const GruSizes sizes{x.size(0), h0.size(0), hidden, RotGruRows::count(hidden)};
  check_tensor("h0", h0, {sizes.batch, hidden}, x);
  check_tensor("w_ih", w_ih, {sizes.gate_rows, x.size(1)}, x);
  check_tensor("w_hh", w_hh, {sizes.gate_rows, hidden}, x);
  return sizes;
}

}  // namespace rotcell::ops
