// Groups of neighboring units, which a rotation turns together: Group<V, K> has K units, a Pair has
// two, 2k and 2k + 1, the plane that an angle turns.
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

template <class V, int K>
struct Group {
  V unit[K];
};
template <class V>
struct Group<V, 2> {
  V a;  // unit 2k
  V b;  // unit 2k + 1
};

template <class V>
using Pair = Group<V, 2>;

// body(value) for every unit of a group.
template <class V, int K, class Body>
ROTCELL_INLINE void for_units(Group<V, K>& group, const Body& body) {
  if constexpr (K == 2) {
    body(group.a);
    body(group.b);
  } else {
    ROTCELL_UNROLL(16)
    for (int i = 0; i < K; ++i) body(group.unit[i]);
  }
}

// The group whose unit i is body(i).
template <class V, int K, class Body>
ROTCELL_INLINE Group<V, K> of_units(const Body& body) {
  Group<V, K> group;
  ROTCELL_UNROLL(16)
  for (int i = 0; i < K; ++i) group.unit[i] = body(i);
  return group;
}

template <class V>
ROTCELL_INLINE Pair<V> operator+(const Pair<V>& x, const Pair<V>& y) {
  return {x.a + y.a, x.b + y.b};
}

template <class V, int K>
ROTCELL_INLINE Group<V, K> operator+(const Group<V, K>& x, const Group<V, K>& y) {
  return of_units<V, K>([&](int i) ROTCELL_LAMBDA_INLINE { return x.unit[i] + y.unit[i]; });
}

template <class V>
ROTCELL_INLINE Pair<V> operator-(const Pair<V>& x, const Pair<V>& y) {
  return {x.a - y.a, x.b - y.b};
}

template <class V, int K>
ROTCELL_INLINE Group<V, K> operator-(const Group<V, K>& x, const Group<V, K>& y) {
  return of_units<V, K>([&](int i) ROTCELL_LAMBDA_INLINE { return x.unit[i] - y.unit[i]; });
}

template <class V>
ROTCELL_INLINE Pair<V> operator*(const Pair<V>& x, const Pair<V>& y) {
  return {x.a * y.a, x.b * y.b};
}

template <class V, int K>
ROTCELL_INLINE Group<V, K> operator*(const Group<V, K>& x, const Group<V, K>& y) {
  return of_units<V, K>([&](int i) ROTCELL_LAMBDA_INLINE { return x.unit[i] * y.unit[i]; });
}

// Functions of pairs and of larger groups.
template <class Math>
struct PairMath {
  using V = typename Math::Value;
  using P = Pair<V>;

  static ROTCELL_INLINE P tanh(const P& x) { return {Math::tanh(x.a), Math::tanh(x.b)}; }
  template <int K>
  static ROTCELL_INLINE Group<V, K> tanh(const Group<V, K>& x) {
    return of_units<V, K>([&](int i) ROTCELL_LAMBDA_INLINE { return Math::tanh(x.unit[i]); });
  }

  static ROTCELL_INLINE V one() { return Math::constant(1.0); }
  static ROTCELL_INLINE P one_minus(const P& x) { return {one() - x.a, one() - x.b}; }
  template <int K>
  static ROTCELL_INLINE Group<V, K> one_minus(const Group<V, K>& x) {
    return of_units<V, K>([&](int i) ROTCELL_LAMBDA_INLINE { return one() - x.unit[i]; });
  }

  // The derivative of tanh, from its value.
  template <int K>
  static ROTCELL_INLINE Group<V, K> tanh_slope(const Group<V, K>& t) {
    return one_minus(t * t);
  }
};

}  // namespace rotcell
