// What a cell is: check_cell, at the end, refuses one that the CPU and GPU kernels cannot run.
//
// A cell is a struct with
//   using Rotation                     rotation.h
//   enum Gate {..., kGateCount}        in the order of the weights' rows; the angles follow them
//   kGateNames[kGateCount]
//   activation(gate)                   Activation::kGate, kTanh or kIdentity
//   fed_by(gate)                       rows.h; without it x and h feed every gate
//   kStages                            a step is `kStages` times a matmul and some math of units
//   matmul(gate), stage(gate)          which matmul makes a gate, which stage's math uses it
//   kRotationStage                     which stage's math uses the angles; matmul 0 makes them
//   kHasCellState                      a cell state c next to the output h
//   kReadsOutput                       whether the math itself reads the old output of its units
//   kCanProject                        whether the output may be projected
//   kResident, kCooperative            whether it runs on these paths of a GPU
//   kStepwise                          whether it runs on the stepwise path; true by default
// The first matmul multiplies the old output, each further one the result of the stage before it;
// the result of the last stage is the output. The functions take one group of
// Rotation::kUnits units (pair.h) of one row at one step:
//   cell_state<Math>(gates, c_before)                     the new c, if kHasCellState
//   result<Math>(Stage<S>, gates, h_before, c)            the result of the stage
//   backward<Math>(Stage<S>, gates, state, d_result, ...) gradients of the stage's gates
// where `gates` are activations.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "cells/activation.h"
#include "cells/pair.h"
#include "cells/rotation.h"
#include "cells/rows.h"

namespace rotcell {

enum class Activation {
  kGate,  // what the layer chose
  kTanh,
  kIdentity,  // the math of the cell sees the preactivation
};

template <int S>
using Stage = Constant<int, S>;

// The angles of a group of units, if there are any: as fractions of a full turn once activated.
template <class V, int COUNT>
struct AngleValues {
  V turns[COUNT];
  V whole;  // 1, or 0 for units that are left over, which do not turn
};
template <class V>
struct AngleValues<V, 0> {};
template <class V>
struct AngleValues<V, 1> {
  V turns;
};

// The gates of a group of units: before activation, after it, or their gradients.
template <class Cell, class Math>
struct GateValues : AngleValues<typename Math::Value, Cell::Rotation::kPlanes> {
  using P = Group<typename Math::Value, Cell::Rotation::kUnits>;

  P of_gate[Cell::kGateCount];

  ROTCELL_INLINE P& operator[](int gate) { return of_gate[gate]; }
  ROTCELL_INLINE const P& operator[](int gate) const { return of_gate[gate]; }
};

// What the math of a group of units may know of a step in the backward pass.
template <class Math, int K>
struct GroupState {
  Group<typename Math::Value, K> h_before;  // if Cell::kReadsOutput
  Group<typename Math::Value, K> c_before;  // if Cell::kHasCellState, as is c
  Group<typename Math::Value, K> c;
};
template <class Math>
using PairState = GroupState<Math, 2>;

namespace detail {
template <class Cell, class Body, int... GATES>
ROTCELL_INLINE void for_each_gate(const Body& body, std::integer_sequence<int, GATES...>) {
  (body(Constant<int, GATES>{}), ...);
}
}  // namespace detail

// body(gate) for every gate, as a compile-time constant.
template <class Cell, class Body>
ROTCELL_INLINE void for_gates(const Body& body) {
  detail::for_each_gate<Cell>(body, std::make_integer_sequence<int, Cell::kGateCount>{});
}

// body(gate) for every gate that the math of stage S uses.
template <class Cell, int S, class Body>
ROTCELL_INLINE void for_stage_gates(const Body& body) {
  for_gates<Cell>([&](auto gate) ROTCELL_LAMBDA_INLINE {
    if constexpr (Cell::stage(decltype(gate)::value) == S) body(gate);
  });
}

// body(Stage<S>) for the stages of a step in order.
template <class Cell, int S = 0, class Body>
ROTCELL_INLINE constexpr void for_stages(const Body& body) {
  if constexpr (S < Cell::kStages) {
    body(Stage<S>{});
    for_stages<Cell, S + 1>(body);
  }
}

// The same from the last stage to the first.
template <class Cell, int S = Cell::kStages - 1, class Body>
ROTCELL_INLINE constexpr void for_stages_back(const Body& body) {
  if constexpr (S >= 0) {
    body(Stage<S>{});
    for_stages_back<Cell, S - 1>(body);
  }
}

// Whether the math of stage S uses angles.
template <class Cell, int S>
inline constexpr bool stage_turns = Cell::Rotation::kHasAngles && Cell::kRotationStage == S;

// body(turn) for every angle of a group.
template <class Gates, class Body>
ROTCELL_INLINE void for_turns(Gates& gates, const Body& body) {
  if constexpr (std::is_array_v<decltype(gates.turns)>) {
    ROTCELL_UNROLL(1)
    for (auto& turn : gates.turns) body(turn);
  } else {
    body(gates.turns);
  }
}

// Preactivations of the gates of stage S become activations.
template <class Cell, int S, class Math>
ROTCELL_INLINE void activate(Activations activations, GateValues<Cell, Math>& gates) {
  for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
    if constexpr (Cell::activation(decltype(gate)::value) == Activation::kTanh) {
      gates[gate] = PairMath<Math>::tanh(gates[gate]);
    } else if constexpr (Cell::activation(decltype(gate)::value) == Activation::kGate) {
      gates[gate] = GateMath<Math>::value(activations.gates, gates[gate]);
    }
  });
  if constexpr (stage_turns<Cell, S>) {
    if constexpr (Cell::Rotation::kPlanes == 1) {
      gates.turns = GateMath<Math>::value(activations.angles, gates.turns);
    } else {
      for_turns(gates, [&](auto& turn) ROTCELL_LAMBDA_INLINE {
        turn = GateMath<Math>::value(activations.angles, turn);
      });
    }
  }
}

