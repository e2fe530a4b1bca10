// Any cell over a chunk of a sequence, with rows of the batch in the lanes of vectors: for small
// weights and batches that fill blocks. Preactivations never leave the first-level cache, no unit
// is a tail, and each thread adds up the weight gradients of its own rows. No projection.
#pragma once

#include <numeric>

#include "cpu/loops/block.h"
#include "cpu/loops/kernels.h"
#include "cpu/loops/row_runs.h"
#include "cpu/loops/unit_vectorized.h"
#include "cpu/simd/vector_math.h"

namespace rotcell::cpu::ROTCELL_ISA {

// The order of a matmul's rows of weights with the same inputs. All rows of a pair of units are
// together: its gates, both units of each, then its angle.
template <class Cell, int MATMUL, FedBy FED>
struct PairOrder {
  static constexpr bool kHasAngle = FED == FedBy::kBoth && MatmulGates<Cell, MATMUL>::kHasAngles;
  static constexpr bool kFromX = FED != FedBy::kHidden, kFromH = FED != FedBy::kInput;

  // How many of these gates come before a gate; for kGateCount, how many there are.
  static ROTCELL_INLINE constexpr int position(int gate) {
    int count = 0;
    for (int other = 0; other < gate; ++other) count += has(other) ? 1 : 0;
    return count;
  }
  static ROTCELL_INLINE constexpr bool has(int gate) {
    return Cell::matmul(gate) == MATMUL && fed_by<Cell>(gate) == FED;
  }
  static constexpr int kGates = position(Cell::kGateCount);
  static constexpr int kRows = 2 * kGates + (kHasAngle ? 1 : 0);  // per pair

  // The place of a gate's first unit among the rows of its pair.
  static constexpr int place(int gate) { return 2 * position(gate); }
  static constexpr int kAnglePlace = 2 * kGates;

  // The row of the weights, in torch's order, at a place of a pair; negative if it does not exist.
  static int64_t weight_row(int64_t pair, int place, int64_t hidden) {
    using Rows = CellRows<Cell>;
    if (kHasAngle && place == kAnglePlace) {
      return 2 * pair + 1 < hidden ? Rows::angles(hidden) + pair : -1;
    }
    const int64_t unit = 2 * pair + place % 2;
    return unit < hidden ? Rows::offset(gate_at(place / 2), hidden) + unit : -1;
  }

  // The row of w_hh of a row of the gates that h feeds.
  static int64_t recurrent_row(int64_t row, int place, int64_t hidden) {
    using Rows = CellRows<Cell>;
    if (kHasAngle && place == kAnglePlace) {
      return row - Rows::angles(hidden) + Rows::recurrent_offset(Cell::kGateCount, hidden);
    }
    const int gate = gate_at(place / 2);
    return row - Rows::offset(gate, hidden) + Rows::recurrent_offset(gate, hidden);
  }

 private:
  static constexpr int gate_at(int wanted) {
    for (int gate = 0; gate < Cell::kGateCount; ++gate) {
      if (has(gate) && position(gate) == wanted) return gate;
    }
    return Cell::kGateCount;
  }
};

// The orders of a matmul, one behind the other for a group of pairs.
template <class Cell, int MATMUL>
struct GroupOrder {
  template <FedBy FED>
  using Of = PairOrder<Cell, MATMUL, FED>;

  // body(PairOrder) for those that have rows.
  template <class Body>
  static ROTCELL_INLINE constexpr void for_orders(const Body& body) {
    if constexpr (Of<FedBy::kBoth>::kRows > 0) body(Of<FedBy::kBoth>{});
    if constexpr (Of<FedBy::kInput>::kRows > 0) body(Of<FedBy::kInput>{});
    if constexpr (Of<FedBy::kHidden>::kRows > 0) body(Of<FedBy::kHidden>{});
  }

  static constexpr int kRows =
      Of<FedBy::kBoth>::kRows + Of<FedBy::kInput>::kRows + Of<FedBy::kHidden>::kRows;

  // As many pairs at once as fill register tiles of all orders.
  static constexpr int pairs() {
    int pairs = 1;
    for_orders([&](auto order) {
      pairs = std::lcm(pairs, kTileRows / std::gcd(decltype(order)::kRows, kTileRows));
    });
    return pairs;
  }
  static constexpr int kPairs = pairs();
  static constexpr int kGroupRows = kPairs * kRows;

  // Where a pair of a group has its rows of an order.
  template <class Order>
  static ROTCELL_INLINE constexpr int64_t first_row(int64_t pair_of_group) {
    return first_of_order<Order>() + pair_of_group * Order::kRows;
  }

  // Elements of the weights' rows of all pairs.
  static int64_t elements(int64_t pairs, int64_t biases, int64_t inputs, int64_t outputs) {
    int64_t elements = 0;
    for_orders([&](auto order) {
      using Order = decltype(order);
      elements += pairs * Order::kRows *
                  (biases + (Order::kFromX ? inputs : 0) + (Order::kFromH ? outputs : 0));
    });
    return elements;
  }

