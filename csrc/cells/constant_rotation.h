// A constant rotation of all units of a row: layers of plane rotations, one after the other. Even
// layers turn units (0, 1), (2, 3) and so on, odd ones (1, 2), (3, 4) and so on. Each layer has
// H / 2 angles, of which it uses the first.
#pragma once

#include <cstdint>

#include "cells/pair.h"
#include "cells/row_cell.h"

namespace rotcell {

struct ConstantRotation {
  static ROTCELL_INLINE constexpr int64_t angles(int64_t hidden) { return hidden / 2; }

  // Cosines and sines, [L, 2, H / 2].
  static ROTCELL_INLINE constexpr int64_t prepared(int64_t hidden, int64_t layers) {
    return 2 * layers * angles(hidden);
  }
  template <class T>
  static ROTCELL_INLINE void prepare(const T* radians, int64_t hidden, int64_t layers, T* to) {
    const int64_t width = angles(hidden);
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (int64_t i = 0; i < width; ++i) {
        const auto angle = static_cast<double>(radians[layer * width + i]);
        to[2 * layer * width + i] = static_cast<T>(__builtin_cos(angle));
        to[(2 * layer + 1) * width + i] = static_cast<T>(__builtin_sin(angle));
      }
    }
  }

  // body(first unit, cosines, sines, pairs) for the pairs that a layer turns.
  template <class Row, class T, class Body>
  static ROTCELL_INLINE void for_planes(int64_t hidden, int64_t layer, const T* prepared,
                                        const Body& body) {
    const int64_t first = layer % 2, width = angles(hidden);
    const T* cos = prepared + 2 * layer * width;
    Row::for_pairs((hidden - first) / 2 * 2, [&](auto pairs) ROTCELL_LAMBDA_INLINE {
      body(first, Row::load_of_pairs(cos, pairs), Row::load_of_pairs(cos + width, pairs), pairs);
    });
  }

  // Turns units [H] in place.
  template <class Row, class T>
  static ROTCELL_INLINE void turn(T* units, int64_t hidden, int64_t layers, const T* prepared) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      for_planes<Row>(hidden, layer, prepared,
                      [&](int64_t first, auto cos, auto sin, auto pairs) ROTCELL_LAMBDA_INLINE {
                        const auto d = Row::load_pairs(units + first, pairs);
                        Row::store_pairs(units + first,
                                         {cos * d.a - sin * d.b, sin * d.a + cos * d.b}, pairs);
                      });
    }
  }

  // From turned units and the gradient that reaches them, both in place, back to those before; the
  // gradients of the angles [L, H / 2] are added.
  template <class Row, class T>
  static ROTCELL_INLINE void undo(T* units, T* grads, int64_t hidden, int64_t layers,
                                  const T* prepared, T* grad_angles) {
    for (int64_t layer = layers - 1; layer >= 0; --layer) {
      T* grad_of_layer = grad_angles + layer * angles(hidden);
      for_planes<Row>(hidden, layer, prepared,
                      [&](int64_t first, auto cos, auto sin, auto pairs) ROTCELL_LAMBDA_INLINE {
                        const auto c = Row::load_pairs(units + first, pairs);
                        const auto dc = Row::load_pairs(grads + first, pairs);
                        Row::add_of_pairs(grad_of_layer, c.a * dc.b - c.b * dc.a, pairs);
                        Row::store_pairs(units + first,
                                         {cos * c.a + sin * c.b, cos * c.b - sin * c.a}, pairs);
                        Row::store_pairs(grads + first,
                                         {cos * dc.a + sin * dc.b, cos * dc.b - sin * dc.a}, pairs);
                      });
    }
  }
};

// sign(a) relu(|a| + shift), and its derivatives: of a where the sum is positive, and of shift.
template <class Math>
struct ModRelu {
  using V = typename Math::Value;

  static ROTCELL_INLINE V zero() { return Math::constant(0.0); }
  static ROTCELL_INLINE V sign(V a) {
    const V negative = a < zero() ? Math::constant(-1.0) : zero();
    return a > zero() ? Math::constant(1.0) : negative;
  }
  static ROTCELL_INLINE V value(V a, V shift) {
    const V s = sign(a), size = s * a + shift;
    // A NaN stays one: its sign is 0.
    return (size <= zero() ? zero() : size) * s;
  }
  static ROTCELL_INLINE V slope_of_shift(V a, V shift) {
    const V s = sign(a);
    return s * a + shift > zero() ? s : zero();
  }
  static ROTCELL_INLINE V slope(V a, V shift) {
    const V s = slope_of_shift(a, shift);
    return s * s;
  }
};

}  // namespace rotcell