// Gradients of activations become those of preactivations.
template <class Cell, int S, class Math>
ROTCELL_INLINE void through_activations(Activations activations,
                                        const GateValues<Cell, Math>& gates,
                                        GateValues<Cell, Math>& grads) {
  for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
    if constexpr (Cell::activation(decltype(gate)::value) == Activation::kTanh) {
      grads[gate] = grads[gate] * PairMath<Math>::tanh_slope(gates[gate]);
    } else if constexpr (Cell::activation(decltype(gate)::value) == Activation::kGate) {
      grads[gate] = grads[gate] * GateMath<Math>::slope(activations.gates, gates[gate]);
    }
  });
  if constexpr (stage_turns<Cell, S>) {
    if constexpr (Cell::Rotation::kPlanes == 1) {
      grads.turns = GateMath<Math>::through(activations.angles, grads.turns, gates.turns);
    } else {
      ROTCELL_UNROLL(1)
      for (int i = 0; i < Cell::Rotation::kPlanes; ++i) {
        grads.turns[i] =
            GateMath<Math>::through(activations.angles, grads.turns[i], gates.turns[i]);
      }
    }
  }
}

// ---- What the kernels assume of a cell

// A Math to check a cell's functions with. They are not called.
struct DeclaredMath {
  using Value = double;
  static Value constant(double);
  static Value sigmoid(Value);
  static Value tanh(Value);
  static Value hard_sigmoid(Value);
  static Value hard_sigmoid_slope(Value);
  static void sincos_turns(Value, Value&, Value&);
};

// What every cell declares.
template <class Cell>
concept DescribesItself = requires {
  typename Cell::Rotation;
  Cell::Rotation::kHasAngles;
  Cell::Rotation::kUnits;
  Cell::Rotation::kPlanes;
  Cell::Rotation::angles(0);
  Cell::kGateCount;
  Cell::kGateNames;
  Cell::kStages;
  Cell::kRotationStage;
  Cell::kHasCellState;
  Cell::kReadsOutput;
  Cell::kCanProject;
  Cell::kResident;
  Cell::kCooperative;
  requires std::is_same_v<decltype(Cell::activation(0)), Activation>;
  requires std::is_same_v<decltype(Cell::matmul(0)), int>;
  requires std::is_same_v<decltype(Cell::stage(0)), int>;
};

template <class Cell>
using DeclaredGroup = Group<double, Cell::Rotation::kUnits>;

template <class Cell>
concept HasCellStateFunction =
    requires(const GateValues<Cell, DeclaredMath>& gates, const DeclaredGroup<Cell>& group) {
      requires std::is_same_v<decltype(Cell::template cell_state<DeclaredMath>(gates, group)),
                              DeclaredGroup<Cell>>;
    };

template <class Cell, int S>
concept HasStageFunctions = requires(GateValues<Cell, DeclaredMath>& gates,
                                     const GroupState<DeclaredMath, Cell::Rotation::kUnits>& state,
                                     const DeclaredGroup<Cell>& group, DeclaredGroup<Cell>& grad) {
  requires std::is_same_v<decltype(Cell::template result<DeclaredMath>(Stage<S>{}, gates, group,
                                                                       group)),
                          DeclaredGroup<Cell>>;
  Cell::template backward<DeclaredMath>(Stage<S>{}, gates, state, group, grad, grad, gates);
};