 private:
  template <class Order>
  static ROTCELL_INLINE constexpr int64_t first_of_order() {
    if constexpr (std::is_same_v<Order, Of<FedBy::kBoth>>) {
      return 0;
    } else if constexpr (std::is_same_v<Order, Of<FedBy::kInput>>) {
      return kPairs * Of<FedBy::kBoth>::kRows;
    } else {
      return kPairs * (Of<FedBy::kBoth>::kRows + Of<FedBy::kInput>::kRows);
    }
  }
};

template <class T, class Cell>
struct BatchSequence {
  using Math = VectorMath<T>;
  using P = Pair<Vec<T>>;
  using Gates = GateValues<Cell, Math>;
  using Rows = CellRows<Cell>;
  static constexpr int kLast = Cell::kStages - 1;
  static constexpr int L = kLanes<T>, BR = kBlockRows<T>;

  // ---- Packing

  static int64_t pairs_of(int64_t hidden) { return (hidden + 1) / 2; }

  // The rows of all stages, with those that pad a last unit without a partner.
  static int64_t ordered_rows(int64_t hidden) {
    int64_t rows = 0;
    for_stages<Cell>(
        [&](auto stage) { rows += pairs_of(hidden) * GroupOrder<Cell, stage()>::kRows; });
    return rows;
  }

  static int64_t forward_elements(const RecurrentWeights<T>& w, BiasOf bias_of) {
    const int64_t biases = bias_of == BiasOf::kLayer ? 1 : 0;
    int64_t elements = 0;
    for_stages<Cell>([&](auto stage) {
      using Group = GroupOrder<Cell, stage()>;
      elements += Group::elements(pairs_of(w.hidden), biases, w.inputs, w.outputs);
    });
    return elements;
  }

  // The bias of a row that does not exist: 0, or -inf for the angle, so that a last unit without a
  // partner is not rotated.
  template <class Order>
  static T missing_bias(int place) {
    const bool no_turn = Order::kHasAngle && place == Order::kAnglePlace;
    return no_turn ? -static_cast<T>(__builtin_inf()) : T(0);
  }

  // A row that does not exist has weights of 0.
  static void pack_forward(const RecurrentWeights<T>& w, BiasOf bias_of, const T* bias, T* packed) {
    const bool with_bias = bias_of == BiasOf::kLayer;
    for_stages<Cell>([&](auto stage) {
      using Group = GroupOrder<Cell, stage()>;
      for_groups<Group>(w.hidden, [&](int64_t first_pair, int64_t pairs) {
        Group::for_orders([&](auto order) {
          using Order = decltype(order);
          const int64_t inputs = Order::kFromX ? w.inputs : 0;
          const int64_t outputs = Order::kFromH ? w.outputs : 0;
          const TileCut cut{pairs * Order::kRows};
          for (int64_t tile = 0; tile < cut.tiles; ++tile) {
            const int64_t height = cut.height(tile);
            for (int64_t r = 0; r < height; ++r) {
              const int64_t ordered = first_pair * Order::kRows + cut.begin(tile) + r;
              const int place = static_cast<int>(ordered % Order::kRows);
              const int64_t row = Order::weight_row(ordered / Order::kRows, place, w.hidden);
              const int64_t row_hh = row >= 0 ? Order::recurrent_row(row, place, w.hidden) : 0;
              T* target = packed + r;
              if (with_bias) {
                *target = row >= 0 ? bias[row] : missing_bias<Order>(place);
                target += height;
              }
              for (int64_t k = 0; k < inputs; ++k, target += height) {
                *target = row >= 0 ? w.w_ih[row * inputs + k] : T(0);
              }
              for (int64_t k = 0; k < outputs; ++k, target += height) {
                *target = row >= 0 ? w.w_hh[row_hh * outputs + k] : T(0);
              }
            }
            packed += height * ((with_bias ? 1 : 0) + inputs + outputs);
          }
        });
      });
    });
  }

  // body(first pair, how many) for groups of pairs.
  template <class Group, class Body>
  static void for_groups(int64_t hidden, const Body& body) {
    const int64_t pairs = pairs_of(hidden);
    for (int64_t first = 0; first < pairs; first += Group::kPairs) {
      body(first, pairs - first < Group::kPairs ? pairs - first : Group::kPairs);
    }
  }

  // In the backward pass: for every matmul its columns (units), then the columns of w_ih (inputs).
  static int64_t backward_elements(const RecurrentWeights<T>& w) {
    return recurrent_rows(w.hidden) * w.outputs + Rows::of_input(w.hidden) * w.inputs;
  }
  static int64_t recurrent_rows(int64_t hidden) {
    int64_t rows = 0;
    for (const RecurrentSpan& span : Rows::recurrent_spans(hidden, HiddenFeeds::kAll)) {
      rows += span.count;
    }
    return rows;
  }

  // body(run) in the order of the gradients of the gates: columns that x feeds come first, and
  // those of a matmul that h feeds lie together.
  template <class Body>
  static void for_grad_runs(int matmul, int64_t hidden, const Body& body) {
    const RowRuns<Cell> runs = runs_of_matmul<Cell>(matmul, hidden, {0, hidden}, HiddenFeeds::kAll);
    for (const RowRun& run : runs) {
      if (!run.from_h) body(run);
    }
    for (const RowRun& run : runs) {
      if (run.from_h && run.from_x) body(run);
    }
    for (const RowRun& run : runs) {
      if (!run.from_x) body(run);
    }
  }
  template <class Body>
  static void for_grad_runs(int64_t hidden, const Body& body) {
    for (int matmul = 0; matmul < Cell::kStages; ++matmul) for_grad_runs(matmul, hidden, body);
  }

