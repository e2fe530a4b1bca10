// Between memory and a cell: the units of one row, a vector of pairs at a time.
#pragma once

#include <cstdint>

#include "cells/cell.h"
#include "cpu/loops/kernels.h"
#include "cpu/simd/vector_math.h"
#include "cpu/simd/vectors.h"

namespace rotcell::cpu::ROTCELL_ISA {

// The pairs of units that one vector holds.
struct PairVector {
  int64_t unit;    // the first
  int64_t units;   // how many exist from there on
  int64_t angles;  // how many whole pairs
};

// body(PairVector) for every vector of a range; the counts are constants of the compiler for all
// but the last vector.
template <class T, class Body>
ROTCELL_INLINE void for_pairs(UnitRange range, const Body& body) {
  constexpr int L = kLanes<T>;
  int64_t unit = range.begin;
  for (; unit + 2 * L <= range.end; unit += 2 * L) body(PairVector{unit, 2 * L, L});
  if (unit < range.end) body(PairVector{unit, range.end - unit, (range.end - unit) / 2});
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

  // Gates of stage S before activation. A last unit without a partner does not turn.
  template <int S>
  static ROTCELL_INLINE void load_preactivations(const MathType<T>* row, int64_t hidden,
                                                 const PairVector& v, Values& gates) {
    load<S>(row, hidden, v, gates);
    if constexpr (stage_turns<Cell, S>) {
      if (v.angles < kLanes<T>) {
        const Vec<T> no_turn = broadcast(-static_cast<MathType<T>>(__builtin_inf()));
        gates.turns = first_lanes<T>(v.angles) ? gates.turns : no_turn;
      }
    }
  }

  template <int S, class Stored>
  static ROTCELL_INLINE void load(const Stored* row, int64_t hidden, const PairVector& v,
                                  Values& gates) {
    for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
      gates[gate] = load_pairs(row + Rows::offset(gate, hidden) + v.unit, v.units);
    });
    if constexpr (stage_turns<Cell, S>) {
      gates.turns = load_first(row + Rows::angles(hidden) + v.unit / 2, v.angles);
    }
  }

  template <int S>
  static ROTCELL_INLINE void store(T* row, int64_t hidden, const PairVector& v,
                                   const Values& gates) {
    for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
      store_pairs(row + Rows::offset(gate, hidden) + v.unit, gates[gate], v.units);
    });
    if constexpr (stage_turns<Cell, S>) {
      store_first(row + Rows::angles(hidden) + v.unit / 2, gates.turns, v.angles);
    }
  }

  // Activations as they are saved for backward.
  template <int S>
  static ROTCELL_INLINE void save(T* row, int64_t hidden, const PairVector& v, Values gates) {
    for_shares<S>(gates,
                  [](Vec<T>& share) ROTCELL_LAMBDA_INLINE { share = as_saved_share<T>(share); });
    store<S>(row, hidden, v, gates);
  }
  template <int S>
  static ROTCELL_INLINE void load_saved(const T* row, int64_t hidden, const PairVector& v,
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
          body(gates[gate].a);
          body(gates[gate].b);
        }
      });
      if constexpr (stage_turns<Cell, S>) body(gates.turns);
    }
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
