// One stage of one step of any cell, when torch has made the matmuls: a thread for each row and
// pair of units.
#include "cuda/kernels/cell_io.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/stepwise.h"

namespace rotcell::cuda {
namespace {

Grid stage_grid(int64_t rows, int hidden) {
  const int64_t items = rows * divide_up(hidden, 2);
  return {static_cast<unsigned>((items + Tiles::kStepThreads - 1) / Tiles::kStepThreads),
          Tiles::kStepThreads, 0};
}

// This thread's row and pair of units; false if there is none.
ROTCELL_DEVICE bool find_work(int64_t rows, int hidden, int64_t& row, PairOfUnits& units) {
  const int pairs = divide_up(hidden, 2);
  const int64_t item = int64_t{1} * blockIdx.x * blockDim.x + threadIdx.x;
  row = item / pairs;
  units = {static_cast<int>(item - row * pairs) * 2, hidden};
  return row < rows;
}

// Zoneout of one thread's units: keeps shares of the old state.
template <class T>
struct Mixture {
  using A = Compute<T>;
  Pair<A> stays, goes;

  ROTCELL_DEVICE Mixture(const PairOfUnits& units, const ZoneoutKeep& keep, int64_t row)
      : stays(load_pair(units, static_cast<const T*>(keep.keep_t) + row * keep.stride)),
        goes(PairMath<DeviceMath<A>>::one_minus(stays)) {}