  static void pack_backward(const RecurrentWeights<T>& w, T* packed) {
    const auto pack_columns = [&](const T* weights, int64_t columns, const auto& for_rows) {
      const TileCut cut{columns};
      for (int64_t tile = 0; tile < cut.tiles; ++tile) {
        const int64_t first = cut.begin(tile), width = cut.height(tile);
        for_rows([&](int64_t row) {
          for (int64_t c = 0; c < width; ++c) *packed++ = weights[row * columns + first + c];
        });
      }
    };
    for_stages<Cell>([&](auto stage) {
      pack_columns(w.w_hh, w.outputs, [&](const auto& body) {
        for_grad_runs(stage(), w.hidden, [&](const RowRun& run) {
          for (int64_t i = 0; run.from_h && i < run.rows; ++i) body(run.first_hh + i);
        });
      });
    });
    pack_columns(w.w_ih, w.inputs, [&](const auto& body) {
      for_grad_runs(w.hidden, [&](const RowRun& run) {
        for (int64_t i = 0; run.from_x && i < run.rows; ++i) body(run.first + i);
      });
    });
  }

  // ---- Forward

  static void forward(const Forward<T>& p, const Work& work) {
    for_blocks(work.rows, [&](RowRange rows) { forward_block(p, rows); });
  }

  // ---- Backward

  static void backward(const Backward<T>& p, const Work& work) {
    for_blocks(work.rows, [&](RowRange rows) { backward_block(p, rows, work.slot); });
  }

 private:
  // body(rows) for blocks of about as many rows each.
  template <class Body>
  static void for_blocks(RowRange rows, const Body& body) {
    const int64_t count = rows.end - rows.begin, blocks = (count + BR - 1) / BR;
    for (int64_t i = 0; i < blocks; ++i) {
      body(RowRange{rows.begin + count * i / blocks, rows.begin + count * (i + 1) / blocks});
    }
  }

  static ROTCELL_INLINE P load_units(const T* block, int64_t unit, int v) {
    return {load(block + unit * BR + v * L), load(block + (unit + 1) * BR + v * L)};
  }
  static ROTCELL_INLINE void store_units(T* block, int64_t unit, int v, const P& pair) {
    store(block + unit * BR + v * L, pair.a);
    store(block + (unit + 1) * BR + v * L, pair.b);
  }
  // As load_units, where the second unit may not exist: the next row belongs to another gate.
  static ROTCELL_INLINE P load_existing(const T* block, int64_t unit, int v, bool whole) {
    return {load(block + unit * BR + v * L),
            whole ? load(block + (unit + 1) * BR + v * L) : Vec<T>{}};
  }
  static ROTCELL_INLINE void store_existing(T* block, int64_t unit, int v, const P& pair,
                                            bool whole) {
    store(block + unit * BR + v * L, pair.a);
    if (whole) store(block + (unit + 1) * BR + v * L, pair.b);
  }

  // With an odd size blocks have a row for the partner that the last unit lacks. It takes part in
  // the math of pairs and is reset after each step of it: a rotation by 0 multiplies it by 0, which
  // is NaN where a value of the last unit is infinite.
  static void fill_row(T* row, T value) {
    for (int v = 0; v < kBlockVectors; ++v) store(row + v * L, broadcast(value));
  }

  static Lanes lanes(const RowStep& s) { return {0, s.end - s.begin}; }

  // A state [N or B, width] before the step, into a block.
  static void load_state(const RowStep& s, const T* states, const T* initial, int64_t width,
                         T* block) {
    const int64_t carried = s.carried_end - s.begin;
    load_lanes(states + (s.step.token_before + s.begin) * width, width, width, {0, carried}, block);
    load_lanes(initial + s.carried_end * width, width, width, {carried, s.end - s.begin}, block);
  }

  static constexpr int64_t most_group_rows() {
    int64_t most = 0;
    for_stages<Cell>([&](auto stage) {
      constexpr int64_t kRows = GroupOrder<Cell, decltype(stage)::value>::kGroupRows;
      if (kRows > most) most = kRows;
    });
    return most;
  }

  // The register tiles of a step's matmuls.
  static int64_t forward_tiles(int64_t hidden) {
    int64_t tiles = 0;
    for_stages<Cell>([&](auto stage) {
      using Group = GroupOrder<Cell, decltype(stage)::value>;
      for_groups<Group>(hidden, [&](int64_t, int64_t pairs) {
        Group::for_orders(
            [&](auto order) { tiles += TileCut{pairs * decltype(order)::kRows}.tiles; });
      });
    });
    return tiles;
  }

  struct ForwardBlocks {
    Block<T> x, h, new_h, second_operand, c;
    Block<T> tile;     // preactivations of a few pairs
    Block<T> waiting;  // of gates whose stage is later than their matmul: [gate][units]
    Block<T> gates;    // activations in torch's order
    Block<T> bias;     // in the order of pairs, if it is of rows

    ForwardBlocks(const Call& call, int64_t units)
        : x(call.inputs),
          h(units),
          new_h(units),
          second_operand(Cell::kStages > 1 ? units : 0),
          c(Cell::kHasCellState ? units : 0),
          tile(most_group_rows()),
          waiting(Cell::kStages > 1 ? Cell::kGateCount * units : 0),
          gates(call.keep == Keep::kForBackward ? Rows::count(call.hidden) : 0),
          bias(call.bias_of == BiasOf::kRow ? ordered_rows(call.hidden) : 0) {}
  };