namespace detail {
template <class Cell>
constexpr bool gates_are_in_stages() {
  for (int gate = 0; gate < Cell::kGateCount; ++gate) {
    if (Cell::matmul(gate) < 0 || Cell::stage(gate) >= Cell::kStages) return false;
    if (Cell::matmul(gate) > Cell::stage(gate)) return false;
  }
  return true;
}
template <class Cell>
constexpr bool every_matmul_has_gates() {
  for (int matmul = 0; matmul < Cell::kStages; ++matmul) {
    if (CellRows<Cell>::of_matmul(matmul, 2) == 0) return false;
  }
  return true;
}
template <class Cell>
constexpr bool later_matmuls_are_contiguous() {
  for (int matmul = 1; matmul < Cell::kStages; ++matmul) {
    if (!CellRows<Cell>::are_contiguous(matmul)) return false;
  }
  return true;
}
template <class Rotation>
constexpr bool angles_are_those_of_whole_groups() {
  constexpr int K = Rotation::kUnits;
  if (Rotation::kPlanes != (Rotation::kHasAngles ? K * (K - 1) / 2 : 0)) return false;
  for (int units = 0; units < 4 * K; ++units) {
    if (Rotation::angles(units) != units / K * Rotation::kPlanes) return false;
  }
  return true;
}
template <class Cell>
constexpr bool activations_are_known() {
  for (int gate = 0; gate < Cell::kGateCount; ++gate) {
    const Activation a = Cell::activation(gate);
    if (a != Activation::kGate && a != Activation::kTanh && a != Activation::kIdentity)
      return false;
  }
  return true;
}
template <class Cell>
constexpr bool gates_without_input_are_last() {
  bool last = false;
  for (int gate = 0; gate < Cell::kGateCount; ++gate) {
    if (last && fed_by<Cell>(gate) != FedBy::kHidden) return false;
    last = fed_by<Cell>(gate) == FedBy::kHidden;
  }
  return !last || (!Cell::Rotation::kHasAngles && Cell::kStages == 1);
}
}  // namespace detail

// Whether a cell's math works on pairs. Cells with larger groups have only the unit-vectorized loop
// on CPUs.
template <class Cell>
inline constexpr bool takes_pairs = Cell::Rotation::kUnits == 2;

// Whether a cell runs on GPUs at all: the stepwise path is the one that takes every layer.
template <class Cell>
constexpr bool runs_on_gpus() {
  if constexpr (requires { Cell::kStepwise; }) {
    return Cell::kStepwise && takes_pairs<Cell>;
  } else {
    return takes_pairs<Cell>;
  }
}

// Does not compile for a cell that the kernels cannot run; the message says why.
template <class Cell>
constexpr bool check_cell() {
  static_assert(DescribesItself<Cell>,
                "a cell has all the members that the top of cells/cell.h lists");
  if constexpr (DescribesItself<Cell>) {
    static_assert(Cell::kStages == 1 || Cell::kStages == 2, "a cell has one or two stages");
    static_assert(Cell::kGateCount > 0, "a cell has at least one gate");
    static_assert(sizeof(Cell::kGateNames) / sizeof(Cell::kGateNames[0]) == Cell::kGateCount,
                  "kGateNames has one name per gate, in the order of the weights' rows");
    static_assert(detail::activations_are_known<Cell>(),
                  "activation(gate) is Activation::kGate, kTanh or kIdentity");
    static_assert(detail::gates_without_input_are_last<Cell>(),
                  "gates that x does not feed come last, in a cell of one stage without angles: "
                  "the rows of w_ih are the first columns of the gates");
    static_assert(detail::gates_are_in_stages<Cell>(),
                  "matmul(gate) and stage(gate) are below kStages, and a gate is used by the stage "
                  "of its matmul or a later one");
    static_assert(detail::every_matmul_has_gates<Cell>(),
                  "every stage has a matmul, so every matmul has at least one gate");
    static_assert(detail::later_matmuls_are_contiguous<Cell>(),
                  "the rows of a matmul after the first are contiguous: its gates are neighbors");
    static_assert(Cell::kRotationStage >= 0 && Cell::kRotationStage < Cell::kStages,
                  "kRotationStage is one of the stages");
    static_assert(Cell::Rotation::kUnits >= 2, "a group has at least two units");
    static_assert(detail::angles_are_those_of_whole_groups<typename Cell::Rotation>(),
                  "a rotation has one angle per pair of units of a group, for every whole group, "
                  "or none");
    static_assert(!Cell::kCanProject || (Cell::kStages == 1 && !Cell::kReadsOutput),
                  "only a cell of one stage whose math does not read the old output can be "
                  "projected: a projected output has another size than the units");
    static_assert(
        !Cell::kHasCellState || HasCellStateFunction<Cell>,
        "a cell with kHasCellState has cell_state<Math>(gates, c_before), which returns a group");
    if constexpr (Cell::kStages == 1 || Cell::kStages == 2) {
      static_assert(HasStageFunctions<Cell, 0> && HasStageFunctions<Cell, Cell::kStages - 1>,
                    "every stage has result<Math> and backward<Math> as cells/cell.h lists them");
    }
  }
  return true;
}

}  // namespace rotcell
