// The functions that squash gates and angles into [0, 1]. Which one is a choice of the caller, made
// at run time: it costs nothing beside the function itself.
#pragma once

#include "cells/pair.h"

namespace rotcell {

// The values are those of the ops' arguments gate_function and angle_function.
enum class GateFunction {
  kSigmoid,
  kHardSigmoid,  // clip(0.2 x + 0.5, 0, 1), the gates of Keras before 2.3
};
inline constexpr int kGateFunctionCount = 2;

struct GateFunctions {
  GateFunction gates;
  GateFunction angles;
};

template <class Math>
struct GateMath {
  using V = typename Math::Value;
  using P = Pair<V>;

  static ROTCELL_INLINE V value(GateFunction function, V x) {
    return function == GateFunction::kHardSigmoid ? Math::hard_sigmoid(x) : Math::sigmoid(x);
  }
  static ROTCELL_INLINE P value(GateFunction function, const P& x) {
    return {value(function, x.a), value(function, x.b)};
  }

  // The derivative, from the value of the function.
  static ROTCELL_INLINE V slope(GateFunction function, V s) {
    return function == GateFunction::kHardSigmoid ? Math::hard_sigmoid_slope(s)
                                                  : s * (Math::constant(1.0) - s);
  }
  static ROTCELL_INLINE P slope(GateFunction function, const P& s) {
    return {slope(function, s.a), slope(function, s.b)};
  }

  // d times the derivative.
  static ROTCELL_INLINE V through(GateFunction function, V d, V s) {
    return function == GateFunction::kHardSigmoid ? d * Math::hard_sigmoid_slope(s)
                                                  : d * s * (Math::constant(1.0) - s);
  }
};

}  // namespace rotcell
