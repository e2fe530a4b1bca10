// Any cell over a whole sequence in one cooperative launch, each block with the weights of its
// units on chip. The blocks of a tile wait for each other at each stage of a step, because a
// matmul sees all units.
#include "cuda/kernels/cooperative_launch.h"

namespace rotcell::cuda {
namespace {

template <class Cell, class Exchange>
ROTCELL_DEVICE void run_forward(
    const Cooperative<Forward, typename Exchange::Matmul>& cooperative) {
  using Matmul = typename Exchange::Matmul;
  using T = typename Matmul::Storage;
  using A = typename Matmul::A;
  using Math = DeviceMath<A>;
  const Forward& p = cooperative.params;
  const auto& layout = cooperative.layout;
  const int hidden = p.hidden;
  const int64_t gate_rows = CellRows<Cell>::count(hidden);
  const bool keep = p.keep == Keep::kForBackward;
  const GridPlace place(cooperative);
  const UnitGroup group{place.unit_group * cooperative.units, cooperative.units, hidden};
  const CooperativeItem item(group);
  ROTCELL_SHARED(unsigned char, shared);
  Exchange exchange(cooperative, shared, p.steps.reverse);
  A* results = reinterpret_cast<A*>(shared + layout.results);
  const T* w_hh = static_cast<const T*>(p.w_hh);
  const T* h0 = static_cast<const T*>(p.h0);
  T* out = static_cast<T*>(p.out);
  T* second_operand = static_cast<T*>(p.second_operand);

  Matmul matmuls[Cell::kStages];
  for_stages<Cell>([&](auto stage) {
    constexpr int S = decltype(stage)::value;
    matmuls[S].load(layout.matrix[S], shared + layout.weights[S], [&](int row) {
      const int64_t weight_row = group.weight_row<Cell, S>(row);
      return [=](int column) {
        return weight_row < 0 || column >= hidden ? to_storage<T>(0)
                                                  : w_hh[weight_row * hidden + column];
      };
    });
  });
  for (int64_t position = 0; position < p.steps.count; ++position) {
    const Step step = step_at(p.steps, position);
    const auto h_before_row = [&](int64_t row) {
      return row < step.carried ? out + (step.token_before + row) * hidden : h0 + row * hidden;
    };
    for_stages<Cell>([&](auto stage) {
      constexpr int S = decltype(stage)::value;
      constexpr bool kIsLast = S == last_stage<Cell>;
      constexpr int kNext = kIsLast ? 0 : S + 1;  // the matmul that sees the result
      for_tiles(place, p.steps.batch, [&](int64_t tile, int64_t first_row) {
        if (first_row >= step.rows) return exchange.skip(tile);
        const int64_t row = first_row + item.row_in_tile, token = step.token + row;
        const bool alive = item.exists && row < step.rows;
        A* waiting = static_cast<A*>(p.waiting) + row * gate_rows;
        A* c_row = static_cast<A*>(p.c) + row * hidden;
        // What does not come from other blocks is on its way while they are waited for.
        FetchedGates<Cell, T> from_input{};
        [[maybe_unused]] Pair<T> h_fetched{};
        Gates<Cell, A> gates{};
        Pair<A> h_before{A(0), A(0)}, c{A(0), A(0)};
        if (alive) {
          GatesFromMatmul<Cell, A, S>::fetch(
              item.units, from_input, static_cast<const T*>(p.from_input) + token * gate_rows);
          WaitedGates<Cell, A, S>::read(item.units, MissingAngle::kPreactivation, gates,
                                        [&](int64_t i) { return waiting[i]; });
          if constexpr (Cell::kReadsOutput) h_fetched = fetch_pair(item.units, h_before_row(row));
          if constexpr (Cell::kHasCellState && kIsLast) {
            c = load_pair(item.units, c_row);
          }
        }
        exchange.wait(tile);
        if constexpr (S == 0) exchange.begin_rows(first_row, step.carried, step.rows, h0, hidden);
        exchange.template multiply<S>(
            matmuls[S], results, first_row, step.rows, [&](int64_t operand_row, int column) {
              const T* operand =
                  S == 0 ? h_before_row(operand_row) : second_operand + operand_row * hidden;
              return operand + column;
            });
        Pair<A> result{A(0), A(0)};
        if (alive) {
          GatesFromMatmul<Cell, A, S>::convert(item.units, MissingAngle::kPreactivation, from_input,
                                               gates);
          if constexpr (Cell::kReadsOutput) h_before = converted(h_fetched);
          add_matmul<S>(item.block_units, gates, [&](int64_t place_in_matmul) {
            return staged_result(layout.matrix[S], results, item, place_in_matmul);
          });
          // Before they are activated, which the next stage does.
          WaitingGates<Cell, A, S>::write(item.units, gates,
                                          [&](int64_t i, A value) { waiting[i] = value; });
          activate<Cell, S>(p.activations, gates);
          if constexpr (Cell::kHasCellState) {
            if constexpr (kIsLast) c = Cell::template cell_state<Math>(gates, c);
          }
          result = Cell::template result<Math>(stage, gates, h_before, c);
          exchange.template give<kNext>(
              item, result, kIsLast ? out + token * hidden : second_operand + row * hidden);
        }
        exchange.template finish<kNext>(tile);
        // Results that no other block reads are written after the signal.
        if (alive) {
          if constexpr (kIsLast) {
            if constexpr (Exchange::kIsCluster) {
              store_pair(item.units, out + token * hidden, result);
            }
            if (row >= step.going_on) {
              store_pair(item.units, static_cast<T*>(p.h_n) + row * hidden, result);
            }
          }
          if constexpr (Cell::kHasCellState && kIsLast) {
            store_pair(item.units, c_row, c);
            if (keep) store_pair(item.units, static_cast<T*>(p.cells) + token * hidden, c);
          }
          if (keep) {
            StageGates<Cell, A, S>::write_kept(item.units, gates,
                                               static_cast<T*>(p.gates) + token * gate_rows);
          }
        }
      });
      exchange.next_pass();
    });
    exchange.next_step();
  }
  exchange.end();
}

template <class Cell, class Exchange>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS(Exchange::kThreads)
    cooperative_forward(Cooperative<Forward, typename Exchange::Matmul> cooperative) {
  if constexpr (Exchange::kCanRun) run_forward<Cell, Exchange>(cooperative);
}

}  // namespace

void cooperative(const Request& request, const Plan& plan, const Forward& p, Stream stream) {
  launch_cooperatively({"cooperative_forward", "cluster_forward"}, request, plan, p, stream,
                       [](auto cell, auto exchange) {
                         return cooperative_forward<typename decltype(cell)::Type,
                                                    typename decltype(exchange)::Type>;
                       });
}

}  // namespace rotcell::cuda
