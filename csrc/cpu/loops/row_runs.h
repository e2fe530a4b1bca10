// Which rows of the weights, so which columns of the gates, a matmul makes for which units.
#pragma once

#include <cstdint>

#include "cpu/loops/kernels.h"
#include "cpu/matmul/factors.h"

namespace rotcell::cpu::ROTCELL_ISA {

// Columns of the gates that one matmul makes.
struct RowRun {
  int64_t first, rows;
  int64_t first_hh;  // the first row of w_hh, if h feeds them; that of w_ih is `first`
  bool from_x, from_h;

  // Elements of a row of the weights that make them, as packed.
  template <class T>
  int64_t depth(int64_t inputs, int64_t outputs) const {
    return (from_x ? packed_depth<T>(inputs) : 0) + (from_h ? packed_depth<T>(outputs) : 0);
  }
};

// The runs of some matmuls of a cell, in the order in which they are packed.
template <class Cell>
struct RowRuns {
  static constexpr int most() {
    if constexpr (RowCell<Cell>) {
      return Cell::kBlockCount;
    } else {
      return Cell::kGateCount + 1;
    }
  }

  RowRun run[most()];
  int count = 0;

  const RowRun* begin() const { return run; }
  const RowRun* end() const { return run + count; }

  // Rows that follow each other are one run.
  void add(RowRun next) {
    if (next.rows == 0) return;
    RowRun& last = run[count > 0 ? count - 1 : 0];
    if (count > 0 && last.first + last.rows == next.first && last.from_x == next.from_x &&
        last.from_h == next.from_h) {
      last.rows += next.rows;
    } else {
      run[count++] = next;
    }
  }

  // For a row cell: as large a part of every block as the units are of all units, cut at whole
  // vectors.
  void add_blocks(int64_t hidden, UnitRange units) {
    constexpr int64_t kTile = kVectorBytes / sizeof(float);
    for (int block = 0; block < Cell::kBlockCount; ++block) {
      const ColumnBlock found = Cell::block(block, hidden);
      const auto column = [&](int64_t unit) {
        return unit == hidden ? found.count : found.count * unit / hidden / kTile * kTile;
      };
      const int64_t first = column(units.begin);
      add({.first = CellRows<Cell>::offset(block, hidden) + first,
           .rows = column(units.end) - first,
           .first_hh = CellRows<Cell>::recurrent_offset(block, hidden) + first,
           .from_x = found.fed_by != FedBy::kHidden,
           .from_h = found.fed_by != FedBy::kInput});
    }
  }

  void add_matmul(int matmul, int64_t hidden, UnitRange units, HiddenFeeds feeds) {
    using Rows = CellRows<Cell>;
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (Cell::matmul(gate) == matmul) {
        add({.first = Rows::offset(gate, hidden) + units.begin,
             .rows = units.end - units.begin,
             .first_hh = Rows::recurrent_offset(gate, hidden) + units.begin,
             .from_x = fed_by<Cell>(gate) != FedBy::kHidden,
             .from_h = fed_by<Cell>(gate) != FedBy::kInput && feeds != HiddenFeeds::kNothing});
      }
    }
    if (matmul == kAngleMatmul) {
      const int64_t first = Cell::Rotation::angles(units.begin);
      add({.first = Rows::angles(hidden) + first,
           .rows = Cell::Rotation::angles(units.end) - first,
           .first_hh = Rows::recurrent_offset(Cell::kGateCount, hidden) + first,
           .from_x = true,
           .from_h = feeds == HiddenFeeds::kAll});
    }
  }
};

template <class Cell>
RowRuns<Cell> runs_of_matmul(int matmul, int64_t hidden, UnitRange units, HiddenFeeds feeds) {
  RowRuns<Cell> runs;
  if constexpr (RowCell<Cell>) {
    if (units.begin < units.end) runs.add_blocks(hidden, units);
  } else {
    runs.add_matmul(matmul, hidden, units, feeds);
  }
  return runs;
}

inline bool all_units(int64_t hidden, UnitRange units) {
  return units.begin == 0 && units.end == hidden;
}

// body(run) for the runs of all matmuls, in the order in which they are packed.
template <class Cell, class Body>
void for_runs(int64_t hidden, UnitRange units, HiddenFeeds feeds, const Body& body) {
  for (int matmul = 0; matmul < Cell::kStages; ++matmul) {
    for (const RowRun& run : runs_of_matmul<Cell>(matmul, hidden, units, feeds)) body(run);
  }
}

}  // namespace rotcell::cpu::ROTCELL_ISA
