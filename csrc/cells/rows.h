// Which columns of a matrix of gates, and which rows of the weights, belong to what. The only place
// that knows: gates in the order of the cell's enum, one column per unit each, then the angles. The
// rows of w_ih are the first columns; those of w_hh are the columns that h feeds, in their order.
#pragma once

#include <cstdint>

#include "cells/portable.h"

namespace rotcell {

// The matmul that makes the angles.
inline constexpr int kAngleMatmul = 0;

// What a gate is a sum of.
enum class FedBy {
  kBoth,    // W_ih x + W_hh h
  kInput,   // W_ih x: no row of w_hh
  kHidden,  // W_hh h: no row of w_ih
};

// Which rows h feeds in a call, of those that it may feed.
enum class HiddenFeeds {
  kAll,
  kGates,    // all but the angles
  kNothing,  // a layer without w_hh
};

// A cell without fed_by(gate) has no other gates than those fed by both.
template <class Cell>
ROTCELL_INLINE constexpr FedBy fed_by(int gate) {
  if constexpr (requires { Cell::fed_by(0); }) {
    return Cell::fed_by(gate);
  } else {
    return FedBy::kBoth;
  }
}

// Neighboring gate columns that h feeds, and the rows of w_hh that do it.
struct RecurrentSpan {
  int64_t column, row, count;
};
struct RecurrentSpans {
  static constexpr int kMost = 4;
  RecurrentSpan span[kMost] = {};
  int count = 0;

  // Not implicit: Clang would emit it as a weak symbol outside the kernels' namespaces.
  ROTCELL_INLINE constexpr RecurrentSpans() {}
  ROTCELL_INLINE constexpr const RecurrentSpan* begin() const { return span; }
  ROTCELL_INLINE constexpr const RecurrentSpan* end() const { return span + count; }
  ROTCELL_INLINE constexpr void add(int64_t column, int64_t row, int64_t rows) {
    if (rows == 0) return;
    if (count > 0 && span[count - 1].column + span[count - 1].count == column) {
      span[count - 1].count += rows;
    } else {
      span[count++] = {column, row, rows};
    }
  }
};

// The gates of one matmul of a cell.
template <class Cell, int MATMUL>
struct MatmulGates {
  static constexpr bool kHasAngles = MATMUL == kAngleMatmul && Cell::Rotation::kHasAngles;

  // How many gates of the matmul come before this one; for kGateCount, how many there are.
  static ROTCELL_INLINE constexpr int position(int gate) {
    int count = 0;
    for (int other = 0; other < gate; ++other) count += Cell::matmul(other) == MATMUL ? 1 : 0;
    return count;
  }
  static constexpr int kGates = position(Cell::kGateCount);

  // The gate at a position; kGateCount if there are not so many.
  static ROTCELL_INLINE constexpr int gate_at(int wanted) {
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (Cell::matmul(gate) == MATMUL && position(gate) == wanted) return gate;
    }
    return Cell::kGateCount;
  }
};

template <class Cell>
struct CellRows {
  // The first row of a gate, and of the angles.
  static ROTCELL_INLINE constexpr int64_t offset(int gate, int64_t hidden) { return gate * hidden; }
  static ROTCELL_INLINE constexpr int64_t angles(int64_t hidden) {
    return Cell::kGateCount * hidden;
  }
  static ROTCELL_INLINE constexpr int64_t count(int64_t hidden) {
    return angles(hidden) + Cell::Rotation::angles(hidden);
  }

  // Rows of w_ih: gates that x does not feed come last.
  static ROTCELL_INLINE constexpr int64_t of_input(int64_t hidden) {
    int64_t rows = Cell::Rotation::angles(hidden);
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (fed_by<Cell>(gate) != FedBy::kHidden) rows += hidden;
    }
    return rows;
  }
  // The first row of a gate in w_hh, if h feeds it; of kGateCount, that of the angles.
  static ROTCELL_INLINE constexpr int64_t recurrent_offset(int gate, int64_t hidden) {
    int64_t rows = 0;
    for (int before = 0; before < gate; ++before) {
      if (fed_by<Cell>(before) != FedBy::kInput) rows += hidden;
    }
    return rows;
  }
  // All columns that h feeds.
  static ROTCELL_INLINE constexpr RecurrentSpans recurrent_spans(int64_t hidden,
                                                                 HiddenFeeds feeds) {
    RecurrentSpans spans;
    if (feeds == HiddenFeeds::kNothing) return spans;
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (fed_by<Cell>(gate) != FedBy::kInput) {
        spans.add(offset(gate, hidden), recurrent_offset(gate, hidden), hidden);
      }
    }
    if (feeds == HiddenFeeds::kGates) return spans;
    spans.add(angles(hidden), recurrent_offset(Cell::kGateCount, hidden),
              Cell::Rotation::angles(hidden));
    return spans;
  }

  // Rows that a matmul makes.
  static ROTCELL_INLINE constexpr int64_t of_matmul(int matmul, int64_t hidden) {
    int64_t rows = matmul == kAngleMatmul ? Cell::Rotation::angles(hidden) : 0;
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (Cell::matmul(gate) == matmul) rows += hidden;
    }
    return rows;
  }

  // The first of them.
  static ROTCELL_INLINE constexpr int64_t first_of_matmul(int matmul, int64_t hidden) {
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (Cell::matmul(gate) == matmul) return offset(gate, hidden);
    }
    return 0;
  }

  // Rows from the first to the last of them, with rows of other matmuls in between.
  static ROTCELL_INLINE constexpr int64_t span_of_matmul(int matmul, int64_t hidden) {
    int64_t end = 0;
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (Cell::matmul(gate) == matmul) end = offset(gate + 1, hidden);
    }
    if (matmul == kAngleMatmul && Cell::Rotation::kHasAngles) end = count(hidden);
    return end - first_of_matmul(matmul, hidden);
  }

  // Whether no rows of other matmuls are between those of a matmul.
  static constexpr bool are_contiguous(int matmul) {
    int first = Cell::kGateCount, last = -1, gates = 0;
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (Cell::matmul(gate) != matmul) continue;
      if (gates++ == 0) first = gate;
      last = gate;
    }
    return gates == 0 || last - first + 1 == gates;
  }
};

}  // namespace rotcell
