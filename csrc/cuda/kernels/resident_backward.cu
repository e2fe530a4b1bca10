// The backward pass through a whole sequence in one launch, with all recurrent weights on chip.
#include "cuda/kernels/resident.h"

namespace rotcell::cuda {
namespace {

template <class Cell, class T, int kRows>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS((resident_threads<T, kRows>))
    resident_backward(Resident<Backward> resident) {
  using A = Compute<T>;
  using Math = DeviceMath<A>;
  using Matmul = ResidentMatmul<Cell, T, kRows>;
  const Backward& p = resident.params;
  const auto& layout = resident.layout;
  const int hidden = p.hidden;
  const int64_t gate_rows = CellRows<Cell>::count(hidden), first_row = int64_t{kRows} * blockIdx.x;
  ROTCELL_SHARED(unsigned char, shared);
  A* results = reinterpret_cast<A*>(shared + layout.results);  // [kRows, H]
  const auto operand = [&](int matmul) {
    return reinterpret_cast<T*>(shared + layout.operand[matmul]);
  };

  const T* w_hh = static_cast<const T*>(p.w_hh);
  Matmul matmuls[Cell::kStages];
  for_stages<Cell>([&](auto stage) {
    constexpr int S = decltype(stage)::value;
    matmuls[S].load(layout.matrix[S], shared + layout.weights[S], [&](int unit) {
      return [=](int place) {
        return w_hh[MatmulRows<Cell, S>::weight_row(place, hidden) * hidden + unit];
      };
    });
    fill_operand(operand(S), kRows, layout.staged[S], [](int, int) { return to_storage<T>(A(0)); });
  });
  const ResidentItem item(kRows, p.steps.batch, hidden);
  A* grad_h_row = static_cast<A*>(p.grad_h) + item.row * hidden;
  A* grad_c_row = static_cast<A*>(p.grad_c) + item.row * hidden;
  Pair<A> dh{A(0), A(0)}, dc{A(0), A(0)};
  if (item.exists) {
    dh = load_pair(item.units, grad_h_row);
    if constexpr (Cell::kHasCellState) dc = load_pair(item.units, grad_c_row);
  }
  block_barrier();

  for (int64_t position = p.steps.count - 1; position >= 0; --position) {
    const Step step = step_at(p.steps, position);
    if (step.rows <= first_row) continue;
    const bool alive = item.exists && item.row < step.rows;
    const int64_t token = step.token + item.row;
    Gates<Cell, A> gates{};
    PairState<Math> state{};
    if (alive) {
      AllGates<Cell, A>::read_kept(item.units, gates,
                                   static_cast<const T*>(p.gates) + token * gate_rows);
      const int64_t token_before = step.token_before + item.row;
      const bool carried = item.row < step.carried;
      if constexpr (Cell::kReadsOutput) {
        state.h_before =
            load_pair(item.units, carried ? static_cast<const T*>(p.out) + token_before * hidden
                                          : static_cast<const T*>(p.h0) + item.row * hidden);
      }
      if constexpr (Cell::kHasCellState) {
        const T* cells = static_cast<const T*>(p.cells);
        state.c_before =
            carried ? load_pair(item.units, cells + token_before * hidden)
                    : load_pair(item.units, static_cast<const A*>(p.c0) + item.row * hidden);
        state.c = load_pair(item.units, cells + token * hidden);
      }
      if (p.output_gradient == OutputGradient::kGiven) {
        dh = dh + load_pair(item.units, static_cast<const T*>(p.grad_out) + token * hidden);
      }
    }
    // The gradient of the old output that no matmul carries.
    Pair<A> dh_before{A(0), A(0)};
    // The gradient of the stage's result: the output's, then what a matmul gives.
    Pair<A> d_result = dh;
    for_stages_back<Cell>([&](auto stage) {
      constexpr int S = decltype(stage)::value;
      if (alive) {
        Gates<Cell, A> grads{};
        Cell::template backward<Math>(stage, gates, state, d_result, dh_before, dc, grads);
        through_activations<Cell, S>(p.activations, gates, grads);
        T* grad_gates = static_cast<T*>(p.grad_gates) + token * gate_rows;
        for_stages<Cell>([&](auto matmul) {
          constexpr int P = decltype(matmul)::value;
          T* grad_row = operand(P) + item.row_in_block * layout.staged[P];
          write_matmul<P, S>(item.units, grads, [&](int64_t place, int64_t row, A value) {
            grad_row[place] = grad_gates[row] = to_storage<T>(value);
          });
        });
        if constexpr (S < last_stage<Cell>) {
          store_pair(item.units, static_cast<T*>(p.second_operand) + token * hidden,
                     Cell::template result<Math>(stage, gates, state.h_before, state.c));
        }
      }
      block_barrier();
      multiply_resident(matmuls[S], operand(S), layout.depth[S]);
      matmuls[S].for_sums([&](int r, A sum) { results[r * hidden + matmuls[S].row()] = sum; });
      block_barrier();
      if (alive) {
        d_result = item.units.template read<A>(
            0, [&](int64_t i) { return results[item.row_in_block * hidden + i]; });
      }
    });
    if (alive) dh = Cell::kReadsOutput ? dh_before + d_result : d_result;
  }
  if (item.exists) {
    store_pair(item.units, grad_h_row, dh);
    if constexpr (Cell::kHasCellState) store_pair(item.units, grad_c_row, dc);
  }
}

}  // namespace

void resident(const Request& request, const Plan& plan, const Backward& p, Stream stream) {
  launch_resident("resident_backward", request, plan, p, stream,
                  [](auto cell, auto tag, auto rows) {
                    return resident_backward<typename decltype(cell)::Type,
                                             typename decltype(tag)::Type, decltype(rows)::value>;
                  });
}

}  // namespace rotcell::cuda
