// Between memory and a cell: one thread's pair of units of one row of the batch.
#pragma once

#include "cells/rot_gru.h"
#include "cells/rot_lstm.h"
#include "cuda/device_math.h"

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

template <class T>
ROTCELL_DEVICE void store_pair(const PairOfUnits& units, T* row, const Pair<Compute<T>>& pair) {
  units.write(0, pair, [&](int64_t i, Compute<T> value) { row[i] = to_storage<T>(value); });
}

// The value an angle has where there is none.
struct MissingAngle {
  static constexpr double kPreactivation = -INFINITY;
  static constexpr double kActivation = 0;
};

// The gates of a RotLSTM from value(row of the weights).
template <class A, class Value>
ROTCELL_DEVICE typename RotLstmCell<DeviceMath<A>>::Gates read_lstm_gates(const PairOfUnits& units,
                                                                          double missing_angle,
                                                                          Value value) {
  using Rows = RotLstmRows;
  const auto gate = [&](Rows::Gate which) {
    return units.read<A>(Rows::offset(which, units.hidden), value);
  };
  return {gate(Rows::kInput), gate(Rows::kForget), gate(Rows::kCandidate), gate(Rows::kOutput),
          units.whole() ? value(Rows::angles(units.hidden) + units.angle())
                        : static_cast<A>(missing_angle)};
}

template <class Gates>
ROTCELL_DEVICE Gates sum_of_gates(const Gates& x, const Gates& y) {
  return {x.i + y.i, x.f + y.f, x.g + y.g, x.o + y.o, x.rot + y.rot};
}

template <class A, class Store>
ROTCELL_DEVICE void write_lstm_gates(const PairOfUnits& units,
                                     const typename RotLstmCell<DeviceMath<A>>::Gates& gates,
                                     Store store) {
  using Rows = RotLstmRows;
  const auto gate = [&](Rows::Gate which, const Pair<A>& pair) {
    units.write(Rows::offset(which, units.hidden), pair, store);
  };
  gate(Rows::kInput, gates.i);
  gate(Rows::kForget, gates.f);
  gate(Rows::kCandidate, gates.g);
  gate(Rows::kOutput, gates.o);
  if (units.whole()) store(Rows::angles(units.hidden) + units.angle(), gates.rot);
}

// One gate of a RotGRU.
template <class A, class Value>
ROTCELL_DEVICE Pair<A> read_gru_gate(const PairOfUnits& units, RotGruRows::Gate which,
                                     Value value) {
  return units.read<A>(RotGruRows::offset(which, units.hidden), value);
}

template <class A, class Store>
ROTCELL_DEVICE void write_gru_gate(const PairOfUnits& units, RotGruRows::Gate which,
                                   const Pair<A>& pair, Store store) {
  units.write(RotGruRows::offset(which, units.hidden), pair, store);
}

template <class A, class Value>
ROTCELL_DEVICE A read_gru_angle(const PairOfUnits& units, double missing_angle, Value value) {
  return units.whole() ? value(RotGruRows::angles(units.hidden) + units.angle())
                       : static_cast<A>(missing_angle);
}

template <class A, class Store>
ROTCELL_DEVICE void write_gru_angle(const PairOfUnits& units, A angle, Store store) {
  if (units.whole()) store(RotGruRows::angles(units.hidden) + units.angle(), angle);
}

}  // namespace rotcell::cuda
