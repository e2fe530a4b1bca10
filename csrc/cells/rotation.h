// What a recurrence does to its state in addition to its gates: nothing, or a rotation of pairs.
//
// A rotation says how many angles (further rows of the weights) a layer of some size has, and turns
// a pair of units by the fraction of a full turn that its angle's gate gives.
#pragma once

#include <cstdint>

#include "cells/activation.h"

namespace rotcell {

struct NoRotation {
  static constexpr bool kHasAngles = false;
  static ROTCELL_INLINE constexpr int64_t angles(int64_t) { return 0; }

  template <class Math>
  struct Turn {
    using V = typename Math::Value;
    using P = Pair<V>;

    template <class Gates>
    explicit ROTCELL_INLINE Turn(const Gates&) {}
    ROTCELL_INLINE P apply(const P& d) const { return d; }
    ROTCELL_INLINE P undo(const P& c) const { return c; }
    template <class Gates>
    ROTCELL_INLINE void gradient(const P&, const P&, Gates&) const {}
  };
};

// Units 2k and 2k + 1 rotate by one angle per pair; with an odd size the last unit is not rotated.
struct PairRotation {
  static constexpr bool kHasAngles = true;
  static ROTCELL_INLINE constexpr int64_t angles(int64_t hidden) { return hidden / 2; }

  // U(u) with u = 2 pi turns.
  template <class Math>
  struct Turn {
    using V = typename Math::Value;
    using P = Pair<V>;

    V sin;
    V cos;

    template <class Gates>
    explicit ROTCELL_INLINE Turn(const Gates& a) {
      Math::sincos_turns(a.turns, sin, cos);
    }

    ROTCELL_INLINE P apply(const P& d) const {
      return {cos * d.a - sin * d.b, sin * d.a + cos * d.b};
    }

    // U(-u): the inverse, which is also the transpose that carries a gradient back.
    ROTCELL_INLINE P undo(const P& c) const {
      return {cos * c.a + sin * c.b, cos * c.b - sin * c.a};
    }

    // Gradient of `turns`, given the rotated pair c = U(u) d and the gradient that reaches c.
    template <class Gates>
    ROTCELL_INLINE void gradient(const P& c, const P& dc, Gates& grads) const {
      const V du = c.a * dc.b - c.b * dc.a;
      grads.turns = du * Math::constant(6.283185307179586476925);
    }
  };
};

}  // namespace rotcell
