// Which rows of the weights a recurrent matmul has, in the matmul's own order: its gates one
// after the other, then, for the first matmul, the angles.
#pragma once

#include "cells/list.h"
#include "cuda/platform/platform.h"

namespace rotcell::cuda {

struct RowActivation {
  bool is_tanh;
  GateActivation function;  // if it is not tanh

  template <class Math>
  ROTCELL_DEVICE typename Math::Value apply(typename Math::Value x) const {
    return is_tanh ? Math::tanh(x) : GateMath<Math>::value(function, x);
  }
};

template <class Cell, int MATMUL>
struct MatmulRows {
  using Gates = MatmulGates<Cell, MATMUL>;
  static constexpr bool kHasAngles = Gates::kHasAngles;
  static constexpr int kGates = Gates::kGates;

  // The first place of a gate, of the angles, for a block of so many units.
  static ROTCELL_INLINE constexpr int64_t place(int gate, int64_t units) {
    return Gates::position(gate) * units;
  }
  static ROTCELL_INLINE constexpr int64_t angles(int64_t units) { return kGates * units; }

  // The row of the weights at a place, for all units of a layer. Avoids a division, because the
  // loops that read gradients call it.
  static ROTCELL_DEVICE int64_t weight_row(int place, int hidden) {
    int64_t row = place;
    for_gates<Cell>([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      if constexpr (Cell::matmul(kGate) != MATMUL) {
        if (row >= CellRows<Cell>::offset(kGate, hidden)) row += hidden;
      }
    });
    return row;
  }

  // How the row at a place is activated.
  static ROTCELL_DEVICE RowActivation activation(int place, int hidden, Activations activations) {
    if (place >= angles(hidden)) return {false, activations.angles};
    const int gate = Gates::gate_at(place / hidden);
    bool is_tanh = false;
    for_gates<Cell>([&](auto other) {
      constexpr int kGate = decltype(other)::value;
      if (kGate == gate) is_tanh = Cell::activation(kGate) == Activation::kTanh;
    });
    return {is_tanh, activations.gates};
  }
};

template <class Cell>
inline constexpr int last_stage = Cell::kStages - 1;

}  // namespace rotcell::cuda
