// Which rows of the weights, so which columns of the gates, a product makes for which units.
#pragma once

#include <cstdint>

#include "cpu/kernels.h"

namespace rotcell::cpu::ROTCELL_ISA {

// Rows of the weights that enter one product together.
struct RowRun {
  int64_t first, rows;
};

// The runs of some products of a cell, in the order in which they are packed.
template <class Cell>
struct RowRuns {
  RowRun run[Cell::kGateCount + 1];
  int count = 0;

  const RowRun* begin() const { return run; }
  const RowRun* end() const { return run + count; }

  // Rows that follow each other are one run.
  void add(RowRun next) {
    if (next.rows == 0) return;
    if (count > 0 && run[count - 1].first + run[count - 1].rows == next.first) {
      run[count - 1].rows += next.rows;
    } else {
      run[count++] = next;
    }
  }

  void add_product(int product, int64_t hidden, UnitRange units) {
    using Rows = CellRows<Cell>;
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (Cell::product(gate) == product) {
        add({Rows::offset(gate, hidden) + units.begin, units.end - units.begin});
      }
    }
    if (product == 0) {
      const int64_t first = Cell::Rotation::angles(units.begin);
      add({Rows::angles(hidden) + first, Cell::Rotation::angles(units.end) - first});
    }
  }
};

template <class Cell>
RowRuns<Cell> runs_of_product(int product, int64_t hidden, UnitRange units) {
  RowRuns<Cell> runs;
  runs.add_product(product, hidden, units);
  return runs;
}

inline bool all_units(int64_t hidden, UnitRange units) {
  return units.begin == 0 && units.end == hidden;
}

// body(run) for the runs of all products, in the order in which they are packed.
template <class Cell, class Body>
void for_runs(int64_t hidden, UnitRange units, const Body& body) {
  for (int product = 0; product < Cell::kStages; ++product) {
    for (const RowRun& run : runs_of_product<Cell>(product, hidden, units)) body(run);
  }
}

}  // namespace rotcell::cpu::ROTCELL_ISA