  ROTCELL_DEVICE Pair<A> of(const Pair<A>& old, const Pair<A>& unmixed) const {
    return stays * old + goes * unmixed;
  }
};

template <class Cell, int S, class T>
ROTCELL_DEVICE void run_stage(const StageForward& p) {
  using A = Compute<T>;
  using Math = DeviceMath<A>;
  int64_t row;
  PairOfUnits units;
  if (!find_work(p.rows, p.hidden, row, units)) return;
  const int64_t gate_rows = CellRows<Cell>::count(p.hidden), at = row * p.hidden;
  const bool keep = p.keep == Keep::kForBackward, keep_cells = p.keep != Keep::kNothing;
  const T* preactivations = static_cast<const T*>(p.preactivations_t) + row * gate_rows;
  const T* matmuls = static_cast<const T*>(p.matmuls) + row * gate_rows;
  Gates<Cell, A> gates{};
  StageGates<Cell, A, S>::read(units, MissingAngle::kPreactivation, gates, [&](int64_t i) {
    return to_compute(preactivations[i]) + to_compute(matmuls[i]);
  });
  activate<Cell, S>(p.activations, gates);
  Pair<A> h_before{A(0), A(0)}, c{A(0), A(0)};
  if constexpr (Cell::kReadsOutput) h_before = load_pair(units, static_cast<const T*>(p.h) + at);
  if constexpr (Cell::kHasCellState && S == last_stage<Cell>) {
    A* c_row = static_cast<A*>(p.c) + at;
    const Pair<A> c_before = load_pair(units, c_row);
    c = Cell::template cell_state<Math>(gates, c_before);
    // The output uses the new cell state before zoneout.
    const Pair<A> c_left =
        p.hooks.zoneout_c ? Mixture<T>(units, p.zoneout_c, row).of(c_before, c) : c;
    store_pair(units, c_row, c_left);
    if (keep_cells) store_pair(units, static_cast<T*>(p.cells_t) + at, c_left);
  }
  Pair<A> result = Cell::template result<Math>(Stage<S>{}, gates, h_before, c);
  if constexpr (S == last_stage<Cell>) {
    if (p.hooks.zoneout_h) {
      const Pair<A> old = load_pair(units, static_cast<const T*>(p.h) + at);
      result = Mixture<T>(units, p.zoneout_h, row).of(old, result);
    }
  }
  store_pair(units, static_cast<T*>(p.result) + at, result);
  if (p.result_is == ResultIs::kOutput) store_pair(units, static_cast<T*>(p.out_t) + at, result);
  if (keep) {
    StageGates<Cell, A, S>::write_kept(units, gates, static_cast<T*>(p.gates_t) + row * gate_rows);
  }
}

template <class Cell, int S, class T>
ROTCELL_DEVICE void run_stage(const StageBackward& p) {
  using A = Compute<T>;
  using Math = DeviceMath<A>;
  int64_t row;
  PairOfUnits units;
  if (!find_work(p.rows, p.hidden, row, units)) return;
  const int64_t gate_rows = CellRows<Cell>::count(p.hidden), at = row * p.hidden;
  const bool carried = row < p.carried, restarts = p.hooks.resets && p.starts_sequence(row);
  const Pair<A> zero{A(0), A(0)};
  Gates<Cell, A> gates{}, grads{};
  StageGates<Cell, A, S>::read_kept(units, gates,
                                    static_cast<const T*>(p.gates_t) + row * gate_rows);
  PairState<Math> state{};
  if constexpr (Cell::kReadsOutput) {
    if (!restarts) {
      state.h_before = load_pair(units, static_cast<const T*>(carried ? p.out_before : p.h0) + at);
    }
  }
  // Through the mask of recurrent dropout go the stages before the last.
  const bool masked = Cell::kReadsOutput && S < last_stage<Cell> && p.hooks.recurrent_dropout;
  Pair<A> mask{A(1), A(1)};
  if (masked) {
    mask = load_pair(units, static_cast<const T*>(p.dropout) + at);
    state.h_before = state.h_before * mask;
  }
  if constexpr (Cell::kHasCellState) {
    if (!restarts) {
      state.c_before = carried ? load_pair(units, static_cast<const T*>(p.cells_before) + at)
                               : load_pair(units, static_cast<const A*>(p.c0) + at);
    }
    state.c = p.hooks.zoneout_c ? Cell::template cell_state<Math>(gates, state.c_before)
                                : load_pair(units, static_cast<const T*>(p.cells_t) + at);
  }
  Pair<A> d_result = load_pair(units, static_cast<const T*>(p.grad_result) + at);
  Pair<A> dh_before = zero, dc = zero, dh_past = zero, dc_past = zero;
  const bool has_direct = Cell::kReadsOutput || p.hooks.zoneout_h;
  A* grad_direct = static_cast<A*>(p.grad_direct) + at;
  A* grad_c = static_cast<A*>(p.grad_c) + at;
  if constexpr (S == last_stage<Cell>) {
    if (has_direct) d_result = load_pair(units, grad_direct) + d_result;
    if (p.output_gradient == OutputGradient::kGiven) {
      d_result = d_result + load_pair(units, static_cast<const T*>(p.grad_out_t) + at);
    }
    if (p.hooks.zoneout_h) {
      const Mixture<T> mixture(units, p.zoneout_h, row);
      dh_past = mixture.stays * d_result;
      d_result = mixture.goes * d_result;
    }
  } else if constexpr (Cell::kReadsOutput) {
    (masked ? dh_past : dh_before) = load_pair(units, grad_direct);
  }
  if constexpr (Cell::kHasCellState) {
    dc = load_pair(units, grad_c);
    if (p.cell_state_gradient == CellStateGradient::kEveryStep) {
      dc = dc + load_pair(units, static_cast<const A*>(p.grad_cells_t) + at);
    }
    if (p.hooks.zoneout_c) {
      const Mixture<T> mixture(units, p.zoneout_c, row);
      dc_past = mixture.stays * dc;
      dc = mixture.goes * dc;
    }
  }
  Cell::template backward<Math>(Stage<S>{}, gates, state, d_result, dh_before, dc, grads);
  through_activations<Cell, S>(p.activations, gates, grads);
  if (masked) dh_before = dh_before * mask;
  if constexpr (Cell::kHasCellState) store_pair(units, grad_c, dc + dc_past);
  if (has_direct) store_pair(units, grad_direct, dh_before + dh_past);
  T* grad_gates = static_cast<T*>(p.grad_gates_t) + row * gate_rows;
  StageGates<Cell, A, S>::write(units, grads,
                                [&](int64_t i, A value) { grad_gates[i] = to_storage<T>(value); });
  if (p.recompute_result == Recompute::kYes) {
    store_pair(units, static_cast<T*>(p.result_t) + at,
               Cell::template result<Math>(Stage<S>{}, gates, state.h_before, state.c));
  }
}

template <class Cell, int S, class T, class Params>
ROTCELL_GLOBAL void stage_of_step(Params p) {
  run_stage<Cell, S, T>(p);
}

using StageNames = const char* const[kMostStages];
constexpr StageNames kForwardNames = {"stage0_forward", "stage1_forward"};
constexpr StageNames kBackwardNames = {"stage0_backward", "stage1_backward"};

template <class Params>
void launch_stage(const StageNames& names, CellIndex index, Number number, const Params& p,
                  Stream stream) {
  with_cell(index, [&](auto cell) {
    using Cell = typename decltype(cell)::Type;
    with_storage_type(number, [&](auto tag) {
      for_stages<Cell>([&](auto stage) {
        constexpr int S = decltype(stage)::value;
        if (S == p.stage) {
          launch({Cell::kName, names[S]},
                 stage_of_step<Cell, S, typename decltype(tag)::Type, Params>,
                 stage_grid(p.rows, p.hidden), stream, p);
        }
      });
    });
  });
}

}  // namespace

void stage(CellIndex cell, Number number, const StageForward& p, Stream stream) {
  launch_stage(kForwardNames, cell, number, p, stream);
}
void stage(CellIndex cell, Number number, const StageBackward& p, Stream stream) {
  launch_stage(kBackwardNames, cell, number, p, stream);
}

}  // namespace rotcell::cuda
