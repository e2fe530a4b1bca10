// What a recurrence does to its state in addition to its gates: nothing, or a rotation of groups of
// units.
//
// A rotation states how many units a group has (kUnits; without a rotation, the units that the math
// takes at once), how many angles turn a group (kPlanes), and how many angles (additional rows of
// the weights) a layer of some size has. Angles are fractions of a full turn.
#pragma once

#include <cstdint>

#include "cells/activation.h"

namespace rotcell {

struct NoRotation {
  static constexpr bool kHasAngles = false;
  static constexpr int kUnits = 2, kPlanes = 0;
  static ROTCELL_INLINE constexpr int64_t angles(int64_t) { return 0; }

  template <class Math>
  struct Turn {
    using P = Pair<typename Math::Value>;

    template <class Gates>
    explicit ROTCELL_INLINE Turn(const Gates&) {}
    ROTCELL_INLINE P apply(const P& d) const { return d; }
    ROTCELL_INLINE P undo(const P& c) const { return c; }
    template <class Gates>
    ROTCELL_INLINE void gradient(const P&, const P&, Gates&) const {}
  };
};

// K neighboring units turn by K layers of plane rotations, one after the other: even layers turn
// units (0, 1), (2, 3) and so on of the group, odd layers (1, 2), (3, 4) and so on. Angles are in
// the order of group, layer, plane. Units left over are not rotated.
template <int K>
struct GroupRotation {
  static_assert(K > 2);
  static constexpr bool kHasAngles = true;
  static constexpr int kUnits = K, kPlanes = K * (K - 1) / 2;
  static ROTCELL_INLINE constexpr int64_t angles(int64_t hidden) { return hidden / K * kPlanes; }

  // The first of the two units that a plane turns.
  static ROTCELL_INLINE constexpr int first_unit(int plane) {
    int layer = 0;
    for (; plane >= (K - layer % 2) / 2; ++layer) plane -= (K - layer % 2) / 2;
    return layer % 2 + 2 * plane;
  }

  template <class Math>
  struct Turn {
    using V = typename Math::Value;
    using P = Group<V, K>;

    V sin[kPlanes], cos[kPlanes], whole;

    template <class Gates>
    explicit ROTCELL_INLINE Turn(const Gates& a) : whole(a.whole) {
      ROTCELL_UNROLL(1)
      for (int i = 0; i < kPlanes; ++i) Math::sincos_turns(a.turns[i], sin[i], cos[i]);
    }

    ROTCELL_INLINE P apply(const P& d) const {
      P c = d;
      ROTCELL_UNROLL(32)
      for (int i = 0; i < kPlanes; ++i) {
        V &a = c.unit[first_unit(i)], &b = c.unit[first_unit(i) + 1];
        const V turned = cos[i] * a - sin[i] * b;
        b = sin[i] * a + cos[i] * b;
        a = turned;
      }
      return if_whole(c, d);
    }

    // The inverse, which is also the transpose that carries a gradient back.
    ROTCELL_INLINE P undo(const P& c) const {
      P d = c;
      ROTCELL_UNROLL(32)
      for (int i = kPlanes - 1; i >= 0; --i) undo_plane(i, d);
      return if_whole(d, c);
    }

    // Gradients of `turns`, given the rotated group and the gradient that reaches it: both go back
    // through one plane after the other, so that nothing before the rotation is needed.
    template <class Gates>
    ROTCELL_INLINE void gradient(P c, P dc, Gates& grads) const {
      ROTCELL_UNROLL(32)
      for (int i = kPlanes - 1; i >= 0; --i) {
        constexpr double kTurn = 6.283185307179586476925;
        const int a = first_unit(i), b = a + 1;
        const V du = c.unit[a] * dc.unit[b] - c.unit[b] * dc.unit[a];
        grads.turns[i] = du * Math::constant(kTurn);
        undo_plane(i, c);
        undo_plane(i, dc);
      }
    }

   private:
    // Units left over keep their values: a turn by 0 makes a NaN of 0 times infinity.
    ROTCELL_INLINE P if_whole(const P& turned, const P& still) const {
      const V zero = Math::constant(0.0);
      return of_units<V, K>([&](int i) ROTCELL_LAMBDA_INLINE {
        return whole > zero ? turned.unit[i] : still.unit[i];
      });
    }

    ROTCELL_INLINE void undo_plane(int plane, P& c) const {
      V &a = c.unit[first_unit(plane)], &b = c.unit[first_unit(plane) + 1];
      const V undone = cos[plane] * a + sin[plane] * b;
      b = cos[plane] * b - sin[plane] * a;
      a = undone;
    }
  };
};

// Units 2k and 2k + 1 rotate by one angle per pair; with an odd size the last unit is not rotated.
template <>
struct GroupRotation<2> {
  static constexpr bool kHasAngles = true;
  static constexpr int kUnits = 2, kPlanes = 1;
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

using PairRotation = GroupRotation<2>;

}  // namespace rotcell
