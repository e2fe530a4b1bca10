// Any cell over a chunk of a sequence, forward and backward: one thread's work.
#pragma once

#include "cpu/loops/kernels.h"
#include "cpu/loops/row_maths.h"
#include "cpu/loops/row_runs.h"
#include "cpu/loops/row_step.h"
#include "cpu/loops/state_hooks.h"
#include "cpu/loops/units.h"
#include "cpu/matmul/packed.h"
#include "cpu/matmul/unpacked.h"

namespace rotcell::cpu::ROTCELL_ISA {

// Calls body(function as a compile-time constant), so that its loops have no branch.
template <class Body>
ROTCELL_INLINE void with_gate_function(GateActivation function, const Body& body) {
  if (function == GateActivation::kHardSigmoid) {
    body(Constant<GateActivation, GateActivation::kHardSigmoid>{});
  } else {
    body(Constant<GateActivation, GateActivation::kSigmoid>{});
  }
}

// Copies some columns of rows that are `width` wide.
template <class T>
inline void copy_rows(const T* from, T* to, int64_t rows, int64_t width, UnitRange columns) {
  if (from == to || rows <= 0) return;
  const int64_t count = columns.end - columns.begin;
  if (count == width) {
    std::memcpy(to, from, rows * width * sizeof(T));
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * width + columns.begin;
    std::memcpy(to + first, from + first, count * sizeof(T));
  }
}
// The same, rounded.
inline void copy_rows(const float* from, BFloat16* to, int64_t rows, int64_t width,
                      UnitRange columns) {
  constexpr int L = kLanes<BFloat16>;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = columns.begin; i < columns.end; i += L) {
      const int64_t at = row * width + i;
      store_first(to + at, load_first(from + at, columns.end - i), columns.end - i);
    }
  }
}

// A stage's math on one row of units.
template <class T, class Cell>
struct PairMaths {
  using Number = MathType<T>;
  using Math = VectorMath<Number>;
  static constexpr int K = Cell::Rotation::kUnits;
  using P = Group<Vec<T>, K>;
  using Gates = GateValues<Cell, Math>;
  using Row = GateRow<T, Cell>;

  struct Forward {
    int64_t hidden;
    UnitRange units;
    GateActivation angles;
    Keep keep;
    const Number* preactivations;  // [G]: of the stage's gates
    T* gates;                      // [G]: activations, if kept; may be preactivations
    const T* h_before;             // [H], if the cell reads it
    const Number* c_before;        // [H], if the cell has a cell state, as for c
    Number* c;                     // [H]: written by the last stage; may be c_before
    T* result;                     // [H]
  };

  template <int S, GateActivation function>
  static void forward(const Forward& p) {
    for_groups<T, K>(p.units, [&](const GroupVector& v) ROTCELL_LAMBDA_INLINE {
      Gates a;
      Row::template load_preactivations<S>(p.preactivations, p.hidden, v, a);
      activate<Cell, S, Math>({function, p.angles}, a);
      P h_before{}, c{};
      if constexpr (Cell::kReadsOutput) h_before = load_groups<K>(p.h_before + v.unit, v.units);
      if constexpr (Cell::kHasCellState && S == Cell::kStages - 1) {
        c = Cell::template cell_state<Math>(a, load_groups<K>(p.c_before + v.unit, v.units));
        store_groups(p.c + v.unit, c, v.units);
      }
      store_groups(p.result + v.unit, Cell::template result<Math>(Stage<S>{}, a, h_before, c),
                   v.units);
      if (p.keep == Keep::kForBackward) Row::template save<S>(p.gates, p.hidden, v, a);
    });
  }

  // Which result of a stage is recomputed.
  enum class Recompute { kNothing, kOperand };

  struct Backward {
    int64_t hidden;
    UnitRange units;
    GateActivation angles;
    OutputGradient output_gradient;  // whether grad_out is added to the gradient of the result
    Recompute again;
    const T* gates;             // [G] activations
    const T* h_before;          // [H], if the cell reads it
    const T* c_before;          // [H], if the cell has a cell state, as for c and grad_c
    const T* c;                 // [H]
    const T* grad_out;          // [H], if given
    const Number* grad_result;  // [H]
    Number* grad_h;             // [H]: of h_before, if the cell reads it: what passes no matmul
    Number* grad_c;             // [H]: of c, becomes that of c_before
    T* grad_gates;              // [G]: the stage's gates are written
    T* result;                  // [H]: the stage's result, if wanted again
  };