  // The biases of some rows of the batch, from torch's order into that of pairs.
  static void load_row_bias(const Forward<T>& p, RowRange rows, Block<T>& bias) {
    const int64_t H = p.call.hidden, G = Rows::count(H);
    const Block<T> given(G);
    load_lanes(p.bias + rows.begin * G, G, G, {0, rows.end - rows.begin}, given.row(0));
    int64_t ordered = 0;
    for_stages<Cell>([&](auto stage) {
      using Group = GroupOrder<Cell, stage()>;
      for_groups<Group>(H, [&](int64_t first_pair, int64_t pairs) {
        Group::for_orders([&](auto order) {
          using Order = decltype(order);
          for (int64_t pair = first_pair; pair < first_pair + pairs; ++pair) {
            for (int place = 0; place < Order::kRows; ++place, ++ordered) {
              const int64_t row = Order::weight_row(pair, place, H);
              const Vec<T> missing = broadcast(missing_bias<Order>(place));
              for (int v = 0; v < kBlockVectors; ++v) {
                store(bias.row(ordered) + v * L, row >= 0 ? load(given.row(row) + v * L) : missing);
              }
            }
          }
        });
      });
    });
  }

  static void forward_block(const Forward<T>& p, RowRange rows) {
    const Call& call = p.call;
    const int64_t H = call.hidden, I = call.inputs, G = Rows::count(H);
    const bool kept = call.keep == Keep::kForBackward;
    const int64_t units = 2 * pairs_of(H);
    const int64_t tiles = forward_tiles(H);
    ForwardBlocks b(call, units);
    T* h = b.h.row(0);
    T* new_h = b.new_h.row(0);
    if (call.bias_of == BiasOf::kRow) load_row_bias(p, rows, b.bias);
    for (int64_t position = p.chunk.begin; position < p.chunk.end; ++position) {
      const RowStep s(call.steps, rows, position);
      if (s.end <= s.begin) continue;
      const int64_t token = s.step.token + s.begin;
      if (position == p.chunk.begin) {
        load_state(s, p.out, p.h0, H, h);
      } else {
        load_lanes(p.h0 + s.carried_end * H, H, H, {s.carried_end - s.begin, s.end - s.begin}, h);
      }
      if constexpr (Cell::kHasCellState) {
        if (position == p.chunk.begin && kept) {
          load_state(s, p.cells, p.c0, H, b.c.row(0));
        } else {
          // What is not kept goes from chunk to chunk as the running cell state, at first c0.
          const T* c0 = kept ? p.c0 : p.cells;
          const int64_t first = position == p.chunk.begin ? s.begin : s.carried_end;
          load_lanes(c0 + first * H, H, H, {first - s.begin, s.end - s.begin}, b.c.row(0));
        }
      }
      load_lanes(p.x + (token - p.chunk.first_token) * I, I, I, lanes(s), b.x.row(0));
      Prefetches soon;
      if (position + 1 < p.chunk.end) {
        const RowStep next(call.steps, rows, position + 1);
        soon.add(p.x + (next.step.token + next.begin - p.chunk.first_token) * I,
                 (next.end - next.begin) * I);
      }
      soon.add(p.out + token * H, (s.end - s.begin) * H);
      if (kept) {
        soon.add(p.gates + token * G, (s.end - s.begin) * G);
        if constexpr (Cell::kHasCellState) soon.add(p.cells + token * H, (s.end - s.begin) * H);
      }
      soon.spread_over(tiles);

      const T* weights = p.weights;
      const T* bias = b.bias.row(0);
      for_stages<Cell>([&](auto stage) {
        constexpr int S = decltype(stage)::value;
        using Group = GroupOrder<Cell, S>;
        T* results = S == kLast ? new_h : b.second_operand.row(0);
        const int64_t pairs = pairs_of(H);
        for_groups<Group>(H, [&](int64_t first, int64_t count) {
          Group::for_orders([&](auto order) {
            using Order = decltype(order);
            const Operand<T> x{b.x.row(0), Order::kFromX ? I : 0};
            const Operand<T> memory{S == 0 ? h : b.second_operand.row(0), Order::kFromH ? H : 0};
            const int64_t tile_rows = count * Order::kRows;
            T* tile = b.tile.row(Group::template first_row<Order>(0));
            if (call.bias_of == BiasOf::kLayer) {
              weights =
                  multiply_block<T, TileStart::kBias>(weights, tile_rows, x, memory, tile, soon);
            } else {
              weights = multiply_block<T, TileStart::kBlock>(weights, tile_rows, x, memory, tile,
                                                             soon, bias);
              bias += tile_rows * BR;
            }
            if (first + count == pairs && units > H) {
              // A weight of 0 times an infinite input is NaN, not 0.
              for (int place = 0; place < Order::kRows; ++place) {
                if (Order::weight_row(pairs - 1, place, H) >= 0) continue;
                fill_row(b.tile.row(Group::template first_row<Order>(count - 1) + place),
                         missing_bias<Order>(place));
              }
            }
          });
          // Two loops, because the dependency chain of a whole pair is too long for out-of-order
          // execution to reach the next pair.
          with_gate_function(call.activations.gates, [&](auto function) {
            for (int64_t i = 0; i < count; ++i) {
              activate_pair<S, function()>(call, b, i, 2 * (first + i));
            }
          });
          for (int64_t i = 0; i < count; ++i) {
            forward_pair<S>(b, i, 2 * (first + i), units, h, results);
          }
        });
        if (units > H) {
          fill_row(results + H * BR, T(0));
          if constexpr (Cell::kHasCellState) fill_row(b.c.row(H), T(0));
        }
      });
      swap_pointers(h, new_h);

      store_lanes(h, H, lanes(s), p.out + token * H, H);
      if (kept) {
        store_lanes(b.gates.row(0), G, lanes(s), p.gates + token * G, G);
        if constexpr (Cell::kHasCellState) {
          store_lanes(b.c.row(0), H, lanes(s), p.cells + token * H, H);
        }
      }
      const Lanes ending{s.ending - s.begin, s.end - s.begin};
      store_lanes(h, H, ending, p.h_n + s.ending * H, H);
      if constexpr (Cell::kHasCellState) {
        store_lanes(b.c.row(0), H, ending, p.c_n + s.ending * H, H);
        if (!kept && position + 1 == p.chunk.end) {
          store_lanes(b.c.row(0), H, lanes(s), p.cells + s.begin * H, H);
        }
      }
    }
  }

