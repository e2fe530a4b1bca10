// Between memory and a cell: one thread's pair of units of one row of the batch.
#pragma once

#include "cells/list.h"
#include "cuda/kernels/cell_rows.h"
#include "cuda/kernels/device_math.h"

namespace rotcell::cuda {

// Units 2k and 2k + 1 of `hidden` units. With an odd number the last has no partner and no angle.
struct PairOfUnits {
  int unit;
  int hidden;

  ROTCELL_DEVICE bool whole() const { return unit + 1 < hidden; }
  ROTCELL_DEVICE int angle() const { return unit / 2; }

  // value(i) of both units; i counts from `offset`.
  template <class V, class Value>
  ROTCELL_DEVICE Pair<V> read(int64_t offset, Value value) const {
    return {value(offset + unit), whole() ? value(offset + unit + 1) : V(0)};
  }
  template <class V, class Store>
  ROTCELL_DEVICE void write(int64_t offset, const Pair<V>& pair, Store store) const {
    store(offset + unit, pair.a);
    if (whole()) store(offset + unit + 1, pair.b);
  }
};

template <class T>
ROTCELL_DEVICE Pair<Compute<T>> load_pair(const PairOfUnits& units, const T* row) {
  return units.read<Compute<T>>(0, [&](int64_t i) { return to_compute(row[i]); });
}

// The same in two parts. A load is waited for when its number is converted, so what is fetched
// early is converted late.
template <class T>
ROTCELL_DEVICE Pair<T> fetch_pair(const PairOfUnits& units, const T* row) {
  return {row[units.unit], units.whole() ? row[units.unit + 1] : to_storage<T>(0)};
}
template <class T>
ROTCELL_DEVICE Pair<Compute<T>> converted(const Pair<T>& fetched) {
  return {to_compute(fetched.a), to_compute(fetched.b)};
}

template <class T>
ROTCELL_DEVICE void store_pair(const PairOfUnits& units, T* row, const Pair<Compute<T>>& pair) {
  units.write(0, pair, [&](int64_t i, Compute<T> value) { row[i] = to_storage<T>(value); });
}

// How an activation is saved for the backward pass, in the tensors' dtype. fp16 and bf16 are too
// coarse near 1, the value of a gate that keeps the cell state for long: such a gate is saved as
// its negated distance from 1.
template <class T>
struct KeptActivation {
  using A = Compute<T>;
  static constexpr bool kFromBothEnds = sizeof(T) == 2;

  static ROTCELL_DEVICE T of_tanh(A value) { return to_storage<T>(value); }
  static ROTCELL_DEVICE T of_share(A value) {
    return to_storage<T>(kFromBothEnds && value > A(0.5) ? -(A(1) - value) : value);
  }
  static ROTCELL_DEVICE A tanh(T kept) { return to_compute(kept); }
  static ROTCELL_DEVICE A share(T kept) {
    const A value = to_compute(kept);
    return kFromBothEnds && copysignf(1.0f, static_cast<float>(value)) < 0 ? A(1) + value : value;
  }
};

template <class Cell, class A>
using Gates = GateValues<Cell, DeviceMath<A>>;

// Gates as they are stored in memory.
template <class T>
struct Stored {
  using Value = T;
};
template <class Cell, class T>
using FetchedGates = GateValues<Cell, Stored<T>>;

// The value of the angle of a last unit without a partner.
struct MissingAngle {
  static constexpr double kPreactivation = -INFINITY;
  static constexpr double kActivation = 0;
};

// The gates and angles of a cell that some condition names: which(matmul, stage) -> bool.
template <class Cell, class A, class Which>
struct GateSelection {
  static constexpr bool kTurns = Cell::Rotation::kHasAngles && Which{}(0, Cell::kRotationStage);

