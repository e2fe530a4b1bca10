// RotLSTM, one step, when torch has made the products: a thread for each row and pair of units.
#include "cuda/cell_io.h"
#include "cuda/kernels.h"
#include "cuda/launchers.h"
#include "cuda/stepwise.h"

namespace rotcell::cuda {
namespace {

template <class T>
ROTCELL_GLOBAL void rot_lstm_step_forward(LstmStepForward p) {
  using A = Compute<T>;
  using Cell = RotLstmCell<DeviceMath<A>>;
  int64_t row;
  PairOfUnits units;
  if (!find_work(p.rows, p.hidden, row, units)) return;
  const int64_t gate_rows = RotLstmRows::count(p.hidden);
  const T* preactivations = static_cast<const T*>(p.preactivations_t) + row * gate_rows;
  const auto gates =
      Cell::activate(read_lstm_gates<A>(units, MissingAngle::kPreactivation,
                                        [&](int64_t i) { return to_compute(preactivations[i]); }));
  A* c_row = static_cast<A*>(p.c) + row * p.hidden;
  const Pair<A> c = Cell::next_cell(gates, load_pair(units, c_row));
  const Pair<A> h = Cell::output(gates, c);
  store_pair(units, c_row, c);
  store_pair(units, static_cast<T*>(p.h) + row * p.hidden, h);
  if (p.out_t) store_pair(units, static_cast<T*>(p.out_t) + row * p.hidden, h);
  if (p.cells_t) store_pair(units, static_cast<A*>(p.cells_t) + row * p.hidden, c);
  if (p.gates_t) {
    A* kept = static_cast<A*>(p.gates_t) + row * gate_rows;
    write_lstm_gates<A>(units, gates, [&](int64_t i, A value) { kept[i] = value; });
  }
}

template <class T>
ROTCELL_GLOBAL void rot_lstm_step_backward(LstmStepBackward p) {
  using A = Compute<T>;
  using Cell = RotLstmCell<DeviceMath<A>>;
  int64_t row;
  PairOfUnits units;
  if (!find_work(p.rows, p.hidden, row, units)) return;
  const int64_t gate_rows = RotLstmRows::count(p.hidden), at = row * p.hidden;
  const A* kept = static_cast<const A*>(p.gates_t) + row * gate_rows;
  const auto gates =
      read_lstm_gates<A>(units, MissingAngle::kActivation, [&](int64_t i) { return kept[i]; });
  const A* c_before = static_cast<const A*>(row < p.carried ? p.cells_before : p.c0) + at;
  const Pair<A> c = load_pair(units, static_cast<const A*>(p.cells_t) + at);
  Pair<A> dh = load_pair(units, static_cast<const T*>(p.grad_h) + at);
  if (p.grad_out_t) dh = dh + load_pair(units, static_cast<const T*>(p.grad_out_t) + at);
  A* grad_c = static_cast<A*>(p.grad_c) + at;
  Pair<A> dc = load_pair(units, grad_c);
  const auto grad = Cell::backward(gates, load_pair(units, c_before), c, dh, dc);
  store_pair(units, grad_c, dc);
  T* grad_gates = static_cast<T*>(p.grad_gates_t) + row * gate_rows;
  write_lstm_gates<A>(units, grad,
                      [&](int64_t i, A value) { grad_gates[i] = to_storage<T>(value); });
  if (p.unprojected_t) {
    store_pair(units, static_cast<T*>(p.unprojected_t) + at, Cell::output(gates, c));
  }
}

}  // namespace

void step(Number number, const LstmStepForward& p, Stream stream) {
  with_storage_type(number, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    launch("rot_lstm_step_forward", rot_lstm_step_forward<T>, step_grid(p.rows, p.hidden), stream,
           p);
  });
}

void step(Number number, const LstmStepBackward& p, Stream stream) {
  with_storage_type(number, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    launch("rot_lstm_step_backward", rot_lstm_step_backward<T>, step_grid(p.rows, p.hidden), stream,
           p);
  });
}

}  // namespace rotcell::cuda
