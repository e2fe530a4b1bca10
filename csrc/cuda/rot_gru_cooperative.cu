// RotGRU over a whole sequence in one cooperative launch, each block with the weights of its units
// on chip. Two grid barriers a step, because the candidate sees the reset and rotated state of all
// units.
#include "cuda/cooperative.h"
#include "cuda/gru_rows.h"

namespace rotcell::cuda {
namespace {

using Rows = RotGruRows;

template <class Product>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS(Tiles::kCooperativeThreads)
    rot_gru_cooperative_forward(Cooperative<GruForward, Product> cooperative) {
  using T = typename Product::Storage;
  using A = typename Product::A;
  using Cell = RotGruCell<DeviceMath<A>>;
  using Maths = PairMath<DeviceMath<A>>;
  const GruForward& p = cooperative.params;
  const auto& layout = cooperative.layout;
  const int hidden = p.hidden;
  const int64_t gate_rows = Rows::count(hidden);
  const UnitGroup group{static_cast<int>(blockIdx.x) * cooperative.units, cooperative.units,
                        hidden};
  ROTCELL_SHARED(unsigned char, shared);
  T* operand = reinterpret_cast<T*>(shared + layout.first_operand);
  A* results = reinterpret_cast<A*>(shared + layout.results);
  const T* w_hh = static_cast<const T*>(p.w_hh);
  const T* w_candidate = w_hh + Rows::offset(Rows::kCandidate, hidden) * hidden;
  const T* from_input = static_cast<const T*>(p.from_input);
  T* out = static_cast<T*>(p.out);
  T* rotated = static_cast<T*>(p.rotated);

  Product memory_product(layout.first, shared, [&](int place, int column) {
    const int64_t row = group.weight_row(place, Rows::kCandidate, Rows::angles(hidden));
    return row < 0 ? to_storage<T>(0) : w_hh[row * hidden + column];
  });
  Product candidate_product(
      layout.second, shared + layout.second_weights, [&](int place, int column) {
        const int unit = group.unit(place);
        return unit < 0 ? to_storage<T>(0) : w_candidate[int64_t{1} * unit * hidden + column];
      });
  for (int64_t position = 0; position < p.steps.count; ++position) {
    const StepView step = step_at(p.steps, position);
    const auto h_before = [&](int64_t row) {
      return row < step.carried ? out + (step.token_before + row) * hidden
                                : static_cast<const T*>(p.h0) + row * hidden;
    };
    const auto gates_of = [&](int64_t row) {
      return static_cast<A*>(p.gates) + (p.save ? step.token + row : row) * gate_rows;
    };
    for (int64_t tile = 0; tile < step.rows; tile += Tiles::kCooperativeRows) {
      multiply_staged(
          memory_product, layout.first, layout.first_staged, operand, results, tile, step.rows,
          [&](int64_t row, int column) { return load_coherent(h_before(row) + column); });
      for_items(group, tile, step.rows, [&](const CooperativeItem& item) {
        const T* input_row = from_input + (step.token + item.row) * gate_rows;
        const auto input = [&](int64_t i) { return to_compute(input_row[i]); };
        const auto recurrent = [&](int64_t i) {
          return staged_result(layout.first, results, item, GruMemoryRows::place(i, group.units));
        };
        const auto reset = Cell::activate(typename Cell::Reset{
            read_gru_gate<A>(item.units, Rows::kReset, input) +
                read_gru_gate<A>(item.block_units, Rows::kReset, recurrent),
            read_gru_angle<A>(item.units, MissingAngle::kPreactivation, input) +
                read_gru_angle<A>(item.block_units, 0, recurrent)});
        const Pair<A> z =
            Maths::sigmoid(read_gru_gate<A>(item.units, Rows::kUpdate, input) +
                           read_gru_gate<A>(item.block_units, Rows::kUpdate, recurrent));
        store_pair(item.units, rotated + item.row * hidden,
                   Cell::rotated(reset, load_pair(item.units, h_before(item.row))));
        A* gates = gates_of(item.row);
        const auto keep = [&](int64_t i, A value) { gates[i] = value; };
        write_gru_gate(item.units, Rows::kReset, reset.r, keep);
        write_gru_gate(item.units, Rows::kUpdate, z, keep);
        write_gru_angle(item.units, reset.rot, keep);
      });
    }
    grid_barrier();
    for (int64_t tile = 0; tile < step.rows; tile += Tiles::kCooperativeRows) {
      multiply_staged(
          candidate_product, layout.second, layout.second_staged, operand, results, tile, step.rows,
          [&](int64_t row, int column) { return load_coherent(rotated + row * hidden + column); });
      for_items(group, tile, step.rows, [&](const CooperativeItem& item) {
        const int64_t token = step.token + item.row;
        A* gates = gates_of(item.row);
        const Pair<A> z =
            read_gru_gate<A>(item.units, Rows::kUpdate, [&](int64_t i) { return gates[i]; });
        const Pair<A> n =
            Maths::tanh(read_gru_gate<A>(item.units, Rows::kCandidate,
                                         [&](int64_t i) {
                                           return to_compute(from_input[token * gate_rows + i]);
                                         }) +
                        block_results<Product>(layout.second, results, item));
        const Pair<A> h = Cell::next_hidden({z, n}, load_pair(item.units, h_before(item.row)));
        store_pair(item.units, out + token * hidden, h);
        if (item.row >= step.rows_after) {
          store_pair(item.units, static_cast<T*>(p.h_n) + item.row * hidden, h);
        }
        if (p.save) {
          write_gru_gate(item.units, Rows::kCandidate, n,
                         [&](int64_t i, A value) { gates[i] = value; });
        }
      });
    }
    grid_barrier();
  }
}

template <class Product>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS(Tiles::kCooperativeThreads)
    rot_gru_cooperative_backward(Cooperative<GruBackward, Product> cooperative) {
  using T = typename Product::Storage;
  using A = typename Product::A;
  using Cell = RotGruCell<DeviceMath<A>>;
  const GruBackward& p = cooperative.params;
  const auto& layout = cooperative.layout;
  const int hidden = p.hidden;
  const int64_t gate_rows = Rows::count(hidden);
  const int64_t candidate = Rows::offset(Rows::kCandidate, hidden);
  const UnitGroup group{static_cast<int>(blockIdx.x) * cooperative.units, cooperative.units,
                        hidden};
  ROTCELL_SHARED(unsigned char, shared);
  T* operand = reinterpret_cast<T*>(shared + layout.first_operand);
  A* results = reinterpret_cast<A*>(shared + layout.results);
  const T* w_hh = static_cast<const T*>(p.w_hh);
  T* grad_gates = static_cast<T*>(p.grad_gates);
  A* grad_h = static_cast<A*>(p.grad_h);

  Product candidate_product(layout.first, shared, [&](int place, int row) {
    const int unit = group.unit(place);
    return unit < 0 ? to_storage<T>(0) : w_hh[(candidate + row) * hidden + unit];
  });
  Product memory_product(
      layout.second, shared + layout.second_weights, [&](int place, int memory_row) {
        const int unit = group.unit(place);
        return unit < 0 ? to_storage<T>(0)
                        : w_hh[GruMemoryRows::weight_row(memory_row, hidden) * hidden + unit];
      });
  for (int64_t position = p.steps.count - 1; position >= 0; --position) {
    const StepView step = step_at(p.steps, position);
    const auto h_before = [&](const CooperativeItem& item) {
      return load_pair(item.units,
                       item.row < step.carried
                           ? static_cast<const T*>(p.out) + (step.token_before + item.row) * hidden
                           : static_cast<const T*>(p.h0) + item.row * hidden);
    };
    const auto gates_of = [&](int64_t row) {
      return static_cast<const A*>(p.gates) + (step.token + row) * gate_rows;
    };
    const auto grad_gates_of = [&](int64_t row) {
      return grad_gates + (step.token + row) * gate_rows;
    };
    for (int64_t tile = 0; tile < step.rows; tile += Tiles::kCooperativeRows) {
      for_items(group, tile, step.rows, [&](const CooperativeItem& item) {
        const A* gates = gates_of(item.row);
        const auto kept = [&](int64_t i) { return gates[i]; };
        const typename Cell::Update update = {read_gru_gate<A>(item.units, Rows::kUpdate, kept),
                                              read_gru_gate<A>(item.units, Rows::kCandidate, kept)};
        A* grad_h_row = grad_h + item.row * hidden;
        Pair<A> dh = load_pair(item.units, grad_h_row);
        if (p.grad_out) {
          dh = dh + load_pair(item.units,
                              static_cast<const T*>(p.grad_out) + (step.token + item.row) * hidden);
        }
        Pair<A> dh_before;
        const auto grad = Cell::backward(update, h_before(item), dh, dh_before);
        store_pair(item.units, grad_h_row, dh_before);
        T* grads = grad_gates_of(item.row);
        const auto store = [&](int64_t i, A value) { grads[i] = to_storage<T>(value); };
        write_gru_gate(item.units, Rows::kUpdate, grad.z, store);
        write_gru_gate(item.units, Rows::kCandidate, grad.n, store);
      });
    }
    grid_barrier();
    for (int64_t tile = 0; tile < step.rows; tile += Tiles::kCooperativeRows) {
      multiply_staged(candidate_product, layout.first, layout.first_staged, operand, results, tile,
                      step.rows, [&](int64_t row, int column) {
                        return load_coherent(grad_gates_of(row) + candidate + column);
                      });
      for_items(group, tile, step.rows, [&](const CooperativeItem& item) {
        const A* gates = gates_of(item.row);
        const auto kept = [&](int64_t i) { return gates[i]; };
        const typename Cell::Reset reset = {
            read_gru_gate<A>(item.units, Rows::kReset, kept),
            read_gru_angle<A>(item.units, MissingAngle::kActivation, kept)};
        A* grad_h_row = grad_h + item.row * hidden;
        Pair<A> dh_before = load_pair(item.units, grad_h_row);
        const Pair<A> h = h_before(item);
        const auto grad = Cell::backward(
            reset, h, block_results<Product>(layout.first, results, item), dh_before);
        store_pair(item.units, grad_h_row, dh_before);
        store_pair(item.units, static_cast<T*>(p.rotated) + (step.token + item.row) * hidden,
                   Cell::rotated(reset, h));
        T* grads = grad_gates_of(item.row);
        const auto store = [&](int64_t i, A value) { grads[i] = to_storage<T>(value); };
        write_gru_gate(item.units, Rows::kReset, grad.r, store);
        write_gru_angle(item.units, grad.rot, store);
      });
    }
    grid_barrier();
    for (int64_t tile = 0; tile < step.rows; tile += Tiles::kCooperativeRows) {
      multiply_staged(
          memory_product, layout.second, layout.second_staged, operand, results, tile, step.rows,
          [&](int64_t row, int place) {
            return load_coherent(grad_gates_of(row) + GruMemoryRows::weight_row(place, hidden));
          });
      for_items(group, tile, step.rows, [&](const CooperativeItem& item) {
        A* grad_h_row = grad_h + item.row * hidden;
        store_pair(item.units, grad_h_row,
                   load_pair(item.units, grad_h_row) +
                       block_results<Product>(layout.second, results, item));
      });
    }
  }
}

}  // namespace

void cooperative(const Request& request, const Plan& plan, const GruForward& p, Stream stream) {
  launch_cooperatively("rot_gru_cooperative_forward", request, plan, p, stream, [](auto tag) {
    return rot_gru_cooperative_forward<typename decltype(tag)::Type>;
  });
}

void cooperative(const Request& request, const Plan& plan, const GruBackward& p, Stream stream) {
  launch_cooperatively("rot_gru_cooperative_backward", request, plan, p, stream, [](auto tag) {
    return rot_gru_cooperative_backward<typename decltype(tag)::Type>;
  });
}

}  // namespace rotcell::cuda
