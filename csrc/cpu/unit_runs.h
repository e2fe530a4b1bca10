// Which rows of the weights, so which columns of the gates, belong to which units.
#pragma once

#include <cstdint>

#include "cells/rot_gru.h"
#include "cells/rot_lstm.h"
#include "cpu/kernels.h"

namespace rotcell::cpu::ROTCELL_ISA {

// Rows of the weights that enter one product together.
struct RowRun {
  int64_t first, rows;
};

struct RowRuns {
  RowRun run[5];
  int count;

  const RowRun* begin() const { return run; }
  const RowRun* end() const { return run + count; }
};

template <class Rows>
RowRun gate_run(typename Rows::Gate gate, int64_t hidden, UnitRange units) {
  return {Rows::offset(gate, hidden) + units.begin, units.end - units.begin};
}

// The angles turn pairs of units; a last unit without a partner has none.
template <class Rows>
RowRun angle_run(int64_t hidden, UnitRange units) {
  return {Rows::angles(hidden) + units.begin / 2, units.end / 2 - units.begin / 2};
}

inline bool all_units(int64_t hidden, UnitRange units) {
  return units.begin == 0 && units.end == hidden;
}

inline RowRuns lstm_runs(int64_t hidden, UnitRange units) {
  using Rows = RotLstmRows;
  if (all_units(hidden, units)) return {{{0, Rows::count(hidden)}}, 1};
  return {
      {gate_run<Rows>(Rows::kInput, hidden, units), gate_run<Rows>(Rows::kForget, hidden, units),
       gate_run<Rows>(Rows::kCandidate, hidden, units),
       gate_run<Rows>(Rows::kOutput, hidden, units), angle_run<Rows>(hidden, units)},
      5};
}

// The candidate's product waits for the others.
inline RowRuns gru_runs_before_candidate(int64_t hidden, UnitRange units) {
  using Rows = RotGruRows;
  static_assert(Rows::kReset == 0 && Rows::kUpdate == 1, "reset and update are one run of rows");
  if (all_units(hidden, units)) return {{{0, 2 * hidden}, angle_run<Rows>(hidden, units)}, 2};
  return {{gate_run<Rows>(Rows::kReset, hidden, units),
           gate_run<Rows>(Rows::kUpdate, hidden, units), angle_run<Rows>(hidden, units)},
          3};
}
inline RowRun gru_candidate_run(int64_t hidden, UnitRange units) {
  return gate_run<RotGruRows>(RotGruRows::kCandidate, hidden, units);
}
// In the order in which they are packed.
inline RowRuns gru_runs(int64_t hidden, UnitRange units) {
  RowRuns runs = gru_runs_before_candidate(hidden, units);
  runs.run[runs.count++] = gru_candidate_run(hidden, units);
  return runs;
}

// On the way back all rows take part for each unit; the GRU's in the order in which they are ready.
inline RowRuns lstm_runs_back(int64_t hidden) { return lstm_runs(hidden, {0, hidden}); }
inline RowRuns gru_runs_back(int64_t hidden) { return gru_runs(hidden, {0, hidden}); }

}  // namespace rotcell::cpu::ROTCELL_ISA