  // Recomputes the new cell state [H] from activations and the old one.
  template <GateActivation>
  __attribute__((noinline)) static void recompute_cell_state(const Backward& p, T* c) {
    for_groups<T, K>(p.units, [&](const GroupVector& v) ROTCELL_LAMBDA_INLINE {
      Gates a;
      Row::template load_saved<Cell::kStages - 1>(p.gates, p.hidden, v, a);
      const P before = load_groups<K>(p.c_before + v.unit, v.units);
      store_groups(c + v.unit, Cell::template cell_state<Math>(a, before), v.units);
    });
  }

  template <int S, GateActivation function>
  static void backward(const Backward& p) {
    for_groups<T, K>(p.units, [&](const GroupVector& v) ROTCELL_LAMBDA_INLINE {
      Gates a, d;
      Row::template load_saved<S>(p.gates, p.hidden, v, a);
      GroupState<Math, K> s{};
      P dh_before{}, dc{};
      if constexpr (Cell::kReadsOutput) {
        s.h_before = load_groups<K>(p.h_before + v.unit, v.units);
        if constexpr (S < Cell::kStages - 1) dh_before = load_groups<K>(p.grad_h + v.unit, v.units);
      }
      if constexpr (Cell::kHasCellState) {
        s.c_before = load_groups<K>(p.c_before + v.unit, v.units);
        s.c = load_groups<K>(p.c + v.unit, v.units);
        dc = load_groups<K>(p.grad_c + v.unit, v.units);
      }
      P d_result = load_groups<K>(p.grad_result + v.unit, v.units);
      if constexpr (S == Cell::kStages - 1) {
        if (p.output_gradient == OutputGradient::kGiven) {
          d_result = d_result + load_groups<K>(p.grad_out + v.unit, v.units);
        }
      }
      Cell::template backward<Math>(Stage<S>{}, a, s, d_result, dh_before, dc, d);
      through_activations<Cell, S, Math>({function, p.angles}, a, d);
      if constexpr (Cell::kHasCellState) store_groups(p.grad_c + v.unit, dc, v.units);
      if constexpr (Cell::kReadsOutput) store_groups(p.grad_h + v.unit, dh_before, v.units);
      Row::template store<S>(p.grad_gates, p.hidden, v, d);
      if (p.again == Recompute::kOperand) {
        store_groups(p.result + v.unit, Cell::template result<Math>(Stage<S>{}, a, s.h_before, s.c),
                     v.units);
      }
    });
  }
};

template <class T, class Cell>
struct Sequence {
  using Number = MathType<T>;
  using CellRow = std::conditional_t<RowCell<Cell>, RowMaths<T, Cell>, PairMaths<T, Cell>>;
  static constexpr int kLast = Cell::kStages - 1;

