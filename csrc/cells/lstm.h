// The LSTM, one group of units, one timestep, with a rotation U of its cell state:
//   i, f, o = gate(.)      g = tanh(.)
//   d = f c_before + i g   c = U d      h = o tanh(c)
#pragma once

#include "cells/cell.h"

namespace rotcell {

template <class RotationType>
struct Lstm {
  using Rotation = RotationType;

  enum Gate { kInput, kForget, kCandidate, kOutput, kGateCount };
  static constexpr const char* kGateNames[] = {"i", "f", "g", "o"};
  static ROTCELL_INLINE constexpr Activation activation(int gate) {
    return gate == kCandidate ? Activation::kTanh : Activation::kGate;
  }

  static constexpr int kStages = 1;
  static ROTCELL_INLINE constexpr int matmul(int) { return 0; }
  static ROTCELL_INLINE constexpr int stage(int) { return 0; }
  static constexpr int kRotationStage = 0;
  static constexpr bool kHasCellState = true;
  static constexpr bool kReadsOutput = false;
  static constexpr bool kCanProject = true;
  static constexpr bool kResident = true, kCooperative = true;

  template <class Math, class Gates, class P>
  static ROTCELL_INLINE P cell_state(const Gates& a, const P& c_before) {
    return typename Rotation::template Turn<Math>(a).apply(a[kForget] * c_before +
                                                           a[kInput] * a[kCandidate]);
  }

  template <class Math, class Gates, class P>
  static ROTCELL_INLINE P result(Stage<0>, const Gates& a, const P& /*h_before*/, const P& c) {
    return a[kOutput] * PairMath<Math>::tanh(c);
  }

  // dc, the gradient of c from later steps, becomes the gradient of c_before.
  template <class Math, class Gates, class State, class P>
  static ROTCELL_INLINE void backward(Stage<0>, const Gates& a, const State& s, const P& dh,
                                      P& /*dh_before*/, P& dc, Gates& grads) {
    using M = PairMath<Math>;
    const P tanh_c = M::tanh(s.c);
    dc = dc + dh * a[kOutput] * M::tanh_slope(tanh_c);
    grads[kOutput] = dh * tanh_c;
    cell_state_backward<Math>(a, s, dc, grads);
  }

  // dc, the whole gradient of c, becomes the gradient of c_before.
  template <class Math, class Gates, class State, class P>
  static ROTCELL_INLINE void cell_state_backward(const Gates& a, const State& s, P& dc,
                                                 Gates& grads) {
    const typename Rotation::template Turn<Math> turn(a);
    const P dc_total = dc, dd = turn.undo(dc_total);
    dc = dd * a[kForget];
    grads[kInput] = dd * a[kCandidate];
    grads[kForget] = dd * s.c_before;
    grads[kCandidate] = dd * a[kInput];
    turn.gradient(s.c, dc_total, grads);
  }
};

}  // namespace rotcell
