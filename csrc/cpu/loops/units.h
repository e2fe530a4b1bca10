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

// A row of gates [G] of a cell.
template <class T, class Cell>
struct GateRow {
  using Values = GateValues<Cell, VectorMath<T>>;
  using Rows = CellRows<Cell>;

  // Gates of stage S before activation. A last unit without a partner does not turn.
  template <int S>
  static ROTCELL_INLINE void load_preactivations(const T* row, int64_t hidden, const PairVector& v,
                                                 Values& gates) {
    load<S>(row, hidden, v, gates);
    if constexpr (stage_turns<Cell, S>) {
      if (v.angles < kLanes<T>) {
        const Vec<T> no_turn = broadcast(-static_cast<T>(__builtin_inf()));
        gates.turns = first_lanes<T>(v.angles) ? gates.turns : no_turn;
      }
    }
  }

  template <int S>
  static ROTCELL_INLINE void load(const T* row, int64_t hidden, const PairVector& v,
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
};

}  // namespace rotcell::cpu::ROTCELL_ISA