  // With a projection all units are one thread's.
  static void forward(const Forward<T>& p, const Work& work) {
    const Call& call = p.call;
    const int64_t H = call.hidden, G = CellRows<Cell>::count(H);
    const UnitRange units = math_units(work, H);
    const bool projected = call.projection == Projection::kPresent;
    const bool by_step = call.matmuls == MatmulMode::kByStep;
    const bool keeps_gates = call.keep == Keep::kForBackward;
    const bool keeps_cells = call.keep != Keep::kNothing;
    // Rounded gates and cell states are kept in addition to a step's exact ones.
    const bool gates_in_place = keeps_gates && !kRoundsStored<T>;
    const bool cells_in_place = keeps_cells && !kRoundsStored<T>;
    const bool hooked = p.hooks.what.any();
    const int64_t inputs = by_step ? call.inputs : 0;
    for (int64_t position = p.chunk.begin; position < p.chunk.end; ++position) {
      const RowStep s(call.steps, math_rows(work), position);
      const RowStep all = of_matmuls(s, call, work, position);
      const auto gate_row = [&](int64_t row) {
        const int64_t token = s.step.token + row;
        if (gates_in_place) return p.preactivations + token * G;
        return p.preactivations + (by_step ? row : token - p.chunk.first_token) * G;
      };
      T* out = p.out + s.step.token * call.outputs;
      T* hidden_rows = projected ? p.unprojected : out;
      const auto c_before = [&](int64_t row) -> const Number* {
        if constexpr (!kRoundsStored<T>) {
          if (cells_in_place) return s.before(p.cells, p.c0, row, H);
        }
        return p.c + row * H;
      };
      // The new cell state of the first row.
      Number* const c_after = [&] {
        if constexpr (!kRoundsStored<T>) {
          if (cells_in_place) return p.cells + s.step.token * H;
        }
        return p.c;
      }();
      const HookedStep<T> hooks(p.hooks, call, s, units);
      if (hooked) {
        hooks.enter_h([&](int64_t row) { return s.before(p.out, p.h0, row, call.outputs); },
                      p.hooks.masked_h);
        if constexpr (Cell::kHasCellState) hooks.enter_c(c_before, p.hooks.c);
        wait(call, work);  // the matmul needs all of h
      }
      const bool packed = call.matmuls != MatmulMode::kUnpacked;
      const PanelOrder order = position % 2 == 0 ? PanelOrder::kUp : PanelOrder::kDown;
      const T* panels = nullptr;  // of the next run
      if (packed) {
        panels = p.weights;
        for_runs<Cell>(H, {0, work.units.begin}, call.hidden_feeds, [&](const RowRun& run) {
          panels += panel_elements<T>(run.depth<T>(inputs, call.outputs), run.rows);
        });
      }

      // gates = what x gives + operand rows [begin, end) x weights, for the rows of a matmul.
      const auto multiply_rows = [&](const T* operand, int64_t width, int64_t begin, int64_t end,
                                     const RowRun& run) {
        if (!run.from_h && !by_step) return;
        Number* gates = gate_row(begin) + run.first;
        if constexpr (std::is_same_v<T, float>) {
          if (p.int8) {
            p.int8->multiply(operand + begin * width, end - begin, p.int8->w_hh, run.first_hh,
                             run.rows, {gates, G}, gates, G, work.slot);
            return;
          }
        }
        const Rows<T> rows{operand + begin * width, width, run.from_h ? width : 0};
        if (!packed) {
          if constexpr (!kRoundsStored<T>) {
            add_unpacked(rows, end - begin, p.w_hh + run.first_hh * width, run.rows, gates, G,
                         unpacked_rows(call.steps.batch));
          }
        } else {
          const Panels<T> weights{panels, run.depth<T>(inputs, width), run.rows};
          const int64_t token = s.step.token + begin - p.chunk.first_token;
          const Rows<T> x{by_step ? p.x + token * inputs : rows.data, inputs,
                          run.from_x ? inputs : 0};
          Addend<T> addend{gates, G};
          if (by_step) {
            addend = call.bias_of == BiasOf::kRow ? Addend<T>{p.bias + begin * G + run.first, G}
                                                  : Addend<T>{p.bias + run.first, 0};
          }
          multiply(x, rows, end - begin, weights, addend, gates, G, order);
        }
      };
      for_stages<Cell>([&](auto stage) {
        constexpr int S = decltype(stage)::value;
        for (const RowRun& run : runs_of_matmul<Cell>(S, H, work.units, call.hidden_feeds)) {
          if constexpr (S == 0) {
            // Changed states lie together.
            const T* carried =
                hooked ? p.hooks.masked_h : p.out + s.step.token_before * call.outputs;
            const int64_t carried_end = hooked ? all.end : all.carried_end;
            multiply_rows(carried, call.outputs, all.begin, carried_end, run);
            multiply_rows(p.h0, call.outputs, carried_end, all.end, run);
          } else {
            multiply_rows(p.second_operand, H, all.begin, all.end, run);
          }
          if (packed) panels += panel_elements<T>(run.depth<T>(inputs, call.outputs), run.rows);
        }
        if constexpr (RowCell<Cell>) wait(call, work);  // the math needs all columns of a row
        T* results = S == kLast ? hidden_rows : p.second_operand;
        with_gate_function(call.activations.gates, [&](auto function) {
          for (int64_t row = s.begin; row < s.end; ++row) {
            typename CellRow::Forward at{
                .hidden = H,
                .units = units,
                .angles = call.activations.angles,
                .keep = call.keep,
                .preactivations = gate_row(row),
                .gates = keeps_gates ? p.gates + (s.step.token + row) * G : nullptr,
                .result = results + row * H};
            if constexpr (Cell::kReadsOutput) {
              at.h_before = hooked ? (S < kLast ? p.hooks.masked_h : p.hooks.h) + row * H
                                   : s.before(p.out, p.h0, row, H);
            }
            if constexpr (Cell::kHasCellState) {
              at.c_before = hooked ? p.hooks.c + row * H : c_before(row);
              at.c = c_after + row * H;
            }
            if constexpr (RowCell<Cell>) at.pointers = {p.row, work.slot, row};
            CellRow::template forward<S, function()>(at);
          }
        });
        if constexpr (S < kLast) wait(call, work);  // the next matmul needs all of the operands
      });
      if (projected) project(p, hidden_rows, s, out, work);
      if (hooked) {
        hooks.mix_h(out);
        if constexpr (Cell::kHasCellState) {
          hooks.mix_c(c_after);
        }
      }
      if constexpr (Cell::kHasCellState && kRoundsStored<T>) {
        if (keeps_cells) {
          copy_rows(p.c + s.begin * H, p.cells + (s.step.token + s.begin) * H, s.end - s.begin, H,
                    units);
        }
      }
      wait(call, work);  // the next step needs all of h
      const int64_t ending = s.end - s.ending;
      copy_rows(out + s.ending * call.outputs, p.h_n + s.ending * call.outputs, ending,
                call.outputs, projected ? UnitRange{0, call.outputs} : units);
      if constexpr (Cell::kHasCellState) {
        copy_rows(c_after + s.ending * H, p.c_n + s.ending * H, ending, H, units);
      }
    }
  }

