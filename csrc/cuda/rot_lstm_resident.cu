// RotLSTM over a whole sequence in one launch, with all recurrent weights on chip.
#include "cuda/resident.h"

namespace rotcell::cuda {
namespace {

template <class T, int kRows>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS((resident_threads<T, kRows>))
    rot_lstm_resident_forward(Resident<LstmForward> resident) {
  using A = Compute<T>;
  using Cell = RotLstmCell<DeviceMath<A>>;
  using Product = ResidentProduct<rotcell::cuda::Cell::kRotLstm, T, kRows>;
  const LstmForward& p = resident.params;
  const auto& layout = resident.layout;
  const int64_t gate_rows = RotLstmRows::count(p.hidden), first_row = int64_t{kRows} * blockIdx.x;
  ROTCELL_SHARED(unsigned char, shared);
  T* h_rows = reinterpret_cast<T*>(shared + layout.first_operand);
  A* results = reinterpret_cast<A*>(shared + layout.results);

  const T* w_hh = static_cast<const T*>(p.w_hh);
  Product product(layout.first, shared,
                  [&](int row, int column) { return w_hh[int64_t{1} * row * p.hidden + column]; });
  const T* h0 = static_cast<const T*>(p.h0);
  fill_operand(h_rows, kRows, layout.first_staged, [&](int row, int column) {
    const bool exists = first_row + row < p.steps.batch && column < p.hidden;
    return exists ? h0[(first_row + row) * p.hidden + column] : to_storage<T>(A(0));
  });
  const ResidentItem item(kRows, p.steps.batch, p.hidden);
  T* h_row = h_rows + item.row_in_block * layout.first_staged;
  A* c_row = static_cast<A*>(p.c) + item.row * p.hidden;
  Pair<A> c = item.exists ? load_pair(item.units, c_row) : Pair<A>{A(0), A(0)};
  block_barrier();

  for (int64_t position = 0; position < p.steps.count; ++position) {
    const StepView step = step_at(p.steps, position);
    if (step.rows <= first_row) continue;
    const bool alive = item.exists && item.row < step.rows;
    const int64_t token = step.token + item.row;
    typename Cell::Gates preactivations{};
    if (alive) {
      const T* from_input = static_cast<const T*>(p.from_input) + token * gate_rows;
      preactivations = read_lstm_gates<A>(item.units, MissingAngle::kPreactivation,
                                          [&](int64_t i) { return to_compute(from_input[i]); });
    }
    product.clear();
    product.accumulate(h_rows, layout.first_staged, 0, layout.first.padded_depth());
    product.store(results);
    block_barrier();
    if (alive) {
      const auto recurrent = read_lstm_gates<A>(item.units, 0, [&](int64_t i) {
        return Product::result(layout.first, results, item.row_in_block, static_cast<int>(i));
      });
      const auto gates = Cell::activate(sum_of_gates(preactivations, recurrent));
      c = Cell::next_cell(gates, c);
      const Pair<A> h = Cell::output(gates, c);
      store_pair(item.units, h_row, h);
      store_pair(item.units, static_cast<T*>(p.out) + token * p.hidden, h);
      if (p.cells) store_pair(item.units, static_cast<A*>(p.cells) + token * p.hidden, c);
      if (p.gates) {
        A* kept = static_cast<A*>(p.gates) + token * gate_rows;
        write_lstm_gates<A>(item.units, gates, [&](int64_t i, A value) { kept[i] = value; });
      }
    }
    block_barrier();
  }
  if (item.exists) {
    store_pair(item.units, static_cast<T*>(p.h_n) + item.row * p.hidden,
               load_pair(item.units, h_row));
    store_pair(item.units, c_row, c);
  }
}

template <class T, int kRows>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS((resident_threads<T, kRows>))
    rot_lstm_resident_backward(Resident<LstmBackward> resident) {
  using A = Compute<T>;
  using Cell = RotLstmCell<DeviceMath<A>>;
  using Product = ResidentProduct<rotcell::cuda::Cell::kRotLstm, T, kRows>;
  const LstmBackward& p = resident.params;
  const auto& layout = resident.layout;
  const int64_t gate_rows = RotLstmRows::count(p.hidden), first_row = int64_t{kRows} * blockIdx.x;
  ROTCELL_SHARED(unsigned char, shared);
  T* grad_rows = reinterpret_cast<T*>(shared + layout.first_operand);
  A* results = reinterpret_cast<A*>(shared + layout.results);

  const T* w_hh = static_cast<const T*>(p.w_hh);
  Product product(layout.first, shared, [&](int unit, int gate_row) {
    return w_hh[int64_t{1} * gate_row * p.hidden + unit];
  });
  fill_operand(grad_rows, kRows, layout.first_staged, [](int, int) { return to_storage<T>(A(0)); });
  const ResidentItem item(kRows, p.steps.batch, p.hidden);
  T* grad_row = grad_rows + item.row_in_block * layout.first_staged;
  A* grad_h_row = static_cast<A*>(p.grad_h) + item.row * p.hidden;
  A* grad_c_row = static_cast<A*>(p.grad_c) + item.row * p.hidden;
  Pair<A> dh{A(0), A(0)}, dc{A(0), A(0)};
  if (item.exists) {
    dh = load_pair(item.units, grad_h_row);
    dc = load_pair(item.units, grad_c_row);
  }
  block_barrier();

  for (int64_t position = p.steps.count - 1; position >= 0; --position) {
    const StepView step = step_at(p.steps, position);
    if (step.rows <= first_row) continue;
    const bool alive = item.exists && item.row < step.rows;
    const int64_t token = step.token + item.row;
    if (alive) {
      const A* kept = static_cast<const A*>(p.gates) + token * gate_rows;
      const auto gates = read_lstm_gates<A>(item.units, MissingAngle::kActivation,
                                            [&](int64_t i) { return kept[i]; });
      const A* cells = static_cast<const A*>(p.cells);
      const A* c_before = item.row < step.carried
                              ? cells + (step.token_before + item.row) * p.hidden
                              : static_cast<const A*>(p.c0) + item.row * p.hidden;
      if (p.grad_out) {
        dh = dh + load_pair(item.units, static_cast<const T*>(p.grad_out) + token * p.hidden);
      }
      const auto grad = Cell::backward(gates, load_pair(item.units, c_before),
                                       load_pair(item.units, cells + token * p.hidden), dh, dc);
      T* grad_gates = static_cast<T*>(p.grad_gates) + token * gate_rows;
      write_lstm_gates<A>(item.units, grad, [&](int64_t i, A value) {
        grad_row[i] = grad_gates[i] = to_storage<T>(value);
      });
    }
    block_barrier();
    product.clear();
    product.accumulate(grad_rows, layout.first_staged, 0, layout.first.padded_depth());
    product.store(results);
    block_barrier();
    if (alive) {
      dh = item.units.template read<A>(0, [&](int64_t i) {
        return Product::result(layout.first, results, item.row_in_block, static_cast<int>(i));
      });
    }
  }
  if (item.exists) {
    store_pair(item.units, grad_h_row, dh);
    store_pair(item.units, grad_c_row, dc);
  }
}

}  // namespace

void resident(const Request& request, const Plan& plan, const LstmForward& p, Stream stream) {
  launch_resident("rot_lstm_resident_forward", request, plan, p, stream, [](auto tag, auto rows) {
    return rot_lstm_resident_forward<typename decltype(tag)::Type, decltype(rows)::value>;
  });
}

void resident(const Request& request, const Plan& plan, const LstmBackward& p, Stream stream) {
  launch_resident("rot_lstm_resident_backward", request, plan, p, stream, [](auto tag, auto rows) {
    return rot_lstm_resident_backward<typename decltype(tag)::Type, decltype(rows)::value>;
  });
}

}  // namespace rotcell::cuda
