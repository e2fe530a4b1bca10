// The GRU of Cho et al., one group of units, one timestep, with a rotation U of its reset state:
//   r, z = gate(.)        d = h_before r      m = U d
//   n = tanh(W_n [m, x])  h = (1 - z) h_before + z n
// A step has two stages, because the matmul for n needs m of all units.
#pragma once

#include "cells/cell.h"

namespace rotcell {

template <class RotationType>
struct Gru {
  using Rotation = RotationType;

  enum Gate { kReset, kUpdate, kCandidate, kGateCount };
  static constexpr const char* kGateNames[] = {"r", "z", "n"};
  static ROTCELL_INLINE constexpr Activation activation(int gate) {
    return gate == kCandidate ? Activation::kTanh : Activation::kGate;
  }

  static constexpr int kStages = 2;
  static ROTCELL_INLINE constexpr int matmul(int gate) { return gate == kCandidate ? 1 : 0; }
  static ROTCELL_INLINE constexpr int stage(int gate) { return gate == kReset ? 0 : 1; }
  static constexpr int kRotationStage = 0;
  static constexpr bool kHasCellState = false;
  static constexpr bool kReadsOutput = true;
  static constexpr bool kCanProject = false;
  static constexpr bool kResident = true, kCooperative = true;

  // What the candidate sees of the old state.
  template <class Math, class Gates, class P>
  static ROTCELL_INLINE P result(Stage<0>, const Gates& a, const P& h_before, const P& /*c*/) {
    return typename Rotation::template Turn<Math>(a).apply(h_before * a[kReset]);
  }

  template <class Math, class Gates, class P>
  static ROTCELL_INLINE P result(Stage<1>, const Gates& a, const P& h_before, const P& /*c*/) {
    return PairMath<Math>::one_minus(a[kUpdate]) * h_before + a[kUpdate] * a[kCandidate];
  }

  // dh_before collects the gradient of the old state that does not pass through a matmul.
  template <class Math, class Gates, class State, class P>
  static ROTCELL_INLINE void backward(Stage<1>, const Gates& a, const State& s, const P& dh,
                                      P& dh_before, P& /*dc*/, Gates& grads) {
    dh_before = dh * PairMath<Math>::one_minus(a[kUpdate]);
    grads[kUpdate] = dh * (a[kCandidate] - s.h_before);
    grads[kCandidate] = dh * a[kUpdate];
  }

  template <class Math, class Gates, class State, class P>
  static ROTCELL_INLINE void backward(Stage<0>, const Gates& a, const State& s, const P& dm,
                                      P& dh_before, P& /*dc*/, Gates& grads) {
    const typename Rotation::template Turn<Math> turn(a);
    const P dd = turn.undo(dm);
    dh_before = dh_before + dd * a[kReset];
    grads[kReset] = dd * s.h_before;
    turn.gradient(turn.apply(s.h_before * a[kReset]), dm, grads);
  }
};

}  // namespace rotcell