  // out [B, P] = hidden_rows [B, H] x w_hr^T, for the rows of a thread at a step.
  static void project(const Forward<T>& p, const T* hidden_rows, const RowStep& s, T* out,
                      const Work& work) {
    const int64_t H = p.call.hidden, P = p.call.outputs;
    if constexpr (std::is_same_v<T, float>) {
      if (p.int8) {
        p.int8->multiply(hidden_rows + s.begin * H, s.end - s.begin, p.int8->w_hr, 0, P, {},
                         out + s.begin * P, P, work.slot);
        return;
      }
    }
    multiply(Rows<T>{hidden_rows + s.begin * H, H, H}, s.end - s.begin,
             Panels<T>{p.projection, H, P}, Addend<T>{}, out + s.begin * P, P);
  }

  // With a projection, or if it makes the gradient of x, all units are one thread's.
  static void backward(const Backward<T>& p, const Work& work) {
    using Recompute = typename CellRow::Recompute;
    const Call& call = p.call;
    const int64_t H = call.hidden, G = CellRows<Cell>::count(H), outputs = call.outputs;
    const UnitRange units = math_units(work, H), target_units = work.units;
    const bool projected = call.projection == Projection::kPresent;
    const int64_t columns = projected ? outputs : target_units.end - target_units.begin;
    const bool hooked = p.hooks.what.any(), zoneout_c = p.hooks.what.zoneout_c;
    int64_t recurrent_rows = 0;
    for_runs<Cell>(H, {0, H}, call.hidden_feeds, [&](const RowRun& run) {
      if (run.from_h) recurrent_rows += packed_depth<T>(run.rows);
    });
    // With a projection or zoneout it is added earlier.
    const bool adds_grad_out =
        p.output_gradient == OutputGradient::kGiven && !projected && !p.hooks.what.zoneout_h;
    // The gradient of the first matmul's operand.
    Number* grad_masked_h = hooked ? p.hooks.grad_masked_h : p.grad_h;
    for (int64_t position = p.chunk.end - 1; position >= p.chunk.begin; --position) {
      const RowStep s(call.steps, math_rows(work), position);
      const RowStep all = of_matmuls(s, call, work, position);
      const int64_t count = all.end - all.begin, token = s.step.token;
      T* grad_gates = p.grad_gates + (token - p.chunk.first_token) * G;
      T* second_operand = nullptr;
      if constexpr (Cell::kStages > 1)
        second_operand = p.second_operand + (token - p.chunk.first_token) * H;
      const auto grad_rows = [&](const RowRun& run) {
        return Rows<T>{grad_gates + all.begin * G + run.first, G, run.rows};
      };
      T* masked_h = nullptr;  // [B, P]
      if (hooked) masked_h = p.hooks.masked_h + (token - p.chunk.first_token) * outputs;
      const HookedStep<T> hooks(p.hooks, call, s, units);
      if constexpr (Cell::kHasCellState) {
        if (p.cell_state_gradient == CellStateGradient::kEveryStep) add_grad_cells(p, s, units);
      }
      if (hooked) {
        hooks.enter_h([&](int64_t row) { return s.before(p.out, p.h0, row, outputs); }, masked_h);
        hooks.split_h(p.grad_h, p.output_gradient, p.grad_out);
        if constexpr (Cell::kReadsOutput) hooks.clear_grad_masked_h();
        if constexpr (Cell::kHasCellState) {
          hooks.enter_c([&](int64_t row) { return s.before(p.cells, p.c0, row, H); },
                        p.hooks.stored_c);
          hooks.split_c(p.grad_c);
        }
      }
      if (projected) project_back(p, s);
      for_stages_back<Cell>([&](auto stage) {
        constexpr int S = decltype(stage)::value;
        const bool wants_result = S < kLast || projected;
        with_gate_function(call.activations.gates, [&](auto function) {
          for (int64_t row = s.begin; row < s.end; ++row) {
            typename CellRow::Backward at{
                .hidden = H,
                .units = units,
                .angles = call.activations.angles,
                .output_gradient = adds_grad_out ? OutputGradient::kGiven : OutputGradient::kZero,
                .again = wants_result ? Recompute::kOperand : Recompute::kNothing,
                .gates = p.gates + (token + row) * G,
                .grad_gates = grad_gates + row * G};
            if constexpr (S == kLast) {
              if (adds_grad_out) at.grad_out = p.grad_out + (token + row) * outputs;
              at.grad_result = (projected ? p.grad_unprojected : p.grad_h) + row * H;
              if (projected) at.result = p.unprojected + (token + row) * H;
            } else {
              at.grad_result = p.grad_second_operand + row * H;
              at.result = second_operand + row * H;
            }
            if constexpr (Cell::kReadsOutput) {
              at.h_before = hooked ? (S < kLast ? masked_h : p.hooks.h) + row * H
                                   : s.before(p.out, p.h0, row, H);
              at.grad_h = (S < kLast ? grad_masked_h : p.grad_h) + row * H;
            }
            if constexpr (RowCell<Cell>) at.pointers = {p.row, work.slot, row};
            if constexpr (Cell::kHasCellState) {
              at.c_before = hooked ? p.hooks.stored_c + row * H : s.before(p.cells, p.c0, row, H);
              at.c = p.cells + (token + row) * H;
              at.grad_c = p.grad_c + row * H;
              if (zoneout_c) {
                T* unmixed = p.hooks.c_unmixed + row * H;
                CellRow::template recompute_cell_state<function()>(at, unmixed);
                at.c = unmixed;
              }
            }
            CellRow::template backward<S, function()>(at);
          }
        });
        wait(call, work);  // the gates of all units read the matmul's operand
        if (call.hidden_feeds == HiddenFeeds::kNothing)
          return clear_rows(s, grad_masked_h, outputs);
        const int64_t width = S == 0 ? outputs : H;
        Number* target = (S == 0 ? grad_masked_h : p.grad_second_operand) + all.begin * width +
                         target_units.begin;
        // The gradient that reaches the old output past the matmuls is already in the target.
        Addend<T> addend =
            S == 0 && Cell::kReadsOutput ? Addend<T>{target, width} : Addend<T>{nullptr, 0};
        const bool packed = call.matmuls != MatmulMode::kUnpacked;
        const T* panels = nullptr;
        if (packed) {
          panels = p.recurrent + recurrent_rows * target_units.begin +
                   packed_before<S>(H, columns, call.hidden_feeds);
        }
        for (const RowRun& run : runs_of_matmul<Cell>(S, H, {0, H}, call.hidden_feeds)) {
          if (!run.from_h) continue;
          if (!packed) {
            if constexpr (!kRoundsStored<T>) {
              multiply_unpacked_back(grad_rows(run), count,
                                     p.w_hh + run.first_hh * outputs + target_units.begin, outputs,
                                     columns, addend, target, width);
            }
          } else {
            multiply(grad_rows(run), count, Panels<T>{panels, run.rows, columns}, addend, target,
                     width);
            panels += panel_elements<T>(run.rows, columns);
          }
          addend = {target, width};
        }
      });
      if constexpr (RowCell<Cell>) wait(call, work);  // the math needs all of the gradient of h
      if (hooked) {
        hooks.leave_h(p.grad_h, Cell::kReadsOutput);
        if constexpr (Cell::kHasCellState) hooks.leave_c(p.grad_c);
      }
      if (p.input_gradient == InputGradient::kByStep) {
        const int64_t rows = CellRows<Cell>::of_input(H);
        multiply(Rows<T>{grad_gates + all.begin * G, G, rows}, count,
                 Panels<T>{p.w_ih, rows, call.inputs}, Addend<T>{},
                 p.grad_x + (token + all.begin) * call.inputs, call.inputs);
      }
    }
  }