  // From value(row of the weights).
  template <class Value>
  static ROTCELL_DEVICE void read(const PairOfUnits& units, double missing_angle,
                                  Gates<Cell, A>& gates, Value value) {
    for_gates<Cell>([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      if constexpr (Which{}(Cell::matmul(kGate), Cell::stage(kGate))) {
        gates[kGate] = units.read<A>(CellRows<Cell>::offset(kGate, units.hidden), value);
      }
    });
    if constexpr (kTurns) {
      gates.turns = units.whole() ? value(CellRows<Cell>::angles(units.hidden) + units.angle())
                                  : static_cast<A>(missing_angle);
    }
  }

  // The same in two parts, fetch and convert, from row [G].
  template <class T>
  static ROTCELL_DEVICE void fetch(const PairOfUnits& units, FetchedGates<Cell, T>& gates,
                                   const T* row) {
    for_gates<Cell>([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      if constexpr (Which{}(Cell::matmul(kGate), Cell::stage(kGate))) {
        gates[kGate] = fetch_pair(units, row + CellRows<Cell>::offset(kGate, units.hidden));
      }
    });
    if constexpr (kTurns) {
      if (units.whole()) gates.turns = row[CellRows<Cell>::angles(units.hidden) + units.angle()];
    }
  }
  template <class T>
  static ROTCELL_DEVICE void convert(const PairOfUnits& units, double missing_angle,
                                     const FetchedGates<Cell, T>& fetched, Gates<Cell, A>& gates) {
    for_gates<Cell>([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      if constexpr (Which{}(Cell::matmul(kGate), Cell::stage(kGate))) {
        gates[kGate] = converted(fetched[kGate]);
      }
    });
    if constexpr (kTurns) {
      gates.turns = units.whole() ? to_compute(fetched.turns) : static_cast<A>(missing_angle);
    }
  }

  // Activations, as they are kept.
  template <class T>
  static ROTCELL_DEVICE void convert_kept(const PairOfUnits& units,
                                          const FetchedGates<Cell, T>& fetched,
                                          Gates<Cell, A>& gates) {
    using Kept = KeptActivation<T>;
    for_gates<Cell>([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      if constexpr (Which{}(Cell::matmul(kGate), Cell::stage(kGate))) {
        const Pair<T>& kept = fetched[kGate];
        if constexpr (Cell::activation(kGate) == Activation::kTanh) {
          gates[kGate] = {Kept::tanh(kept.a), Kept::tanh(kept.b)};
        } else {
          gates[kGate] = {Kept::share(kept.a), Kept::share(kept.b)};
        }
      }
    });
    if constexpr (kTurns) {
      gates.turns = units.whole() ? Kept::share(fetched.turns) : A(MissingAngle::kActivation);
    }
  }
  template <class T>
  static ROTCELL_DEVICE void read_kept(const PairOfUnits& units, Gates<Cell, A>& gates,
                                       const T* row) {
    FetchedGates<Cell, T> fetched{};
    fetch(units, fetched, row);
    convert_kept(units, fetched, gates);
  }
  template <class T>
  static ROTCELL_DEVICE void write_kept(const PairOfUnits& units, const Gates<Cell, A>& gates,
                                        T* row) {
    for_gates<Cell>([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      if constexpr (Which{}(Cell::matmul(kGate), Cell::stage(kGate))) {
        units.write(CellRows<Cell>::offset(kGate, units.hidden), gates[kGate],
                    [&](int64_t i, A value) {
                      row[i] = Cell::activation(kGate) == Activation::kTanh
                                   ? KeptActivation<T>::of_tanh(value)
                                   : KeptActivation<T>::of_share(value);
                    });
      }
    });
    if constexpr (kTurns) {
      if (units.whole()) {
        row[CellRows<Cell>::angles(units.hidden) + units.angle()] =
            KeptActivation<T>::of_share(gates.turns);
      }
    }
  }

