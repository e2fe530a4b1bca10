// What a cell says of itself, and what every frame derives from it.
//
// A cell is a struct with
//   using Rotation                     rotation.h
//   enum Gate {..., kGateCount}        in the order of the weights' rows; the angles follow them
//   kGateNames[kGateCount]
//   activation(gate)                   Activation::kGate or kTanh
//   kStages                            a step is `kStages` times a product and some maths of units
//   product(gate), stage(gate)         which product makes a gate, which stage's maths uses it
//   kRotationStage                     which stage's maths uses the angles; product 0 makes them
//   kHasMemory                         a state c beside the output h
//   kReadsOutput                       whether the maths itself reads the old output of its units
//   kCanProject                        whether the output may be projected
//   kResident, kCooperative            whether it runs on these paths of a GPU
// The first product multiplies the old output, each further one the result of the stage before it;
// the result of the last stage is the output. Everything is one pair of units, one row, one step:
//   memory<Math>(gates, c_before)                         the new c, if kHasMemory
//   result<Math>(Stage<S>, gates, h_before, c)            what the stage gives
//   backward<Math>(Stage<S>, gates, state, d_result, ...) gradients of the stage's gates
// where `gates` are activations.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "cells/gate_function.h"
#include "cells/pair.h"
#include "cells/rotation.h"

namespace rotcell {

enum class Activation { kGate, kTanh };

template <int S>
using Stage = std::integral_constant<int, S>;

// The gates of a pair of units: before activation, after it, or their gradients.
template <class Cell, class Math>
struct GateValues {
  using V = typename Math::Value;

  Pair<V> of_gate[Cell::kGateCount];
  V turns;  // the angle, as a fraction of a full turn

  ROTCELL_INLINE Pair<V>& operator[](int gate) { return of_gate[gate]; }
  ROTCELL_INLINE const Pair<V>& operator[](int gate) const { return of_gate[gate]; }
};

// What the maths of a pair of units may know of a step on the way back.
template <class Math>
struct PairState {
  Pair<typename Math::Value> h_before;  // if Cell::kReadsOutput
  Pair<typename Math::Value> c_before;  // if Cell::kHasMemory, as is c
  Pair<typename Math::Value> c;
};

// Which rows of the weights, so which columns of a matrix of gates, belong to what.
template <class Cell>
struct CellRows {
  static ROTCELL_INLINE constexpr int64_t offset(int gate, int64_t hidden) { return gate * hidden; }
  static ROTCELL_INLINE constexpr int64_t angles(int64_t hidden) {
    return Cell::kGateCount * hidden;
  }
  static ROTCELL_INLINE constexpr int64_t count(int64_t hidden) {
    return angles(hidden) + Cell::Rotation::angles(hidden);
  }
  // Rows that a product makes.
  static ROTCELL_INLINE constexpr int64_t of_product(int product, int64_t hidden) {
    int64_t rows = product == 0 ? Cell::Rotation::angles(hidden) : 0;
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (Cell::product(gate) == product) rows += hidden;
    }
    return rows;
  }
};

namespace detail {
template <class Cell, class Body, int... GATES>
ROTCELL_INLINE void for_each_gate(const Body& body, std::integer_sequence<int, GATES...>) {
  (body(std::integral_constant<int, GATES>{}), ...);
}
}  // namespace detail

// body(gate) for every gate, the gate being a constant of the compiler.
template <class Cell, class Body>
ROTCELL_INLINE void for_gates(const Body& body) {
  detail::for_each_gate<Cell>(body, std::make_integer_sequence<int, Cell::kGateCount>{});
}

// body(gate) for every gate that the maths of stage S uses.
template <class Cell, int S, class Body>
ROTCELL_INLINE void for_stage_gates(const Body& body) {
  for_gates<Cell>([&](auto gate) ROTCELL_LAMBDA_INLINE {
    if constexpr (Cell::stage(decltype(gate)::value) == S) body(gate);
  });
}

// Whether the maths of stage S uses angles.
template <class Cell, int S>
inline constexpr bool stage_turns = Cell::Rotation::kHasAngles && Cell::kRotationStage == S;

// Preactivations of the gates of stage S become activations.
template <class Cell, int S, class Math>
ROTCELL_INLINE void activate(GateFunctions functions, GateValues<Cell, Math>& gates) {
  for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
    if constexpr (Cell::activation(decltype(gate)::value) == Activation::kTanh) {
      gates[gate] = PairMath<Math>::tanh(gates[gate]);
    } else {
      gates[gate] = GateMath<Math>::value(functions.gates, gates[gate]);
    }
  });
  if constexpr (stage_turns<Cell, S>) {
    gates.turns = GateMath<Math>::value(functions.angles, gates.turns);
  }
}

// Gradients of activations become those of preactivations.
template <class Cell, int S, class Math>
ROTCELL_INLINE void through_activations(GateFunctions functions,
                                        const GateValues<Cell, Math>& gates,
                                        GateValues<Cell, Math>& grads) {
  for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
    if constexpr (Cell::activation(decltype(gate)::value) == Activation::kTanh) {
      grads[gate] = grads[gate] * PairMath<Math>::tanh_slope(gates[gate]);
    } else {
      grads[gate] = grads[gate] * GateMath<Math>::slope(functions.gates, gates[gate]);
    }
  });
  if constexpr (stage_turns<Cell, S>) {
    grads.turns = GateMath<Math>::through(functions.angles, grads.turns, gates.turns);
  }
}

}  // namespace rotcell