 private:
  // What a thread does apart from matmuls: all rows and some units or, if the math sees whole rows,
  // some rows and all units.
  static RowRange math_rows(const Work& work) { return RowCell<Cell> ? work.math_rows : work.rows; }
  static UnitRange math_units(const Work& work, int64_t hidden) {
    return RowCell<Cell> ? UnitRange{0, hidden} : work.units;
  }
  static RowStep of_matmuls(const RowStep& of_math, const Call& call, const Work& work,
                            int64_t position) {
    if constexpr (RowCell<Cell>) return RowStep(call.steps, work.rows, position);
    return of_math;
  }

  static void wait(const Call& call, const Work& work) {
    if (!all_units(call.hidden, work.units)) work.barrier->wait();
  }

  __attribute__((noinline)) static void add_grad_cells(const Backward<T>& p, const RowStep& s,
                                                       UnitRange units) {
    const int64_t H = p.call.hidden;
    for (int64_t row = s.begin; row < s.end; ++row) {
      const T* given = p.grad_cells + (s.step.token + row) * H;
      Number* grad_c = p.grad_c + row * H;
      for (int64_t i = units.begin; i < units.end; ++i) grad_c[i] += given[i];
    }
  }

  // The gradient of an old output that entered no matmul.
  static void clear_rows(const RowStep& s, Number* grad, int64_t width) {
    std::memset(grad + s.begin * width, 0, (s.end - s.begin) * width * sizeof(Number));
  }

