// Any cell over a whole sequence in one launch, with all recurrent weights on chip.
#include "cuda/kernels/resident.h"

namespace rotcell::cuda {
namespace {

template <class Cell, class T, int kRows>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS((resident_threads<T, kRows>))
    resident_forward(Resident<Forward> resident) {
  using A = Compute<T>;
  using Math = DeviceMath<A>;
  using Matmul = ResidentMatmul<Cell, T, kRows>;
  const Forward& p = resident.params;
  const auto& layout = resident.layout;
  const int hidden = p.hidden;
  const int64_t gate_rows = CellRows<Cell>::count(hidden), first_row = int64_t{kRows} * blockIdx.x;
  const bool keep = p.keep == Keep::kForBackward;
  ROTCELL_SHARED(unsigned char, shared);
  A* activations = reinterpret_cast<A*>(shared + layout.results);  // [kRows, G]
  const auto operand = [&](int matmul) {
    return reinterpret_cast<T*>(shared + layout.operand[matmul]);
  };

  const T* w_hh = static_cast<const T*>(p.w_hh);
  const T* h0 = static_cast<const T*>(p.h0);
  Matmul matmuls[Cell::kStages];
  for_stages<Cell>([&](auto stage) {
    constexpr int S = decltype(stage)::value;
    matmuls[S].load(layout.matrix[S], shared + layout.weights[S], [&](int place) {
      const T* weights = w_hh + MatmulRows<Cell, S>::weight_row(place, hidden) * hidden;
      return [=](int column) { return weights[column]; };
    });
    fill_operand(operand(S), kRows, layout.staged[S], [&](int row, int column) {
      const bool exists = S == 0 && first_row + row < p.steps.batch && column < hidden;
      return exists ? h0[(first_row + row) * hidden + column] : to_storage<T>(A(0));
    });
  });
  // The row of the weights whose gate a thread sums up and activates, for each matmul.
  int64_t gate_row[Cell::kStages];
  RowActivation activation[Cell::kStages];
  for_stages<Cell>([&](auto stage) {
    constexpr int S = decltype(stage)::value;
    const int place = matmuls[S].row();
    gate_row[S] = MatmulRows<Cell, S>::weight_row(place, hidden);
    activation[S] = MatmulRows<Cell, S>::activation(place, hidden, p.activations);
  });
  const ResidentItem item(kRows, p.steps.batch, hidden);
  T* h_row = operand(0) + item.row_in_block * layout.staged[0];
  A* c_row = static_cast<A*>(p.c) + item.row * hidden;
  Pair<A> c{A(0), A(0)};
  if constexpr (Cell::kHasCellState) {
    if (item.exists) c = load_pair(item.units, c_row);
  }
  block_barrier();

  for (int64_t position = 0; position < p.steps.count; ++position) {
    const Step step = step_at(p.steps, position);
    if (step.rows <= first_row) continue;
    const bool alive = item.exists && item.row < step.rows;
    const int64_t token = step.token + item.row;
    const auto at_gate = [&](int stage, int r) {
      return (step.token + first_row + r) * gate_rows + gate_row[stage];
    };
    T from_input[Cell::kStages][kRows];  // converted late: it is waited for then
    for_stages<Cell>([&](auto stage) {
      constexpr int S = decltype(stage)::value;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        from_input[S][r] = matmuls[S].hands_out(r) && first_row + r < step.rows
                               ? static_cast<const T*>(p.from_input)[at_gate(S, r)]
                               : to_storage<T>(0);
      }
    });
    for_stages<Cell>([&](auto stage) {
      constexpr int S = decltype(stage)::value;
      multiply_resident(matmuls[S], operand(S), layout.depth[S]);
      matmuls[S].for_sums([&](int r, A sum) {
        if (first_row + r >= step.rows) return;
        const A value = activation[S].template apply<Math>(to_compute(from_input[S][r]) + sum);
        activations[r * gate_rows + gate_row[S]] = value;
        if (keep) {
          static_cast<T*>(p.gates)[at_gate(S, r)] = activation[S].is_tanh
                                                        ? KeptActivation<T>::of_tanh(value)
                                                        : KeptActivation<T>::of_share(value);
        }
      });
      block_barrier();
      if (alive) {
        Gates<Cell, A> gates{};
        StageGates<Cell, A, S>::read(item.units, MissingAngle::kActivation, gates, [&](int64_t i) {
          return activations[item.row_in_block * gate_rows + i];
        });
        Pair<A> h_before{A(0), A(0)};
        if constexpr (Cell::kReadsOutput) h_before = load_pair(item.units, h_row);
        if constexpr (Cell::kHasCellState) {
          if constexpr (S == last_stage<Cell>) {
            c = Cell::template cell_state<Math>(gates, c);
            if (keep) store_pair(item.units, static_cast<T*>(p.cells) + token * hidden, c);
          }
        }
        const Pair<A> result = Cell::template result<Math>(stage, gates, h_before, c);
        if constexpr (S == last_stage<Cell>) {
          store_pair(item.units, h_row, result);
          store_pair(item.units, static_cast<T*>(p.out) + token * hidden, result);
        } else {
          store_pair(item.units, operand(S + 1) + item.row_in_block * layout.staged[S + 1], result);
        }
      }
      block_barrier();
    });
  }
  if (item.exists) {
    store_pair(item.units, static_cast<T*>(p.h_n) + item.row * hidden,
               load_pair(item.units, h_row));
    if constexpr (Cell::kHasCellState) store_pair(item.units, c_row, c);
  }
}

}  // namespace

void resident(const Request& request, const Plan& plan, const Forward& p, Stream stream) {
  launch_resident("resident_forward", request, plan, p, stream, [](auto cell, auto tag, auto rows) {
    return resident_forward<typename decltype(cell)::Type, typename decltype(tag)::Type,
                            decltype(rows)::value>;
  });
}

}  // namespace rotcell::cuda
