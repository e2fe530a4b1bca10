// Which rows of the weights a recurrent product has, in the product's own order: its gates one
// after the other, then, for the first product, the angles.
#pragma once

#include "cells/list.h"
#include "cuda/platform.h"

namespace rotcell::cuda {

struct RowActivation {
  bool is_tanh;
  GateFunction function;  // if it is not

  template <class Math>
  ROTCELL_DEVICE typename Math::Value apply(typename Math::Value x) const {
    return is_tanh ? Math::tanh(x) : GateMath<Math>::value(function, x);
  }
};

template <class Cell, int PRODUCT>
struct ProductRows {
  static constexpr bool kHasAngles = PRODUCT == 0 && Cell::Rotation::kHasAngles;

  // How many gates of the product come before this one; for kGateCount, how many there are.
  static ROTCELL_INLINE constexpr int position(int gate) {
    int count = 0;
    for (int other = 0; other < gate; ++other) count += Cell::product(other) == PRODUCT ? 1 : 0;
    return count;
  }
  static constexpr int kGates = position(Cell::kGateCount);

  // The first place of a gate, of the angles, for a block of so many units.
  static ROTCELL_INLINE constexpr int64_t place(int gate, int64_t units) {
    return position(gate) * units;
  }
  static ROTCELL_INLINE constexpr int64_t angles(int64_t units) { return kGates * units; }

  // The row of the weights at a place, for all units of a layer. Without a division: this stands in
  // the loops that read gradients.
  static ROTCELL_DEVICE int64_t weight_row(int place, int hidden) {
    int64_t row = place;
    for_gates<Cell>([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      if constexpr (Cell::product(kGate) != PRODUCT) {
        if (row >= CellRows<Cell>::offset(kGate, hidden)) row += hidden;
      }
    });
    return row;
  }

  // How the row at a place is activated.
  static ROTCELL_DEVICE RowActivation activation(int place, int hidden, GateFunctions functions) {
    if (place >= angles(hidden)) return {false, functions.angles};
    const int gate = gate_at(place / hidden);
    bool is_tanh = false;
    for_gates<Cell>([&](auto other) {
      constexpr int kGate = decltype(other)::value;
      if (kGate == gate) is_tanh = Cell::activation(kGate) == Activation::kTanh;
    });
    return {is_tanh, functions.gates};
  }

  // The gate at a position among the product's gates.
  static ROTCELL_DEVICE int gate_at(int wanted) {
    int found = 0;
    for_gates<Cell>([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      if (Cell::product(kGate) == PRODUCT && position(kGate) == wanted) found = kGate;
    });
    return found;
  }
};

// body(Stage<S>) for the stages of a step in order.
template <class Cell, int S = 0, class Body>
ROTCELL_INLINE void for_stages(const Body& body) {
  if constexpr (S < Cell::kStages) {
    body(Stage<S>{});
    for_stages<Cell, S + 1>(body);
  }
}

// The same from the last stage to the first.
template <class Cell, int S = Cell::kStages - 1, class Body>
ROTCELL_INLINE void for_stages_back(const Body& body) {
  if constexpr (S >= 0) {
    body(Stage<S>{});
    for_stages_back<Cell, S - 1>(body);
  }
}

template <class Cell>
inline constexpr int last_stage = Cell::kStages - 1;

}  // namespace rotcell::cuda