  // Elements of the panels of the matmuls before the S-th, for the backward pass.
  template <int S>
  static int64_t packed_before(int64_t hidden, int64_t columns, HiddenFeeds feeds) {
    int64_t elements = 0;
    for (int matmul = 0; matmul < S; ++matmul) {
      for (const RowRun& run : runs_of_matmul<Cell>(matmul, hidden, {0, hidden}, feeds)) {
        if (run.from_h) elements += panel_elements<T>(run.rows, columns);
      }
    }
    return elements;
  }

  // The whole gradient of the projected outputs, and that of what was projected.
  static void project_back(const Backward<T>& p, const RowStep& s) {
    const int64_t outputs = p.call.outputs, H = p.call.hidden;
    T* grad_projected = p.grad_projected + s.step.token * outputs;
    for (int64_t i = s.begin * outputs; i < s.end * outputs; ++i) {
      grad_projected[i] = p.output_gradient == OutputGradient::kGiven
                              ? p.grad_h[i] + p.grad_out[s.step.token * outputs + i]
                              : p.grad_h[i];
    }
    multiply(Rows<T>{grad_projected + s.begin * outputs, outputs, outputs}, s.end - s.begin,
             Panels<T>{p.projection, outputs, H}, Addend<T>{}, p.grad_unprojected + s.begin * H, H);
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
