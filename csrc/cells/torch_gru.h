// The GRU of torch, one pair of units, one timestep: its reset acts after the candidate's matmul.
//   r, z = gate(W [x, h])   n = tanh(W_in x + b_in + r (W_hn h + b_hn))   h = (1 - z) n + z
//   h_before
// Both halves of the candidate are gates here, because r is between them, and saved as such; so a
// step has one stage.
#pragma once

#include "cells/cell.h"

namespace rotcell {

struct TorchGruMath {
  using Rotation = NoRotation;

  enum Gate { kReset, kUpdate, kCandidateOfX, kCandidateOfH, kGateCount };
  static constexpr const char* kGateNames[] = {"r", "z", "n", "n_h"};
  static ROTCELL_INLINE constexpr Activation activation(int gate) {
    return gate == kReset || gate == kUpdate ? Activation::kGate : Activation::kIdentity;
  }
  static ROTCELL_INLINE constexpr FedBy fed_by(int gate) {
    return gate == kCandidateOfX   ? FedBy::kInput
           : gate == kCandidateOfH ? FedBy::kHidden
                                   : FedBy::kBoth;
  }

  static constexpr int kStages = 1;
  static ROTCELL_INLINE constexpr int matmul(int) { return 0; }
  static ROTCELL_INLINE constexpr int stage(int) { return 0; }
  static constexpr int kRotationStage = 0;
  static constexpr bool kHasCellState = false;
  static constexpr bool kReadsOutput = true;
  static constexpr bool kCanProject = false;
  static constexpr bool kResident = false, kCooperative = false, kStepwise = false;

  template <class Math, class Gates>
  static ROTCELL_INLINE auto candidate(const Gates& a) {
    return PairMath<Math>::tanh(a[kCandidateOfX] + a[kReset] * a[kCandidateOfH]);
  }

  template <class Math, class Gates, class P>
  static ROTCELL_INLINE P result(Stage<0>, const Gates& a, const P& h_before, const P& /*c*/) {
    const P n = candidate<Math>(a);
    return n + a[kUpdate] * (h_before - n);
  }

  // dh_before is the gradient of the old state that does not pass through a matmul.
  template <class Math, class Gates, class P>
  static ROTCELL_INLINE void backward(Stage<0>, const Gates& a, const PairState<Math>& s,
                                      const P& dh, P& dh_before, P& /*dc*/, Gates& grads) {
    using M = PairMath<Math>;
    const P n = candidate<Math>(a);
    dh_before = dh * a[kUpdate];
    grads[kUpdate] = dh * (s.h_before - n);
    const P dn = dh * M::one_minus(a[kUpdate]) * M::tanh_slope(n);
    grads[kCandidateOfX] = dn;
    grads[kCandidateOfH] = dn * a[kReset];
    grads[kReset] = dn * a[kCandidateOfH];
  }
};

}  // namespace rotcell
