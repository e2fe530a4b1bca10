// The way back through a whole sequence in one cooperative launch, each block with the weights of
// its units on chip. A grid barrier for each stage of a step: what a product gives a unit comes
// from gates of all units.
#include "cuda/cooperative.h"

namespace rotcell::cuda {
namespace {

template <class Cell, class Product>
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS(Tiles::kCooperativeThreads)
    cooperative_backward(Cooperative<Backward, Product> cooperative) {
  using T = typename Product::Storage;
  using A = typename Product::A;
  using Math = DeviceMath<A>;
  const Backward& p = cooperative.params;
  const auto& layout = cooperative.layout;
  const int hidden = p.hidden;
  const int64_t gate_rows = CellRows<Cell>::count(hidden);
  const UnitGroup group{static_cast<int>(blockIdx.x) * cooperative.units, cooperative.units,
                        hidden};
  ROTCELL_SHARED(unsigned char, shared);
  A* results = reinterpret_cast<A*>(shared + layout.results);
  const T* w_hh = static_cast<const T*>(p.w_hh);
  const A* cells = static_cast<const A*>(p.cells);
  T* grad_gates = static_cast<T*>(p.grad_gates);

  Product products[Cell::kStages];
  for_stages<Cell>([&](auto stage) {
    constexpr int S = decltype(stage)::value;
    products[S].load(layout.matrix[S], shared + layout.weights[S], [&](int place, int gate_place) {
      const int unit = group.unit(place);
      const int64_t row = ProductRows<Cell, S>::weight_row(gate_place, hidden);
      return unit < 0 ? to_storage<T>(0) : w_hh[row * hidden + unit];
    });
  });
  for (int64_t position = p.steps.count - 1; position >= 0; --position) {
    const Step step = step_at(p.steps, position);
    // The product of stage S with the gradients of its gates, for the rows from `tile` on.
    const auto multiply = [&](auto stage, int64_t tile) {
      constexpr int S = decltype(stage)::value;
      multiply_staged(products[S], layout.matrix[S], layout.staged[S],
                      reinterpret_cast<T*>(shared + layout.operand[S]), results, tile, step.rows,
                      [&](int64_t row, int place) {
                        return load_coherent(grad_gates + (step.token + row) * gate_rows +
                                             ProductRows<Cell, S>::weight_row(place, hidden));
                      });
    };
    for_stages_back<Cell>([&](auto stage) {
      constexpr int S = decltype(stage)::value;
      for_tiles(step.rows, [&](int64_t tile) {
        if constexpr (S < last_stage<Cell>) multiply(Stage<S + 1>{}, tile);
        for_items(group, tile, step.rows, [&](const CooperativeItem& item) {
          const int64_t token = step.token + item.row, token_before = step.token_before + item.row;
          const int64_t at = item.row * hidden;
          const bool carried = item.row < step.carried;
          const A* kept = static_cast<const A*>(p.gates) + token * gate_rows;
          Gates<Cell, A> gates{}, grads{};
          StageGates<Cell, A, S>::read(item.units, MissingAngle::kActivation, gates,
                                       [&](int64_t i) { return kept[i]; });
          PairState<Math> state{};
          if constexpr (Cell::kReadsOutput) {
            state.h_before =
                load_pair(item.units, carried ? static_cast<const T*>(p.out) + token_before * hidden
                                              : static_cast<const T*>(p.h0) + at);
          }
          if constexpr (Cell::kHasMemory) {
            state.c_before = load_pair(item.units, carried ? cells + token_before * hidden
                                                           : static_cast<const A*>(p.c0) + at);
            state.c = load_pair(item.units, cells + token * hidden);
          }
          // What is there of the old output's gradient, which passes no product.
          A* grad_h = static_cast<A*>(p.grad_h) + at;
          Pair<A> d_result, dh_before{A(0), A(0)}, dc{A(0), A(0)};
          if constexpr (S == last_stage<Cell>) {
            d_result = load_pair(item.units, grad_h);
            if (p.output_gradient == OutputGradient::kGiven) {
              d_result = d_result +
                         load_pair(item.units, static_cast<const T*>(p.grad_out) + token * hidden);
            }
          } else {
            d_result = block_results<Product>(layout.matrix[S + 1], results, item);
            if constexpr (Cell::kReadsOutput) dh_before = load_pair(item.units, grad_h);
          }
          [[maybe_unused]] A* grad_c = static_cast<A*>(p.grad_c) + at;
          if constexpr (Cell::kHasMemory) dc = load_pair(item.units, grad_c);
          Cell::template backward<Math>(stage, gates, state, d_result, dh_before, dc, grads);
          through_activations<Cell, S>(p.functions, gates, grads);
          if constexpr (Cell::kHasMemory) store_pair(item.units, grad_c, dc);
          if constexpr (Cell::kReadsOutput) store_pair(item.units, grad_h, dh_before);
          if constexpr (S < last_stage<Cell>) {
            store_pair(item.units, static_cast<T*>(p.operands) + token * hidden,
                       Cell::template result<Math>(stage, gates, state.h_before, state.c));
          }
          StageGates<Cell, A, S>::write(item.units, grads, [&](int64_t i, A value) {
            grad_gates[token * gate_rows + i] = to_storage<T>(value);
          });
        });
      });
      grid_barrier();
    });
    for_tiles(step.rows, [&](int64_t tile) {
      multiply(Stage<0>{}, tile);
      for_items(group, tile, step.rows, [&](const CooperativeItem& item) {
        A* grad_h = static_cast<A*>(p.grad_h) + item.row * hidden;
        Pair<A> dh = block_results<Product>(layout.matrix[0], results, item);
        if constexpr (Cell::kReadsOutput) dh = load_pair(item.units, grad_h) + dh;
        store_pair(item.units, grad_h, dh);
      });
    });
  }
}

}  // namespace

void cooperative(const Request& request, const Plan& plan, const Backward& p, Stream stream) {
  launch_cooperatively("cooperative_backward", request, plan, p, stream,
                       [](auto cell, auto product) {
                         return cooperative_backward<typename decltype(cell)::Type,
                                                     typename decltype(product)::Type>;
                       });
}

}  // namespace rotcell::cuda
