// Two neighboring units (2k, 2k + 1), the plane that a rotation turns.
//
// A "Math" type names the dtype and its functions, so that the same cell runs on SIMD
// vectors, on scalars and on a GPU:
//   Math::Value                              the dtype; has + - *
//   Math::constant(double)                   a Value holding that constant
//   Math::sigmoid(Value), Math::tanh(Value)
//   Math::hard_sigmoid(Value)                clip(0.2 x + 0.5, 0, 1)
//   Math::hard_sigmoid_slope(Value s)        its derivative where its value is s
//   Math::sincos_turns(Value s, Value& sin, Value& cos)    of 2 pi s, for s in [0, 1]
#pragma once

#include "cells/portable.h"

namespace rotcell {

template <class V>
struct Pair {
  V a;  // unit 2k
  V b;  // unit 2k + 1
};

template <class V>
ROTCELL_INLINE Pair<V> operator+(const Pair<V>& x, const Pair<V>& y) {
  return {x.a + y.a, x.b + y.b};
}

template <class V>
ROTCELL_INLINE Pair<V> operator-(const Pair<V>& x, const Pair<V>& y) {
  return {x.a - y.a, x.b - y.b};
}

template <class V>
ROTCELL_INLINE Pair<V> operator*(const Pair<V>& x, const Pair<V>& y) {
  return {x.a * y.a, x.b * y.b};
}

template <class Math>
struct PairMath {
  using V = typename Math::Value;
  using P = Pair<V>;

  static ROTCELL_INLINE P tanh(const P& x) { return {Math::tanh(x.a), Math::tanh(x.b)}; }
  static ROTCELL_INLINE V one() { return Math::constant(1.0); }
  static ROTCELL_INLINE P one_minus(const P& x) { return {one() - x.a, one() - x.b}; }

  // The derivative of tanh, from its value.
  static ROTCELL_INLINE P tanh_slope(const P& t) { return one_minus(t * t); }
};

}  // namespace rotcell
