// RotGRU over a whole sequence in one launch, with all recurrent weights on chip. A step has two
// products, because the candidate sees the reset and rotated state of all units.
#include "cuda/gru_rows.h"
#include "cuda/resident.h"

namespace rotcell::cuda {
namespace {

using Rows = RotGruRows;

template <class T, int kRows>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS((resident_threads<T, kRows>))
    rot_gru_resident_forward(Resident<GruForward> resident) {
  using A = Compute<T>;
  using Cell = RotGruCell<DeviceMath<A>>;
  using Product = ResidentProduct<rotcell::cuda::Cell::kRotGru, T, kRows>;
  const GruForward& p = resident.params;
  const auto& layout = resident.layout;
  const int64_t gate_rows = Rows::count(p.hidden), first_row = int64_t{kRows} * blockIdx.x;
  ROTCELL_SHARED(unsigned char, shared);
  T* h_rows = reinterpret_cast<T*>(shared + layout.first_operand);
  T* rotated_rows = reinterpret_cast<T*>(shared + layout.second_operand);
  A* results = reinterpret_cast<A*>(shared + layout.results);

  const T* w_hh = static_cast<const T*>(p.w_hh);
  const T* w_candidate = w_hh + Rows::offset(Rows::kCandidate, p.hidden) * p.hidden;
  Product memory_product(layout.first, shared, [&](int place, int column) {
    return w_hh[GruMemoryRows::weight_row(place, p.hidden) * p.hidden + column];
  });
  Product candidate_product(
      layout.second, shared + layout.second_weights,
      [&](int row, int column) { return w_candidate[int64_t{1} * row * p.hidden + column]; });
  const T* h0 = static_cast<const T*>(p.h0);
  fill_operand(h_rows, kRows, layout.first_staged, [&](int row, int column) {
    const bool exists = first_row + row < p.steps.batch && column < p.hidden;
    return exists ? h0[(first_row + row) * p.hidden + column] : to_storage<T>(A(0));
  });
  fill_operand(rotated_rows, kRows, layout.second_staged,
               [](int, int) { return to_storage<T>(A(0)); });
  const ResidentItem item(kRows, p.steps.batch, p.hidden);
  T* h_row = h_rows + item.row_in_block * layout.first_staged;
  T* rotated_row = rotated_rows + item.row_in_block * layout.second_staged;
  block_barrier();

  for (int64_t position = 0; position < p.steps.count; ++position) {
    const StepView step = step_at(p.steps, position);
    if (step.rows <= first_row) continue;
    const bool alive = item.exists && item.row < step.rows;
    const int64_t token = step.token + item.row;
    A* kept = static_cast<A*>(p.gates) + token * gate_rows;
    const auto keep = [&](int64_t i, A value) { kept[i] = value; };
    typename Cell::Reset reset{};
    typename Cell::Update update{};
    if (alive) {
      const T* row = static_cast<const T*>(p.from_input) + token * gate_rows;
      const auto from_input = [&](int64_t i) { return to_compute(row[i]); };
      reset = {read_gru_gate<A>(item.units, Rows::kReset, from_input),
               read_gru_angle<A>(item.units, MissingAngle::kPreactivation, from_input)};
      update = {read_gru_gate<A>(item.units, Rows::kUpdate, from_input),
                read_gru_gate<A>(item.units, Rows::kCandidate, from_input)};
    }
    memory_product.clear();
    memory_product.accumulate(h_rows, layout.first_staged, 0, layout.first.padded_depth());
    memory_product.store(results);
    block_barrier();
    if (alive) {
      const auto recurrent = [&](int64_t i) {
        return Product::result(layout.first, results, item.row_in_block,
                               GruMemoryRows::place(i, p.hidden));
      };
      reset = Cell::activate(
          typename Cell::Reset{reset.r + read_gru_gate<A>(item.units, Rows::kReset, recurrent),
                               reset.rot + read_gru_angle<A>(item.units, 0, recurrent)});
      update.z = update.z + read_gru_gate<A>(item.units, Rows::kUpdate, recurrent);
      store_pair(item.units, rotated_row, Cell::rotated(reset, load_pair(item.units, h_row)));
      if (p.save) {
        write_gru_gate(item.units, Rows::kReset, reset.r, keep);
        write_gru_angle(item.units, reset.rot, keep);
      }
    }
    block_barrier();
    candidate_product.clear();
    candidate_product.accumulate(rotated_rows, layout.second_staged, 0,
                                 layout.second.padded_depth());
    candidate_product.store(results);
    block_barrier();
    if (alive) {
      update.n = update.n + item.units.template read<A>(0, [&](int64_t i) {
        return Product::result(layout.second, results, item.row_in_block, static_cast<int>(i));
      });
      update = Cell::activate(update);
      const Pair<A> h = Cell::next_hidden(update, load_pair(item.units, h_row));
      store_pair(item.units, h_row, h);
      store_pair(item.units, static_cast<T*>(p.out) + token * p.hidden, h);
      if (p.save) {
        write_gru_gate(item.units, Rows::kUpdate, update.z, keep);
        write_gru_gate(item.units, Rows::kCandidate, update.n, keep);
      }
    }
    block_barrier();
  }
  if (item.exists) {
    store_pair(item.units, static_cast<T*>(p.h_n) + item.row * p.hidden,
               load_pair(item.units, h_row));
  }
}

template <class T, int kRows>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS((resident_threads<T, kRows>))
    rot_gru_resident_backward(Resident<GruBackward> resident) {
  using A = Compute<T>;
  using Cell = RotGruCell<DeviceMath<A>>;
  using Product = ResidentProduct<rotcell::cuda::Cell::kRotGru, T, kRows>;
  const GruBackward& p = resident.params;
  const auto& layout = resident.layout;
  const int64_t gate_rows = Rows::count(p.hidden), first_row = int64_t{kRows} * blockIdx.x;
  ROTCELL_SHARED(unsigned char, shared);
  T* candidate_grads = reinterpret_cast<T*>(shared + layout.first_operand);
  T* memory_grads = reinterpret_cast<T*>(shared + layout.second_operand);
  A* results = reinterpret_cast<A*>(shared + layout.results);

  const T* w_hh = static_cast<const T*>(p.w_hh);
  const T* w_candidate = w_hh + Rows::offset(Rows::kCandidate, p.hidden) * p.hidden;
  Product candidate_product(layout.first, shared, [&](int unit, int row) {
    return w_candidate[int64_t{1} * row * p.hidden + unit];
  });
  Product memory_product(layout.second, shared + layout.second_weights, [&](int unit, int place) {
    return w_hh[GruMemoryRows::weight_row(place, p.hidden) * p.hidden + unit];
  });
  const auto zero = [](int, int) { return to_storage<T>(A(0)); };
  fill_operand(candidate_grads, kRows, layout.first_staged, zero);
  fill_operand(memory_grads, kRows, layout.second_staged, zero);
  const ResidentItem item(kRows, p.steps.batch, p.hidden);
  T* candidate_grad = candidate_grads + item.row_in_block * layout.first_staged;
  T* memory_grad = memory_grads + item.row_in_block * layout.second_staged;
  A* grad_h_row = static_cast<A*>(p.grad_h) + item.row * p.hidden;
  Pair<A> dh = item.exists ? load_pair(item.units, grad_h_row) : Pair<A>{A(0), A(0)};
  block_barrier();

  for (int64_t position = p.steps.count - 1; position >= 0; --position) {
    const StepView step = step_at(p.steps, position);
    if (step.rows <= first_row) continue;
    const bool alive = item.exists && item.row < step.rows;
    const int64_t token = step.token + item.row;
    const A* row = static_cast<const A*>(p.gates) + token * gate_rows;
    const auto kept = [&](int64_t i) { return row[i]; };
    T* grad_gates = static_cast<T*>(p.grad_gates) + token * gate_rows;
    const auto store_memory_grad = [&](int64_t i, A value) {
      memory_grad[GruMemoryRows::place(i, p.hidden)] = grad_gates[i] = to_storage<T>(value);
    };
    Pair<A> h_before{A(0), A(0)};
    typename Cell::Reset reset{};
    if (alive) {
      h_before = load_pair(
          item.units, item.row < step.carried
                          ? static_cast<const T*>(p.out) + (step.token_before + item.row) * p.hidden
                          : static_cast<const T*>(p.h0) + item.row * p.hidden);
      reset = {read_gru_gate<A>(item.units, Rows::kReset, kept),
               read_gru_angle<A>(item.units, MissingAngle::kActivation, kept)};
      const typename Cell::Update update = {read_gru_gate<A>(item.units, Rows::kUpdate, kept),
                                            read_gru_gate<A>(item.units, Rows::kCandidate, kept)};
      if (p.grad_out) {
        dh = dh + load_pair(item.units, static_cast<const T*>(p.grad_out) + token * p.hidden);
      }
      Pair<A> dh_before;
      const auto grad = Cell::backward(update, h_before, dh, dh_before);
      dh = dh_before;
      write_gru_gate(item.units, Rows::kUpdate, grad.z, store_memory_grad);
      item.units.write(0, grad.n, [&](int64_t i, A value) {
        candidate_grad[i] = grad_gates[Rows::offset(Rows::kCandidate, p.hidden) + i] =
            to_storage<T>(value);
      });
    }
    block_barrier();
    candidate_product.clear();
    candidate_product.accumulate(candidate_grads, layout.first_staged, 0,
                                 layout.first.padded_depth());
    candidate_product.store(results);
    block_barrier();
    if (alive) {
      const Pair<A> d_rotated = item.units.template read<A>(0, [&](int64_t i) {
        return Product::result(layout.first, results, item.row_in_block, static_cast<int>(i));
      });
      const auto grad = Cell::backward(reset, h_before, d_rotated, dh);
      write_gru_gate(item.units, Rows::kReset, grad.r, store_memory_grad);
      write_gru_angle(item.units, grad.rot, store_memory_grad);
      store_pair(item.units, static_cast<T*>(p.rotated) + token * p.hidden,
                 Cell::rotated(reset, h_before));
    }
    block_barrier();
    memory_product.clear();
    memory_product.accumulate(memory_grads, layout.second_staged, 0, layout.second.padded_depth());
    memory_product.store(results);
    block_barrier();
    if (alive) {
      dh = dh + item.units.template read<A>(0, [&](int64_t i) {
        return Product::result(layout.second, results, item.row_in_block, static_cast<int>(i));
      });
    }
  }
  if (item.exists) store_pair(item.units, grad_h_row, dh);
}

}  // namespace

void resident(const Request& request, const Plan& plan, const GruForward& p, Stream stream) {
  launch_resident("rot_gru_resident_forward", request, plan, p, stream, [](auto tag, auto rows) {
    return rot_gru_resident_forward<typename decltype(tag)::Type, decltype(rows)::value>;
  });
}

void resident(const Request& request, const Plan& plan, const GruBackward& p, Stream stream) {
  launch_resident("rot_gru_resident_backward", request, plan, p, stream, [](auto tag, auto rows) {
    return rot_gru_resident_backward<typename decltype(tag)::Type, decltype(rows)::value>;
  });
}

}  // namespace rotcell::cuda
