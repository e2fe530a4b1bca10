// The activations of gates and angles, into [0, 1]. The caller chooses one at run time.
#pragma once

#include "cells/pair.h"

namespace rotcell {

// The values are those of the ops' arguments gate_activation and angle_activation.
enum class GateActivation {
  kSigmoid,
  kHardSigmoid,  // clip(0.2 x + 0.5, 0, 1), the gates of Keras before 2.3
};
inline constexpr int kGateActivationCount = 2;

struct Activations {
  GateActivation gates;
  GateActivation angles;
};

template <class Math>
struct GateMath {
  using V = typename Math::Value;
  using P = Pair<V>;

  static ROTCELL_INLINE V value(GateActivation function, V x) {
    return function == GateActivation::kHardSigmoid ? Math::hard_sigmoid(x) : Math::sigmoid(x);
  }
  static ROTCELL_INLINE P value(GateActivation function, const P& x) {
    return {value(function, x.a), value(function, x.b)};
  }
  template <int K>
  static ROTCELL_INLINE Group<V, K> value(GateActivation function, const Group<V, K>& x) {
    return of_units<V, K>([&](int i) ROTCELL_LAMBDA_INLINE { return value(function, x.unit[i]); });
  }

  // The derivative, from the value of the function.
  static ROTCELL_INLINE V slope(GateActivation function, V s) {
    return function == GateActivation::kHardSigmoid ? Math::hard_sigmoid_slope(s)
                                                    : s * (Math::constant(1.0) - s);
  }
  static ROTCELL_INLINE P slope(GateActivation function, const P& s) {
    return {slope(function, s.a), slope(function, s.b)};
  }
  template <int K>
  static ROTCELL_INLINE Group<V, K> slope(GateActivation function, const Group<V, K>& s) {
    return of_units<V, K>([&](int i) ROTCELL_LAMBDA_INLINE { return slope(function, s.unit[i]); });
  }

  // d times the derivative.
  static ROTCELL_INLINE V through(GateActivation function, V d, V s) {
    return function == GateActivation::kHardSigmoid ? d * Math::hard_sigmoid_slope(s)
                                                    : d * s * (Math::constant(1.0) - s);
  }
};

}  // namespace rotcell
