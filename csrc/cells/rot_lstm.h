// RotLSTM, one pair of units, one timestep. The paper's equations:
//   i, f, o = sigmoid(.)   g = tanh(.)   u = 2 pi sigmoid(.)
//   d = f c_prev + i g     c = U(u) d    h = o tanh(c)
#pragma once

#include <cstdint>

#include "cells/pair.h"

namespace rotcell {

// The order of the gates in the rows of every weight, bias and saved matrix; the angles follow
// them.
struct RotLstmRows {
  enum Gate { kInput, kForget, kCandidate, kOutput, kGateCount };

  static ROTCELL_INLINE constexpr int64_t offset(Gate gate, int64_t hidden) {
    return gate * hidden;
  }
  static ROTCELL_INLINE constexpr int64_t angles(int64_t hidden) { return kGateCount * hidden; }
  static ROTCELL_INLINE constexpr int64_t count(int64_t hidden) {
    return angles(hidden) + hidden / 2;
  }
};

template <class Math>
struct RotLstmCell {
  using V = typename Math::Value;
  using P = Pair<V>;
  using Maths = PairMath<Math>;

  // Before the activation functions (forward), after them (saved), or their gradients (backward).
  struct Gates {
    P i, f, g, o;
    V rot;
  };

  static ROTCELL_INLINE Gates activate(const Gates& a) {
    return {Maths::sigmoid(a.i), Maths::sigmoid(a.f), Maths::tanh(a.g), Maths::sigmoid(a.o),
            Math::sigmoid(a.rot)};
  }

  static ROTCELL_INLINE P next_cell(const Gates& gates, const P& c_prev) {
    return Rotation<Math>(gates.rot).apply(gates.f * c_prev + gates.i * gates.g);
  }

  static ROTCELL_INLINE P output(const Gates& gates, const P& c) {
    return gates.o * Maths::tanh(c);
  }

  // From the gradients of h and of c (the later steps' part) to those of the gates before
  // activation; dc becomes the gradient of c_prev.
  static ROTCELL_INLINE Gates backward(const Gates& gates, const P& c_prev, const P& c, const P& dh,
                                       P& dc) {
    const Rotation<Math> rotation(gates.rot);
    const P tanh_c = Maths::tanh(c);
    const P dc_total = dc + dh * gates.o * Maths::tanh_slope(tanh_c);
    const P dd = rotation.undo(dc_total);
    dc = dd * gates.f;
    return {dd * gates.g * Maths::sigmoid_slope(gates.i),
            dd * c_prev * Maths::sigmoid_slope(gates.f), dd * gates.i * Maths::tanh_slope(gates.g),
            dh * tanh_c * Maths::sigmoid_slope(gates.o),
            rotation.preactivation_gradient(c, dc_total)};
  }
};

}  // namespace rotcell
