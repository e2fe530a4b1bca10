// RotGRU, one pair of units, one timestep. The paper's equations:
//   r, z = sigmoid(.)      u = 2 pi sigmoid(.)      d = h_prev r      r' = U(u) d
//   n = tanh(W_n [r', x])  h = (1 - z) h_prev + z n
// A step has two halves because the product for n needs r' of all units.
#pragma once

#include <cstdint>

#include "cells/pair.h"

namespace rotcell {

// The order of the gates in the rows of every weight, bias and saved matrix; the angles follow
// them.
struct RotGruRows {
  enum Gate { kReset, kUpdate, kCandidate, kGateCount };

  static ROTCELL_INLINE constexpr int64_t offset(Gate gate, int64_t hidden) {
    return gate * hidden;
  }
  static ROTCELL_INLINE constexpr int64_t angles(int64_t hidden) { return kGateCount * hidden; }
  static ROTCELL_INLINE constexpr int64_t count(int64_t hidden) {
    return angles(hidden) + hidden / 2;
  }
};

template <class Math>
struct RotGruCell {
  using V = typename Math::Value;
  using P = Pair<V>;
  using Maths = PairMath<Math>;

  // First half: what the candidate sees of the old state.
  struct Reset {
    P r;
    V rot;
  };

  static ROTCELL_INLINE Reset activate(const Reset& a) {
    return {Maths::sigmoid(a.r), Math::sigmoid(a.rot)};
  }

  static ROTCELL_INLINE P rotated(const Reset& reset, const P& h_prev) {
    return Rotation<Math>(reset.rot).apply(h_prev * reset.r);
  }

  // Second half: the new state.
  struct Update {
    P z, n;
  };

  static ROTCELL_INLINE Update activate(const Update& a) {
    return {Maths::sigmoid(a.z), Maths::tanh(a.n)};
  }

  static ROTCELL_INLINE P next_hidden(const Update& update, const P& h_prev) {
    return Maths::one_minus(update.z) * h_prev + update.z * update.n;
  }

  // The halves in reverse. dh_prev collects the gradient of h_prev that does not pass through a
  // product.
  static ROTCELL_INLINE Update backward(const Update& update, const P& h_prev, const P& dh,
                                        P& dh_prev) {
    dh_prev = dh * Maths::one_minus(update.z);
    return {dh * (update.n - h_prev) * Maths::sigmoid_slope(update.z),
            dh * update.z * Maths::tanh_slope(update.n)};
  }

  static ROTCELL_INLINE Reset backward(const Reset& reset, const P& h_prev, const P& d_rotated,
                                       P& dh_prev) {
    const Rotation<Math> rotation(reset.rot);
    const P dd = rotation.undo(d_rotated);
    dh_prev = dh_prev + dd * reset.r;
    return {dd * h_prev * Maths::sigmoid_slope(reset.r),
            rotation.preactivation_gradient(rotation.apply(h_prev * reset.r), d_rotated)};
  }
};

}  // namespace rotcell