  // Where the gates of a pair lie in the tile of their matmul, and its angle.
  template <int S, int GATE>
  static ROTCELL_INLINE T* tile_units(ForwardBlocks& b, int64_t pair_of_group) {
    using Order = PairOrder<Cell, S, fed_by<Cell>(GATE)>;
    return b.tile.row(GroupOrder<Cell, S>::template first_row<Order>(pair_of_group) +
                      Order::place(GATE));
  }
  template <int S>
  static ROTCELL_INLINE T* tile_angle(ForwardBlocks& b, int64_t pair_of_group) {
    using Order = PairOrder<Cell, S, FedBy::kBoth>;
    return b.tile.row(GroupOrder<Cell, S>::template first_row<Order>(pair_of_group) +
                      Order::kAnglePlace);
  }

  // Where the gates of a pair lie that stage S uses: in the tile of their matmul, or waiting.
  template <int S, int GATE>
  static ROTCELL_INLINE T* gate_units(ForwardBlocks& b, int64_t pair_of_group, int64_t unit,
                                      int64_t units) {
    if constexpr (Cell::matmul(GATE) == S) {
      return tile_units<S, GATE>(b, pair_of_group);
    } else {
      return b.waiting.row(GATE * units + unit);
    }
  }

  // Activates the gates of a pair in place.
  template <int S, GateActivation FUNCTION>
  static ROTCELL_INLINE void activate_pair(const Call& call, ForwardBlocks& b,
                                           int64_t pair_of_group, int64_t unit) {
    const int64_t H = call.hidden, units = 2 * pairs_of(H);
    const bool whole = unit + 1 < H, kept = call.keep == Keep::kForBackward;
#pragma GCC unroll 1
    for (int v = 0; v < kBlockVectors; ++v) {
      Gates a;
      for_gates<Cell>([&](auto gate) ROTCELL_LAMBDA_INLINE {
        constexpr int kGate = decltype(gate)::value;
        if constexpr (Cell::stage(kGate) == S) {
          a[kGate] = load_units(gate_units<S, kGate>(b, pair_of_group, unit, units), 0, v);
        } else if constexpr (Cell::matmul(kGate) == S) {
          store_units(b.waiting.row(kGate * units + unit), 0, v,
                      load_units(tile_units<S, kGate>(b, pair_of_group), 0, v));
        }
      });
      if constexpr (stage_turns<Cell, S>) {
        a.turns = load(tile_angle<S>(b, pair_of_group) + v * L);
      }
      activate<Cell, S, Math>({FUNCTION, call.activations.angles}, a);
      for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
        constexpr int kGate = decltype(gate)::value;
        store_units(gate_units<S, kGate>(b, pair_of_group, unit, units), 0, v, a[kGate]);
        if (kept) store_existing(b.gates.row(Rows::offset(kGate, H)), unit, v, a[kGate], whole);
      });
      if constexpr (stage_turns<Cell, S>) {
        store(tile_angle<S>(b, pair_of_group) + v * L, a.turns);
        if (kept && whole) store(b.gates.row(Rows::angles(H) + unit / 2) + v * L, a.turns);
      }
    }
  }

  // The cell state from the activations of a pair, and the result of the stage.
  template <int S>
  static ROTCELL_INLINE void forward_pair(ForwardBlocks& b, int64_t pair_of_group, int64_t unit,
                                          int64_t units, const T* h, T* results) {
#pragma GCC unroll 1
    for (int v = 0; v < kBlockVectors; ++v) {
      Gates a;
      for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
        constexpr int kGate = decltype(gate)::value;
        a[kGate] = load_units(gate_units<S, kGate>(b, pair_of_group, unit, units), 0, v);
      });
      if constexpr (stage_turns<Cell, S>) {
        a.turns = load(tile_angle<S>(b, pair_of_group) + v * L);
      }
      P h_before{}, c{};
      if constexpr (Cell::kReadsOutput) h_before = load_units(h, unit, v);
      if constexpr (Cell::kHasCellState && S == kLast) {
        c = Cell::template cell_state<Math>(a, load_units(b.c.row(0), unit, v));
        store_units(b.c.row(0), unit, v, c);
      }
      store_units(results, unit, v, Cell::template result<Math>(Stage<S>{}, a, h_before, c));
    }
  }

  // Steps whose weight gradients are made at once, so that a tile of them is loaded once for all.
  static constexpr int kGradientSteps = 4;

  struct BackwardBlocks {
    Block<T> gates, c, c_before, h_before, grad_out;
    Block<T> grad_h, grad_c, grad_second_operand, second_operand;
    Block<T> grad_h_before, grad_c_before;  // kept by rows that are not alive
    Block<T> grad_gates;                    // [kGradientSteps][G], rows in the order of matmuls
    Block<T> grad_x;
    Block<T> grad_bias;  // the sum of grad_gates, if the bias is of rows

    BackwardBlocks(const Call& call, int64_t units)
        : gates(Rows::count(call.hidden)),
          c(Cell::kHasCellState ? units : 0),
          c_before(Cell::kHasCellState ? units : 0),
          h_before(Cell::kReadsOutput ? units : 0),
          grad_out(units),
          grad_h(units),
          grad_c(Cell::kHasCellState ? units : 0),
          grad_second_operand(Cell::kStages > 1 ? units : 0),
          second_operand(Cell::kStages > 1 ? units : 0),
          grad_h_before(units),
          grad_c_before(Cell::kHasCellState ? units : 0),
          grad_gates(kGradientSteps * Rows::count(call.hidden)),
          grad_x(call.inputs),
          grad_bias(call.bias_of == BiasOf::kRow ? Rows::count(call.hidden) : 0) {}
  };

  // What the weights were multiplied with, a row for every token of a few steps: [x, h, 1] for the
  // first matmul, [x, operand, 1] for the second, filled up with zeros.
  struct Factors {
    int64_t width;
    Block<T> rows;  // [kStages][kGradientSteps * BR][width]
    int64_t blocks = 0;

    Factors(int64_t inputs, int64_t outputs)
        : width(gradient_width<T>(inputs, outputs)), rows(Cell::kStages * kGradientSteps * width) {}
    const T* of_matmul(int matmul) const { return rows.row(matmul * kGradientSteps * width); }
    T* row(int matmul, int64_t lane) {
      return rows.row(matmul * kGradientSteps * width) + (blocks * BR + lane) * width;
    }
  };

  static void backward_block(const Backward<T>& p, RowRange rows, int64_t slot) {
    const Call& call = p.call;
    const int64_t H = call.hidden, I = call.inputs, G = Rows::count(H);
    const int64_t units = 2 * pairs_of(H);
    const bool adds_grad_out = p.output_gradient == OutputGradient::kGiven;
    const bool makes_weight_gradient = p.weight_gradient == WeightGradient::kBySlot;
    const bool makes_input_gradient = p.input_gradient == InputGradient::kByStep;
    const int64_t tiles =
        Cell::kStages * TileCut{H}.tiles + (makes_input_gradient ? TileCut{I}.tiles : 0);
    BackwardBlocks b(call, units);
    Factors factors(makes_weight_gradient ? I : 0, makes_weight_gradient ? H : 0);
    const Lanes all{0, rows.end - rows.begin};
    load_lanes(p.grad_h + rows.begin * H, H, H, all, b.grad_h.row(0));
    if constexpr (Cell::kHasCellState) {
      load_lanes(p.grad_c + rows.begin * H, H, H, all, b.grad_c.row(0));
    }
    for_row_bias(p, rows, b, [&](T* block, int64_t columns, const T* given) {
      load_lanes(given, G, columns, all, block);
    });
    int64_t alive_before = 0, carried_later = 0;
    for (int64_t position = p.chunk.end - 1; position >= p.chunk.begin; --position) {
      const RowStep s(call.steps, rows, position);
      const int64_t alive = s.end - s.begin, token = s.step.token + s.begin;
      if (alive <= 0) continue;
      // Activations of 0 in rows that are not alive keep their gradients finite.
      if (alive < alive_before) b.gates.clear();
      alive_before = alive;
      load_lanes(p.gates + token * G, G, G, lanes(s), b.gates.row(0));
      if constexpr (Cell::kHasCellState) {
        if (carried_later == alive) {
          b.c.swap(b.c_before);  // the cell state before the step after this one
        } else {
          load_lanes(p.cells + token * H, H, H, lanes(s), b.c.row(0));
        }
        load_state(s, p.cells, p.c0, H, b.c_before.row(0));
        carried_later = s.carried_end - s.begin;
      }
      if constexpr (Cell::kReadsOutput) load_state(s, p.out, p.h0, H, b.h_before.row(0));
      if (adds_grad_out) load_lanes(p.grad_out + token * H, H, H, lanes(s), b.grad_out.row(0));
      const bool some_wait = alive < all.count();
      if (some_wait) {
        std::memcpy(b.grad_h_before.row(0), b.grad_h.row(0), units * BR * sizeof(T));
        if constexpr (Cell::kHasCellState) {
          std::memcpy(b.grad_c_before.row(0), b.grad_c.row(0), units * BR * sizeof(T));
        }
      }

      Prefetches soon;
      if (position > p.chunk.begin) prefetch_step(p, RowStep(call.steps, rows, position - 1), soon);
      soon.spread_over(tiles);

      T* grads = b.grad_gates.row(factors.blocks * G);
      const T* weights = p.recurrent;
      const T* weights_of_stage[Cell::kStages];
      for_stages<Cell>([&](auto stage) {
        weights_of_stage[stage()] = weights;
        weights += fed_by_h<stage()>(H) * H;
      });
      for_stages_back<Cell>([&](auto stage) {
        constexpr int S = decltype(stage)::value;
        with_gate_function(call.activations.gates, [&](auto function) {
          for (int64_t unit = 0; unit < H; unit += 2) {
            backward_pair<S, function()>(call, b, grads, unit, adds_grad_out);
          }
        });
        if (units > H) {
          if constexpr (Cell::kHasCellState) fill_row(b.grad_c.row(H), T(0));
          if constexpr (Cell::kReadsOutput) fill_row(b.grad_h.row(H), T(0));
        }
        const int64_t first_fed = first_grad<S>(H) + fed_by_input_only<S>(H);
        const Operand<T> of_matmul{grads + first_fed * BR, fed_by_h<S>(H)};
        const Operand<T> none{nullptr, 0};
        if constexpr (S > 0) {
          multiply_block<T, TileStart::kZero>(weights_of_stage[S], H, of_matmul, none,
                                              b.grad_second_operand.row(0), soon);
        } else if constexpr (Cell::kReadsOutput) {
          multiply_block<T, TileStart::kResult>(weights_of_stage[S], H, of_matmul, none,
                                                b.grad_h.row(0), soon);
        } else {
          multiply_block<T, TileStart::kZero>(weights_of_stage[S], H, of_matmul, none,
                                              b.grad_h.row(0), soon);
        }
      });
      if (makes_input_gradient) {
        multiply_block<T, TileStart::kZero>(weights, I, Operand<T>{grads, Rows::of_input(H)},
                                            Operand<T>{nullptr, 0}, b.grad_x.row(0), soon);
        store_lanes(b.grad_x.row(0), I, lanes(s), p.grad_x + token * I, I);
      }
      if (some_wait) {
        keep_other_lanes(b.grad_h.row(0), b.grad_h_before.row(0), units, alive);
        if constexpr (Cell::kHasCellState) {
          keep_other_lanes(b.grad_c.row(0), b.grad_c_before.row(0), units, alive);
        }
      }
      if (call.bias_of == BiasOf::kRow) add_lanes(grads, G, alive, b.grad_bias.row(0));
      if (makes_weight_gradient) {
        add_factors(p, b, s, factors);
        if (++factors.blocks == kGradientSteps) add_weight_gradient(p, b, factors, slot);
      }
    }
    if (makes_weight_gradient) add_weight_gradient(p, b, factors, slot);
    for_row_bias(p, rows, b, [&](T* block, int64_t columns, T* given) {
      store_lanes(block, columns, all, given, G);
    });
    store_lanes(b.grad_h.row(0), H, all, p.grad_h + rows.begin * H, H);
    if constexpr (Cell::kHasCellState) {
      store_lanes(b.grad_c.row(0), H, all, p.grad_c + rows.begin * H, H);
    }
  }

  // body(block, columns, first of these columns in the caller's order) for every run of columns of
  // the gradient of the rows' biases, if they have any.
  template <class Body>
  static void for_row_bias(const Backward<T>& p, RowRange rows, BackwardBlocks& b,
                           const Body& body) {
    if (p.call.bias_of == BiasOf::kLayer) return;
    const int64_t H = p.call.hidden, G = Rows::count(H);
    int64_t first = 0;
    for_grad_runs(H, [&](const RowRun& run) {
      body(b.grad_bias.row(first), run.rows, p.grad_row_bias + rows.begin * G + run.first);
      first += run.rows;
    });
  }

  // What the backward pass reads and writes of a step.
  static void prefetch_step(const Backward<T>& p, const RowStep& s, Prefetches& soon) {
    const int64_t H = p.call.hidden, I = p.call.inputs, G = Rows::count(H);
    const int64_t token = s.step.token + s.begin, alive = s.end - s.begin;
    soon.add(p.gates + token * G, alive * G);
    if constexpr (Cell::kHasCellState) {
      soon.add(p.cells + (s.step.token_before + s.begin) * H, (s.carried_end - s.begin) * H);
    }
    if (p.output_gradient == OutputGradient::kGiven) soon.add(p.grad_out + token * H, alive * H);
    if (p.input_gradient == InputGradient::kByStep) soon.add(p.grad_x + token * I, alive * I);
    if (p.weight_gradient == WeightGradient::kBySlot) {
      soon.add(p.x + token * I, alive * I);
      soon.add(p.out + (s.step.token_before + s.begin) * H, (s.carried_end - s.begin) * H);
    }
  }

  // Where the rows of a matmul begin among the gradients of the gates.
  template <int S>
  static int64_t first_grad(int64_t hidden) {
    int64_t first = 0;
    for (int matmul = 0; matmul < S; ++matmul) first += Rows::of_matmul(matmul, hidden);
    return first;
  }

  // Columns of a matmul that x alone feeds, and those that h feeds.
  template <int S>
  static ROTCELL_INLINE int64_t fed_by_input_only(int64_t hidden) {
    return PairOrder<Cell, S, FedBy::kInput>::kGates * hidden;
  }
  template <int S>
  static ROTCELL_INLINE int64_t fed_by_h(int64_t hidden) {
    return Rows::of_matmul(S, hidden) - fed_by_input_only<S>(hidden);
  }

  // Where the gradients of a gate begin, in the order of for_grad_runs: of the columns of a matmul
  // that are fed alike, in torch's order, the angles are last.
  template <int GATE>
  static ROTCELL_INLINE int64_t grad_of_gate(int64_t hidden) {
    constexpr int kMatmul = Cell::matmul(GATE);
    constexpr FedBy kFed = fed_by<Cell>(GATE);
    int64_t first = first_grad<kMatmul>(hidden);
    if (kFed != FedBy::kInput) first += fed_by_input_only<kMatmul>(hidden);
    if (kFed == FedBy::kHidden) first += PairOrder<Cell, kMatmul, FedBy::kBoth>::kGates * hidden;
    return first + PairOrder<Cell, kMatmul, kFed>::position(GATE) * hidden;
  }
  static ROTCELL_INLINE int64_t grad_of_angles(int64_t hidden) {
    return MatmulGates<Cell, kAngleMatmul>::kGates * hidden;
  }

  template <int S, GateActivation FUNCTION>
  static ROTCELL_INLINE void backward_pair(const Call& call, BackwardBlocks& b, T* grads,
                                           int64_t unit, bool adds_grad_out) {
    const int64_t H = call.hidden;
    const bool whole = unit + 1 < H;
#pragma GCC unroll 1
    for (int v = 0; v < kBlockVectors; ++v) {
      Gates a, d;
      for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
        a[gate] = load_existing(b.gates.row(Rows::offset(gate, H)), unit, v, whole);
      });
      if constexpr (stage_turns<Cell, S>) {
        a.turns = whole ? load(b.gates.row(Rows::angles(H) + unit / 2) + v * L) : Vec<T>{};
      }
      PairState<Math> s{};
      P dh_before{}, dc{};
      if constexpr (Cell::kReadsOutput) {
        s.h_before = load_units(b.h_before.row(0), unit, v);
        if constexpr (S < kLast) dh_before = load_units(b.grad_h.row(0), unit, v);
      }
      if constexpr (Cell::kHasCellState) {
        s.c_before = load_units(b.c_before.row(0), unit, v);
        s.c = load_units(b.c.row(0), unit, v);
        dc = load_units(b.grad_c.row(0), unit, v);
      }
      P d_result;
      if constexpr (S == kLast) {
        d_result = load_units(b.grad_h.row(0), unit, v);
        if (adds_grad_out) d_result = d_result + load_units(b.grad_out.row(0), unit, v);
      } else {
        d_result = load_units(b.grad_second_operand.row(0), unit, v);
      }
      Cell::template backward<Math>(Stage<S>{}, a, s, d_result, dh_before, dc, d);
      through_activations<Cell, S, Math>({FUNCTION, call.activations.angles}, a, d);
      if constexpr (Cell::kHasCellState) store_units(b.grad_c.row(0), unit, v, dc);
      if constexpr (Cell::kReadsOutput) store_units(b.grad_h.row(0), unit, v, dh_before);
      for_stage_gates<Cell, S>([&](auto gate) ROTCELL_LAMBDA_INLINE {
        store_existing(grads + grad_of_gate<decltype(gate)::value>(H) * BR, unit, v, d[gate],
                       whole);
      });
      if constexpr (stage_turns<Cell, S>) {
        if (whole) store(grads + (grad_of_angles(H) + unit / 2) * BR + v * L, d.turns);
      }
      if constexpr (S < kLast) {
        store_units(b.second_operand.row(0), unit, v,
                    Cell::template result<Math>(Stage<S>{}, a, s.h_before, s.c));
      }
    }
  }

  static void add_factors(const Backward<T>& p, BackwardBlocks& b, const RowStep& s,
                          Factors& factors) {
    const int64_t H = p.call.hidden, I = p.call.inputs, alive = s.end - s.begin;
    for (int64_t lane = 0; lane < BR; ++lane) {
      const int64_t row = s.begin + lane;
      for (int matmul = 0; matmul < Cell::kStages; ++matmul) {
        T* target = factors.row(matmul, lane);
        if (lane >= alive) {  // adds nothing
          std::memset(static_cast<void*>(target), 0, factors.width * sizeof(T));
          continue;
        }
        copy_row(p.x + (s.step.token + row) * I, I, target);
        if (matmul == 0) copy_row(s.before(p.out, p.h0, row, H), H, target + I);
        target[I + H] = T(1);
      }
    }
    if constexpr (Cell::kStages > 1) {
      store_lanes(b.second_operand.row(0), H, lanes(s), factors.row(1, 0) + I, factors.width);
    }
  }

  static void add_weight_gradient(const Backward<T>& p, BackwardBlocks& b, Factors& factors,
                                  int64_t slot) {
    const int64_t H = p.call.hidden, G = Rows::count(H), width = factors.width;
    T* gradient = p.grad_weights + slot * G * width;
    int64_t first = 0;
    for (int matmul = 0; matmul < Cell::kStages; ++matmul) {
      for_grad_runs(matmul, H, [&](const RowRun& run) {
        add_outer_product(b.grad_gates.row(first), G * BR, run.rows, factors.of_matmul(matmul),
                          factors.blocks, width, gradient + run.first * width);
        first += run.rows;
      });
    }
    factors.blocks = 0;
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
