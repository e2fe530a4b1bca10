// Between memory and a cell: the units of one row, a vector of groups of units at a time.
#pragma once

#include <cstdint>

#include "cells/cell.h"
#include "cpu/loops/kernels.h"
#include "cpu/simd/vector_math.h"
#include "cpu/simd/vectors.h"

namespace rotcell::cpu::ROTCELL_ISA {

// The groups of units that one vector has in its lanes.
struct GroupVector {
  int64_t unit;    // the first
  int64_t units;   // how many exist from there on
  int64_t groups;  // how many whole groups
};

// body(GroupVector) for every vector of a range, of groups of K units; the counts are compile-time
// constants for all but the last vector.
template <class T, int K, class Body>
ROTCELL_INLINE void for_groups(UnitRange range, const Body& body) {
  constexpr int L = kLanes<T>;
  int64_t unit = range.begin;
  for (; unit + K * L <= range.end; unit += K * L) body(GroupVector{unit, K * L, L});
  if (unit < range.end) body(GroupVector{unit, range.end - unit, (range.end - unit) / K});
}

// A saved share, of which 1 - share is wanted too: in a type as coarse as bfloat16 those above 1/2
// are saved as share - 1, as GPUs do it (rotcell/ops/saved_format.py).
template <class T>
ROTCELL_INLINE Vec<T> as_saved_share(Vec<T> share) {
  if constexpr (kRoundsStored<T>) {
    const Vec<T> one = broadcast(MathType<T>{1});
    return share > MathType<T>{0.5} ? -(one - share) : share;
  }
  return share;
}
template <class T>
ROTCELL_INLINE Vec<T> from_saved_share(Vec<T> saved) {
  if constexpr (kRoundsStored<T>) {
    return reinterpret_cast<Bits<T>>(saved) < 0 ? saved + MathType<T>{1} : saved;
  }
  return saved;
}

// A row of gates [G] of a cell.
template <class T, class Cell>
struct GateRow {
  using Values = GateValues<Cell, VectorMath<MathType<T>>>;
  using Rows = CellRows<Cell>;
  static constexpr int K = Cell::Rotation::kUnits, kPlanes = Cell::Rotation::kPlanes;

  // The angles of the groups of a vector.
  static ROTCELL_INLINE int64_t angles(int64_t hidden, const GroupVector& v) {
    return Rows::angles(hidden) + v.unit / K * kPlanes;
  }

  // Gates of stage S before activation. Last units that are no whole group do not turn.
  template <int S>
  static ROTCELL_INLINE void load_preactivations(const MathType<T>* row, int64_t hidden,
                                                 const GroupVector& v, Values& gates) {
    load<S>(row, hidden, v, gates);
    if constexpr (stage_turns<Cell, S>) {
      if (v.groups < kLanes<T>) {
        const Vec<T> no_turn = broadcast(-static_cast<MathType<T>>(__builtin_inf()));
        const Bits<T> turns = first_lanes<T>(v.groups);
        for_turns(gates,
                  [&](Vec<T>& turn) ROTCELL_LAMBDA_INLINE { turn = turns ? turn : no_turn; });
      }
    }
  }

  template <int S, class Stored>
  static ROTCELL_INLINE void load(const Stored* row, int64_t hidden, const GroupVector& v,
                                  Values& gates) {
    for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
      gates[gate] = load_groups<K>(row + Rows::offset(gate, hidden) + v.unit, v.units);
    });
    if constexpr (stage_turns<Cell, S>) {
      const Stored* turns = row + angles(hidden, v);
      if constexpr (kPlanes == 1) {
        gates.turns = load_first(turns, v.groups);
      } else {
        load_interleaved(turns, v.groups * kPlanes, gates.turns);
        const Vec<T> whole = broadcast(MathType<T>{1});
        gates.whole = v.groups == kLanes<T> ? whole : first_lanes<T>(v.groups) ? whole : Vec<T>{};
      }
    }
  }

  template <int S>
  static ROTCELL_INLINE void store(T* row, int64_t hidden, const GroupVector& v,
                                   const Values& gates) {
    for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
      store_groups(row + Rows::offset(gate, hidden) + v.unit, gates[gate], v.units);
    });
    if constexpr (stage_turns<Cell, S>) {
      T* turns = row + angles(hidden, v);
      if constexpr (kPlanes == 1) {
        store_first(turns, gates.turns, v.groups);
      } else {
        store_interleaved(turns, gates.turns, v.groups * kPlanes);
      }
    }
  }

  // Activations as they are saved for backward.
  template <int S>
  static ROTCELL_INLINE void save(T* row, int64_t hidden, const GroupVector& v, Values gates) {
    for_shares<S>(gates,
                  [](Vec<T>& share) ROTCELL_LAMBDA_INLINE { share = as_saved_share<T>(share); });
    store<S>(row, hidden, v, gates);
  }
  template <int S>
  static ROTCELL_INLINE void load_saved(const T* row, int64_t hidden, const GroupVector& v,
                                        Values& gates) {
    load<S>(row, hidden, v, gates);
    for_shares<S>(gates,
                  [](Vec<T>& saved) ROTCELL_LAMBDA_INLINE { saved = from_saved_share<T>(saved); });
  }

 private:
  // body(values) for what lies between 0 and 1.
  template <int S, class Body>
  static ROTCELL_INLINE void for_shares(Values& gates, const Body& body) {
    if constexpr (kRoundsStored<T>) {
      for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
        if constexpr (Cell::activation(decltype(gate)::value) == Activation::kGate) {
          for_units(gates[gate], body);
        }
      });
      if constexpr (stage_turns<Cell, S>) for_turns(gates, body);
    }
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
