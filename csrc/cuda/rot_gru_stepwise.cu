// RotGRU, the two halves of a step, when torch has made the products: a thread for each row and
// pair of units.
#include "cuda/cell_io.h"
#include "cuda/kernels.h"
#include "cuda/launchers.h"
#include "cuda/stepwise.h"

namespace rotcell::cuda {
namespace {

using Rows = RotGruRows;

template <class T>
ROTCELL_GLOBAL void rot_gru_step_reset(GruStepReset p) {
  using A = Compute<T>;
  using Cell = RotGruCell<DeviceMath<A>>;
  int64_t row;
  PairOfUnits units;
  if (!find_work(p.rows, p.hidden, row, units)) return;
  const int64_t gate_rows = Rows::count(p.hidden);
  const T* from_input = static_cast<const T*>(p.from_input_t) + row * gate_rows;
  const T* recurrent = static_cast<const T*>(p.recurrent) + row * gate_rows;
  const auto preactivation = [&](int64_t i) {
    return to_compute(from_input[i]) + to_compute(recurrent[i]);
  };
  const auto reset = Cell::activate(
      typename Cell::Reset{read_gru_gate<A>(units, Rows::kReset, preactivation),
                           read_gru_angle<A>(units, MissingAngle::kPreactivation, preactivation)});
  const Pair<A> z =
      PairMath<DeviceMath<A>>::sigmoid(read_gru_gate<A>(units, Rows::kUpdate, preactivation));
  const Pair<A> h = load_pair(units, static_cast<const T*>(p.h) + row * p.hidden);
  store_pair(units, static_cast<T*>(p.rotated) + row * p.hidden, Cell::rotated(reset, h));
  A* gates = static_cast<A*>(p.gates_t) + row * gate_rows;
  const auto keep = [&](int64_t i, A value) { gates[i] = value; };
  write_gru_gate(units, Rows::kReset, reset.r, keep);
  write_gru_gate(units, Rows::kUpdate, z, keep);
  write_gru_angle(units, reset.rot, keep);
}

template <class T>
ROTCELL_GLOBAL void rot_gru_step_update(GruStepUpdate p) {
  using A = Compute<T>;
  using Cell = RotGruCell<DeviceMath<A>>;
  int64_t row;
  PairOfUnits units;
  if (!find_work(p.rows, p.hidden, row, units)) return;
  const int64_t gate_rows = Rows::count(p.hidden);
  const T* candidate = static_cast<const T*>(p.candidate_t) + row * gate_rows;
  A* gates = static_cast<A*>(p.gates_t) + row * gate_rows;
  const typename Cell::Update update = {
      read_gru_gate<A>(units, Rows::kUpdate, [&](int64_t i) { return gates[i]; }),
      PairMath<DeviceMath<A>>::tanh(read_gru_gate<A>(
          units, Rows::kCandidate, [&](int64_t i) { return to_compute(candidate[i]); }))};
  T* h_row = static_cast<T*>(p.h) + row * p.hidden;
  const Pair<A> h = Cell::next_hidden(update, load_pair(units, h_row));
  store_pair(units, h_row, h);
  store_pair(units, static_cast<T*>(p.out_t) + row * p.hidden, h);
  write_gru_gate(units, Rows::kCandidate, update.n, [&](int64_t i, A value) { gates[i] = value; });
}

template <class T>
ROTCELL_GLOBAL void rot_gru_step_update_backward(GruStepUpdateBackward p) {
  using A = Compute<T>;
  using Cell = RotGruCell<DeviceMath<A>>;
  int64_t row;
  PairOfUnits units;
  if (!find_work(p.rows, p.hidden, row, units)) return;
  const int64_t gate_rows = Rows::count(p.hidden), at = row * p.hidden;
  const A* gates = static_cast<const A*>(p.gates_t) + row * gate_rows;
  const auto kept = [&](int64_t i) { return gates[i]; };
  const typename Cell::Update update = {read_gru_gate<A>(units, Rows::kUpdate, kept),
                                        read_gru_gate<A>(units, Rows::kCandidate, kept)};
  const T* h_before = static_cast<const T*>(row < p.carried ? p.out_before : p.h0) + at;
  A* grad_direct = static_cast<A*>(p.grad_direct) + at;
  Pair<A> dh =
      load_pair(units, grad_direct) + load_pair(units, static_cast<const T*>(p.grad_through) + at);
  if (p.grad_out_t) dh = dh + load_pair(units, static_cast<const T*>(p.grad_out_t) + at);
  Pair<A> dh_before;
  const auto grad = Cell::backward(update, load_pair(units, h_before), dh, dh_before);
  store_pair(units, grad_direct, dh_before);
  T* grad_gates = static_cast<T*>(p.grad_gates_t) + row * gate_rows;
  const auto store = [&](int64_t i, A value) { grad_gates[i] = to_storage<T>(value); };
  write_gru_gate(units, Rows::kUpdate, grad.z, store);
  write_gru_gate(units, Rows::kCandidate, grad.n, store);
}

template <class T>
ROTCELL_GLOBAL void rot_gru_step_reset_backward(GruStepResetBackward p) {
  using A = Compute<T>;
  using Cell = RotGruCell<DeviceMath<A>>;
  int64_t row;
  PairOfUnits units;
  if (!find_work(p.rows, p.hidden, row, units)) return;
  const int64_t gate_rows = Rows::count(p.hidden), at = row * p.hidden;
  const A* gates = static_cast<const A*>(p.gates_t) + row * gate_rows;
  const auto kept = [&](int64_t i) { return gates[i]; };
  const typename Cell::Reset reset = {read_gru_gate<A>(units, Rows::kReset, kept),
                                      read_gru_angle<A>(units, MissingAngle::kActivation, kept)};
  const T* h_before_row = static_cast<const T*>(row < p.carried ? p.out_before : p.h0) + at;
  const Pair<A> h_before = load_pair(units, h_before_row);
  A* grad_direct = static_cast<A*>(p.grad_direct) + at;
  Pair<A> dh_before = load_pair(units, grad_direct);
  const auto grad = Cell::backward(
      reset, h_before, load_pair(units, static_cast<const T*>(p.grad_rotated) + at), dh_before);
  store_pair(units, grad_direct, dh_before);
  store_pair(units, static_cast<T*>(p.rotated_t) + at, Cell::rotated(reset, h_before));
  T* grad_gates = static_cast<T*>(p.grad_gates_t) + row * gate_rows;
  const auto store = [&](int64_t i, A value) { grad_gates[i] = to_storage<T>(value); };
  write_gru_gate(units, Rows::kReset, grad.r, store);
  write_gru_angle(units, grad.rot, store);
}

}  // namespace

void step(Number number, const GruStepReset& p, Stream stream) {
  with_storage_type(number, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    launch("rot_gru_step_reset", rot_gru_step_reset<T>, step_grid(p.rows, p.hidden), stream, p);
  });
}

void step(Number number, const GruStepUpdate& p, Stream stream) {
  with_storage_type(number, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    launch("rot_gru_step_update", rot_gru_step_update<T>, step_grid(p.rows, p.hidden), stream, p);
  });
}

void step(Number number, const GruStepUpdateBackward& p, Stream stream) {
  with_storage_type(number, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    launch("rot_gru_step_update_backward", rot_gru_step_update_backward<T>,
           step_grid(p.rows, p.hidden), stream, p);
  });
}

void step(Number number, const GruStepResetBackward& p, Stream stream) {
  with_storage_type(number, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    launch("rot_gru_step_reset_backward", rot_gru_step_reset_backward<T>,
           step_grid(p.rows, p.hidden), stream, p);
  });
}

}  // namespace rotcell::cuda
