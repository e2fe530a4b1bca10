// The backward pass through a sequence in one cooperative launch, each block with the weights of
// its units on chip. The blocks of a tile wait for each other at each stage of a step: what a
// matmul gives a unit comes from gates of all units.
#include "cuda/kernels/cooperative_launch.h"

namespace rotcell::cuda {
namespace {

template <class Cell, class Exchange>
ROTCELL_DEVICE void run_backward(
    const Cooperative<Backward, typename Exchange::Matmul>& cooperative) {
  using Matmul = typename Exchange::Matmul;
  using T = typename Matmul::Storage;
  using A = typename Matmul::A;
  using Math = DeviceMath<A>;
  const Backward& p = cooperative.params;
  const auto& layout = cooperative.layout;
  const int hidden = p.hidden;
  const int64_t gate_rows = CellRows<Cell>::count(hidden);
  const GridPlace place(cooperative);
  const UnitGroup group{place.unit_group * cooperative.units, cooperative.units, hidden};
  const CooperativeItem item(group);
  ROTCELL_SHARED(unsigned char, shared);
  Exchange exchange(cooperative, shared, !p.steps.reverse);
  A* results = reinterpret_cast<A*>(shared + layout.results);
  const T* w_hh = static_cast<const T*>(p.w_hh);
  [[maybe_unused]] const T* cells = static_cast<const T*>(p.cells);
  T* grad_gates = static_cast<T*>(p.grad_gates);

  Matmul matmuls[Cell::kStages];
  for_stages<Cell>([&](auto stage) {
    constexpr int S = decltype(stage)::value;
    matmuls[S].load(layout.matrix[S], shared + layout.weights[S], [&](int row) {
      const int unit = group.unit(row);
      return [=, &exchange](int column) {
        const int64_t weight_row = exchange.template weight_row<Cell, S>(column, hidden);
        return unit < 0 || weight_row < 0 ? to_storage<T>(0) : w_hh[weight_row * hidden + unit];
      };
    });
  });
  // The first matmul's result is the gradient of the output before: it is made together with the
  // step before, so that what that step reads is on its way meanwhile. Hence one turn more.
  Step after{};  // the step whose gradients of the gates are there; none at first
  for (int64_t position = p.steps.count - 1; position >= -1; --position) {
    const Step step = position >= 0 ? step_at(p.steps, position) : Step{};
    for_stages_back<Cell>([&](auto stage) {
      constexpr int S = decltype(stage)::value;
      constexpr bool kIsLast = S == last_stage<Cell>;
      constexpr int P = kIsLast ? 0 : S + 1;  // the matmul that comes back to this stage
      const Step& multiplied = kIsLast ? after : step;
      for_tiles(place, p.steps.batch, [&](int64_t tile, int64_t first_row) {
        if (first_row >= step.rows && first_row >= multiplied.rows) return exchange.skip(tile);
        const int64_t row = first_row + item.row_in_tile, token = step.token + row;
        const int64_t at = row * hidden;
        const bool alive = item.exists && row < step.rows;
        const bool comes_back = item.exists && row < multiplied.rows;
        A* grad_h = static_cast<A*>(p.grad_h) + at;
        [[maybe_unused]] A* grad_c = static_cast<A*>(p.grad_c) + at;
        // What does not come from other blocks is on its way while they are waited for.
        FetchedGates<Cell, T> kept{};
        Pair<T> h_before{}, c_before{}, c{}, grad_out{};
        PairState<Math> state{};
        Pair<A> d_result{A(0), A(0)}, past_matmuls{A(0), A(0)}, dc{A(0), A(0)};
        const bool carried = row < step.carried;
        const bool output_gradient = kIsLast && p.output_gradient == OutputGradient::kGiven;
        if (Cell::kReadsOutput ? alive || comes_back : alive && !comes_back) {
          past_matmuls = load_pair(item.units, grad_h);
        }
        if (alive) {
          const int64_t token_before = step.token_before + row;
          StageGates<Cell, A, S>::fetch(item.units, kept,
                                        static_cast<const T*>(p.gates) + token * gate_rows);
          if constexpr (Cell::kReadsOutput) {
            h_before = fetch_pair(item.units,
                                  carried ? static_cast<const T*>(p.out) + token_before * hidden
                                          : static_cast<const T*>(p.h0) + at);
          }
          if constexpr (Cell::kHasCellState) {
            if (carried) {
              c_before = fetch_pair(item.units, cells + token_before * hidden);
            } else {
              state.c_before = load_pair(item.units, static_cast<const A*>(p.c0) + at);
            }
            c = fetch_pair(item.units, cells + token * hidden);
            dc = load_pair(item.units, grad_c);
          }
          if (output_gradient) {
            grad_out = fetch_pair(item.units, static_cast<const T*>(p.grad_out) + token * hidden);
          }
        }
        if (first_row < multiplied.rows) {
          exchange.wait(tile);
          exchange.template multiply<P>(
              matmuls[P], results, first_row, multiplied.rows,
              [&](int64_t operand_row, int gate_place) {
                return grad_gates + (multiplied.token + operand_row) * gate_rows +
                       MatmulRows<Cell, P>::weight_row(gate_place, hidden);
              });
        }
        Pair<A> matmul{A(0), A(0)};
        if (comes_back) matmul = block_results<Matmul>(layout.matrix[P], results, item);
        if constexpr (kIsLast) {
          // The whole gradient of this step's output.
          const Pair<A> dh = matmul + past_matmuls;
          if (comes_back && !alive) store_pair(item.units, grad_h, dh);
          d_result = dh;
          if (output_gradient) d_result = d_result + converted(grad_out);
          past_matmuls = {A(0), A(0)};
        } else {
          d_result = matmul;
        }
        if (first_row >= step.rows) return exchange.skip(tile);
        Gates<Cell, A> gates{}, grads{};
        if (alive) {
          StageGates<Cell, A, S>::convert_kept(item.units, kept, gates);
          state.h_before = converted(h_before);
          if (carried) state.c_before = converted(c_before);
          state.c = converted(c);
          Cell::template backward<Math>(stage, gates, state, d_result, past_matmuls, dc, grads);
          through_activations<Cell, S>(p.activations, gates, grads);
          exchange.template give_gates<S>(item, grads, grad_gates + token * gate_rows);
        }
        exchange.template finish<S>(tile);
        // Results that no other block reads are written after the signal.
        if (alive) {
          if constexpr (Exchange::kIsCluster) {
            write_gates<S>(item, grads, grad_gates + token * gate_rows);
          }
          if constexpr (Cell::kHasCellState) store_pair(item.units, grad_c, dc);
          if constexpr (Cell::kReadsOutput) store_pair(item.units, grad_h, past_matmuls);
          if constexpr (!kIsLast) {
            store_pair(item.units, static_cast<T*>(p.second_operand) + token * hidden,
                       Cell::template result<Math>(stage, gates, state.h_before, state.c));
          }
        }
      });
      exchange.next_pass();
    });
    exchange.next_step();
    after = step;
  }
  exchange.end();
}

template <class Cell, class Exchange>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS(Exchange::kThreads)
    cooperative_backward(Cooperative<Backward, typename Exchange::Matmul> cooperative) {
  if constexpr (Exchange::kCanRun) run_backward<Cell, Exchange>(cooperative);
}

}  // namespace

void cooperative(const Request& request, const Plan& plan, const Backward& p, Stream stream) {
  launch_cooperatively({"cooperative_backward", "cluster_backward"}, request, plan, p, stream,
                       [](auto cell, auto exchange) {
                         return cooperative_backward<typename decltype(cell)::Type,
                                                     typename decltype(exchange)::Type>;
                       });
}

}  // namespace rotcell::cuda
