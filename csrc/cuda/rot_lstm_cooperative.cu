// RotLSTM over a whole sequence in one cooperative launch, each block with the weights of its units
// on chip. One grid barrier a step.
#include "cuda/cooperative.h"

namespace rotcell::cuda {
namespace {

template <class Product>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS(Tiles::kCooperativeThreads)
    rot_lstm_cooperative_forward(Cooperative<LstmForward, Product> cooperative) {
  using T = typename Product::Storage;
  using A = typename Product::A;
  using Cell = RotLstmCell<DeviceMath<A>>;
  const LstmForward& p = cooperative.params;
  const auto& layout = cooperative.layout;
  const int hidden = p.hidden;
  const int64_t gate_rows = RotLstmRows::count(hidden);
  const UnitGroup group{static_cast<int>(blockIdx.x) * cooperative.units, cooperative.units,
                        hidden};
  ROTCELL_SHARED(unsigned char, shared);
  T* operand = reinterpret_cast<T*>(shared + layout.first_operand);
  A* results = reinterpret_cast<A*>(shared + layout.results);
  const T* w_hh = static_cast<const T*>(p.w_hh);
  const T* h0 = static_cast<const T*>(p.h0);
  T* out = static_cast<T*>(p.out);

  Product product(layout.first, shared, [&](int place, int column) {
    const int64_t row =
        group.weight_row(place, RotLstmRows::kGateCount, RotLstmRows::angles(hidden));
    return row < 0 ? to_storage<T>(0) : w_hh[row * hidden + column];
  });
  for (int64_t position = 0; position < p.steps.count; ++position) {
    const StepView step = step_at(p.steps, position);
    for (int64_t tile = 0; tile < step.rows; tile += Tiles::kCooperativeRows) {
      multiply_staged(product, layout.first, layout.first_staged, operand, results, tile, step.rows,
                      [&](int64_t row, int column) {
                        const T* h = row < step.carried ? out + (step.token_before + row) * hidden
                                                        : h0 + row * hidden;
                        return load_coherent(h + column);
                      });
      for_items(group, tile, step.rows, [&](const CooperativeItem& item) {
        const int64_t token = step.token + item.row;
        const T* from_input = static_cast<const T*>(p.from_input) + token * gate_rows;
        const auto recurrent = read_lstm_gates<A>(item.block_units, 0, [&](int64_t i) {
          return staged_result(layout.first, results, item, i);
        });
        const auto preactivations =
            read_lstm_gates<A>(item.units, MissingAngle::kPreactivation,
                               [&](int64_t i) { return to_compute(from_input[i]); });
        const auto gates = Cell::activate(sum_of_gates(preactivations, recurrent));
        A* c_row = static_cast<A*>(p.c) + item.row * hidden;
        const Pair<A> c = Cell::next_cell(gates, load_pair(item.units, c_row));
        const Pair<A> h = Cell::output(gates, c);
        store_pair(item.units, c_row, c);
        store_pair(item.units, out + token * hidden, h);
        if (item.row >= step.rows_after) {
          store_pair(item.units, static_cast<T*>(p.h_n) + item.row * hidden, h);
        }
        if (p.cells) store_pair(item.units, static_cast<A*>(p.cells) + token * hidden, c);
        if (p.gates) {
          A* kept = static_cast<A*>(p.gates) + token * gate_rows;
          write_lstm_gates<A>(item.units, gates, [&](int64_t i, A value) { kept[i] = value; });
        }
      });
    }
    grid_barrier();
  }
}

template <class Product>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS(Tiles::kCooperativeThreads)
    rot_lstm_cooperative_backward(Cooperative<LstmBackward, Product> cooperative) {
  using T = typename Product::Storage;
  using A = typename Product::A;
  using Cell = RotLstmCell<DeviceMath<A>>;
  const LstmBackward& p = cooperative.params;
  const auto& layout = cooperative.layout;
  const int hidden = p.hidden;
  const int64_t gate_rows = RotLstmRows::count(hidden);
  const UnitGroup group{static_cast<int>(blockIdx.x) * cooperative.units, cooperative.units,
                        hidden};
  ROTCELL_SHARED(unsigned char, shared);
  T* operand = reinterpret_cast<T*>(shared + layout.first_operand);
  A* results = reinterpret_cast<A*>(shared + layout.results);
  const T* w_hh = static_cast<const T*>(p.w_hh);
  const A* cells = static_cast<const A*>(p.cells);
  T* grad_gates = static_cast<T*>(p.grad_gates);

  Product product(layout.first, shared, [&](int place, int gate_row) {
    const int unit = group.unit(place);
    return unit < 0 ? to_storage<T>(0) : w_hh[int64_t{1} * gate_row * hidden + unit];
  });
  for (int64_t position = p.steps.count - 1; position >= 0; --position) {
    const StepView step = step_at(p.steps, position);
    for (int64_t tile = 0; tile < step.rows; tile += Tiles::kCooperativeRows) {
      for_items(group, tile, step.rows, [&](const CooperativeItem& item) {
        const int64_t token = step.token + item.row, at = item.row * hidden;
        const A* kept = static_cast<const A*>(p.gates) + token * gate_rows;
        const auto gates = read_lstm_gates<A>(item.units, MissingAngle::kActivation,
                                              [&](int64_t i) { return kept[i]; });
        const A* c_before = item.row < step.carried
                                ? cells + (step.token_before + item.row) * hidden
                                : static_cast<const A*>(p.c0) + at;
        Pair<A> dh = load_pair(item.units, static_cast<const A*>(p.grad_h) + at);
        if (p.grad_out) {
          dh = dh + load_pair(item.units, static_cast<const T*>(p.grad_out) + token * hidden);
        }
        A* grad_c = static_cast<A*>(p.grad_c) + at;
        Pair<A> dc = load_pair(item.units, grad_c);
        const auto grad = Cell::backward(gates, load_pair(item.units, c_before),
                                         load_pair(item.units, cells + token * hidden), dh, dc);
        store_pair(item.units, grad_c, dc);
        write_lstm_gates<A>(item.units, grad, [&](int64_t i, A value) {
          grad_gates[token * gate_rows + i] = to_storage<T>(value);
        });
      });
    }
    grid_barrier();
    for (int64_t tile = 0; tile < step.rows; tile += Tiles::kCooperativeRows) {
      multiply_staged(
          product, layout.first, layout.first_staged, operand, results, tile, step.rows,
          [&](int64_t row, int gate_row) {
            return load_coherent(grad_gates + (step.token + row) * gate_rows + gate_row);
          });
      for_items(group, tile, step.rows, [&](const CooperativeItem& item) {
        store_pair(item.units, static_cast<A*>(p.grad_h) + item.row * hidden,
                   block_results<Product>(layout.first, results, item));
      });
    }
  }
}

}  // namespace

void cooperative(const Request& request, const Plan& plan, const LstmForward& p, Stream stream) {
  launch_cooperatively("rot_lstm_cooperative_forward", request, plan, p, stream, [](auto tag) {
    return rot_lstm_cooperative_forward<typename decltype(tag)::Type>;
  });
}

void cooperative(const Request& request, const Plan& plan, const LstmBackward& p, Stream stream) {
  launch_cooperatively("rot_lstm_cooperative_backward", request, plan, p, stream, [](auto tag) {
    return rot_lstm_cooperative_backward<typename decltype(tag)::Type>;
  });
}

}  // namespace rotcell::cuda
