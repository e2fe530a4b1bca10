// Two neighbouring units (2k, 2k + 1), the plane a rotation turns, and the rotation itself.
//
// A "Math" type names the number type and its functions, so that the same cell runs on SIMD
// vectors, on scalars and on a GPU:
//   Math::Value                              the number type; has + - * and converts from double
//   constants Math::constant(double)                   a Value holding that constant
//   Math::sigmoid(Value), Math::tanh(Value)
//   Math::sincos_turns(Value s, Value& sin, Value& cos)    sine and cosine of 2 pi s, for s in [0,
//   1]
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

  static ROTCELL_INLINE P sigmoid(const P& x) { return {Math::sigmoid(x.a), Math::sigmoid(x.b)}; }
  static ROTCELL_INLINE P tanh(const P& x) { return {Math::tanh(x.a), Math::tanh(x.b)}; }
  static ROTCELL_INLINE V one() { return Math::constant(1.0); }
  static ROTCELL_INLINE P one_minus(const P& x) { return {one() - x.a, one() - x.b}; }

  // Derivatives, from the value of the function.
  static ROTCELL_INLINE P sigmoid_slope(const P& s) { return s * one_minus(s); }
  static ROTCELL_INLINE P tanh_slope(const P& t) { return one_minus(t * t); }
};

// U(u) with u = 2 pi s, where s = sigmoid(a) is a fraction of a full turn.
template <class Math>
struct Rotation {
  using V = typename Math::Value;

  V turns;
  V sin;
  V cos;

  explicit ROTCELL_INLINE Rotation(V s) : turns(s) { Math::sincos_turns(s, sin, cos); }

  ROTCELL_INLINE Pair<V> apply(const Pair<V>& d) const {
    return {cos * d.a - sin * d.b, sin * d.a + cos * d.b};
  }

  // U(-u): the inverse, which is also the transpose that carries a gradient back.
  ROTCELL_INLINE Pair<V> undo(const Pair<V>& c) const {
    return {cos * c.a + sin * c.b, cos * c.b - sin * c.a};
  }

  // Gradient of a, given the rotated pair c = U(u) d and the gradient that reaches c.
  ROTCELL_INLINE V preactivation_gradient(const Pair<V>& c, const Pair<V>& dc) const {
    const V du = c.a * dc.b - c.b * dc.a;
    return du * Math::constant(6.283185307179586476925) * turns * (Math::constant(1.0) - turns);
  }
};

}  // namespace rotcell