  // store(row of the weights, value)
  template <class Store>
  static ROTCELL_DEVICE void write(const PairOfUnits& units, const Gates<Cell, A>& gates,
                                   Store store) {
    for_gates<Cell>([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      if constexpr (Which{}(Cell::matmul(kGate), Cell::stage(kGate))) {
        units.write(CellRows<Cell>::offset(kGate, units.hidden), gates[kGate], store);
      }
    });
    if constexpr (kTurns) {
      if (units.whole()) {
        store(CellRows<Cell>::angles(units.hidden) + units.angle(), gates.turns);
      }
    }
  }
};

namespace detail {
struct Every {
  ROTCELL_INLINE constexpr bool operator()(int, int) const { return true; }
};
template <int S>
struct UsedBy {
  ROTCELL_INLINE constexpr bool operator()(int, int stage) const { return stage == S; }
};
template <int P>
struct MadeBy {
  ROTCELL_INLINE constexpr bool operator()(int matmul, int) const { return matmul == P; }
};
template <int S>
struct MadeBefore {
  ROTCELL_INLINE constexpr bool operator()(int matmul, int stage) const {
    return stage == S && matmul < S;
  }
};
template <int P>
struct UsedAfter {
  ROTCELL_INLINE constexpr bool operator()(int matmul, int stage) const {
    return matmul == P && stage > P;
  }
};
}  // namespace detail

template <class Cell, class A>
using AllGates = GateSelection<Cell, A, detail::Every>;
// Those that the math of stage S uses.
template <class Cell, class A, int S>
using StageGates = GateSelection<Cell, A, detail::UsedBy<S>>;
// Those that matmul P makes.
template <class Cell, class A, int P>
using GatesFromMatmul = GateSelection<Cell, A, detail::MadeBy<P>>;
// Those that wait: used by stage S, but made by an earlier matmul; made by matmul P, but used by
// a later stage.
template <class Cell, class A, int S>
using WaitedGates = GateSelection<Cell, A, detail::MadeBefore<S>>;
template <class Cell, class A, int P>
using WaitingGates = GateSelection<Cell, A, detail::UsedAfter<P>>;

// Adds what matmul P gives, result(place in the matmul's own order), to its preactivations. The
// units are those of the block that made the matmul.
template <int P, class Cell, class A, class Result>
ROTCELL_DEVICE void add_matmul(const PairOfUnits& units, Gates<Cell, A>& gates, Result result) {
  using Rows = MatmulRows<Cell, P>;
  for_gates<Cell>([&](auto gate) {
    constexpr int kGate = decltype(gate)::value;
    if constexpr (Cell::matmul(kGate) == P) {
      gates[kGate] = gates[kGate] + units.read<A>(Rows::place(kGate, units.hidden), result);
    }
  });
  if constexpr (Rows::kHasAngles) {
    if (units.whole()) gates.turns += result(Rows::angles(units.hidden) + units.angle());
  }
}

// store(place in matmul P's own order, row of the weights, value) for gates of stage S that the
// matmul makes: gradients of its inputs.
template <int P, int S, class Cell, class A, class Store>
ROTCELL_DEVICE void write_matmul(const PairOfUnits& units, const Gates<Cell, A>& gates,
                                 Store store) {
  using Rows = MatmulRows<Cell, P>;
  const auto shifted = [&](int64_t place, int64_t row) {
    return [&store, place, row](int64_t i, A value) { store(place + i, row + i, value); };
  };
  for_gates<Cell>([&](auto gate) {
    constexpr int kGate = decltype(gate)::value;
    if constexpr (Cell::matmul(kGate) == P && Cell::stage(kGate) == S) {
      units.write(
          0, gates[kGate],
          shifted(Rows::place(kGate, units.hidden), CellRows<Cell>::offset(kGate, units.hidden)));
    }
  });
  if constexpr (Rows::kHasAngles && Cell::kRotationStage == S) {
    if (units.whole()) {
      shifted(Rows::angles(units.hidden), CellRows<Cell>::angles(units.hidden))(units.angle(),
                                                                                gates.turns);
    }
  }
}

}  // namespace rotcell::cuda
