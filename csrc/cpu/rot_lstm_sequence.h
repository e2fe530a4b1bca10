// RotLSTM over a whole sequence, forward and backward: one thread's work.
#pragma once

#include "cells/rot_lstm.h"
#include "cpu/product.h"
#include "cpu/row_steps.h"
#include "cpu/unit_runs.h"
#include "cpu/vector_math.h"

namespace rotcell::cpu::ROTCELL_ISA {

template <class T>
struct RotLstmSequence {
  using Cell = RotLstmCell<VectorMath<T>>;
  using Gates = RotLstmRows;
  using P = Pair<Vec<T>>;

  // With a projection all units are one thread's.
  static void forward(const LstmForward<T>& p, const Work& work) {
    const int64_t gate_rows = Gates::count(p.hidden), depth = p.inputs + p.outputs;
    const UnitRange units = work.units;
    const RowRuns runs = lstm_runs(p.hidden, units);
    const T* weights = p.weights ? p.weights + depth * Gates::count(units.begin) : nullptr;
    const Panels<T> projection{p.projection, p.hidden, p.outputs};
    const bool gates_are_kept = p.save || !p.x;
    const auto gate_row = [&](int64_t token, int64_t row) {
      return p.gates + (gates_are_kept ? token + row : row) * gate_rows;
    };
    const auto cell_row = [&](int64_t token, int64_t row) {
      return p.cells + (p.save ? token + row : row) * p.hidden;
    };
    for (int64_t position = 0; position < p.steps.count; ++position) {
      const RowStep s = row_step(p.steps, work.rows, position);
      const auto preactivations = [&](const T* h_prev, int64_t begin, int64_t end) {
        const Rows<T> x{p.x + (s.token + begin) * p.inputs, p.inputs, p.inputs};
        const Rows<T> h{h_prev + begin * p.outputs, p.outputs, p.outputs};
        const T* panels = weights;
        for (const RowRun& run : runs) {
          T* gates = gate_row(s.token, begin) + run.first;
          const Addend<T> bias{p.bias ? p.bias + run.first : nullptr, 0};
          const Addend<T> addend = p.x ? bias : Addend<T>{gates, gate_rows};
          if (p.unpacked) {
            multiply_unpacked(h, end - begin, p.unpacked + run.first * p.outputs, run.rows, addend,
                              gates, gate_rows);
          } else {
            multiply(x, h, end - begin, Panels<T>{panels, depth, run.rows}, addend, gates,
                     gate_rows);
            panels += panel_elements<T>(depth, run.rows);
          }
        }
      };
      preactivations(p.out + s.token_before * p.outputs, s.begin, s.carried_end);
      preactivations(p.h0, s.carried_end, s.end);
      T* out = p.out + s.token * p.outputs;
      T* hidden = p.projection ? p.unprojected : out;
      for (int64_t row = s.begin; row < s.end; ++row) {
        const T* c_prev =
            row < s.carried_end ? cell_row(s.token_before, row) : p.c0 + row * p.hidden;
        forward_row(p.hidden, units, p.save, gate_row(s.token, row), c_prev, cell_row(s.token, row),
                    hidden + row * p.hidden);
      }
      if (p.projection) {
        multiply(Rows<T>{hidden + s.begin * p.hidden, p.hidden, p.hidden}, s.end - s.begin,
                 projection, Addend<T>{}, out + s.begin * p.outputs, p.outputs);
      }
      wait_for_others(work);  // the next step needs all of h; and h_n may be h0
      const int64_t finished = s.end - s.finished_begin;
      copy_rows(out + s.finished_begin * p.outputs, p.h_n + s.finished_begin * p.outputs, finished,
                p.outputs, p.projection ? UnitRange{0, p.outputs} : units);
      copy_rows(cell_row(s.token, s.finished_begin), p.c_n + s.finished_begin * p.hidden, finished,
                p.hidden, units);
    }
  }

  // With a projection, or if it makes the gradient of x, all units are one thread's.
  static void backward(const LstmBackward<T>& p, const Work& work) {
    const int64_t gate_rows = Gates::count(p.hidden);
    const UnitRange units = work.units;
    const Panels<T> recurrent{p.recurrent ? p.recurrent + gate_rows * units.begin : nullptr,
                              gate_rows, p.projection ? p.outputs : units.end - units.begin};
    const Panels<T> input{p.input, gate_rows, p.inputs};
    const Panels<T> projection{p.projection, p.outputs, p.hidden};
    for (int64_t position = p.piece.end - 1; position >= p.piece.begin; --position) {
      const RowStep s = row_step(p.steps, work.rows, position);
      const int64_t count = s.end - s.begin;
      T* grad_gates = p.grad_gates + (s.token - p.piece.first_token) * gate_rows;
      if (p.projection) {
        T* grad_projected = p.grad_projected + s.token * p.outputs;
        for (int64_t row = s.begin; row < s.end; ++row) {
          add_rows(p.grad_h + row * p.outputs, grad_out_row(p, s.token + row),
                   grad_projected + row * p.outputs, p.outputs);
        }
        multiply(Rows<T>{grad_projected + s.begin * p.outputs, p.outputs, p.outputs}, count,
                 projection, Addend<T>{}, p.grad_unprojected + s.begin * p.hidden, p.hidden);
      }
      for (int64_t row = s.begin; row < s.end; ++row) {
        const int64_t token = s.token + row;
        const T* c_prev = row < s.carried_end ? p.cells + (s.token_before + row) * p.hidden
                                              : p.c0 + row * p.hidden;
        const T* grad_hidden =
            p.projection ? p.grad_unprojected + row * p.hidden : p.grad_h + row * p.hidden;
        backward_row(p.hidden, units, p.gates + token * gate_rows, c_prev,
                     p.cells + token * p.hidden, grad_hidden,
                     p.projection ? nullptr : grad_out_row(p, token), p.grad_c + row * p.hidden,
                     grad_gates + row * gate_rows,
                     p.projection ? p.unprojected + token * p.hidden : nullptr);
      }
      wait_for_others(work);  // every unit's gradient comes from all gates
      const Rows<T> grad_rows{grad_gates + s.begin * gate_rows, gate_rows, gate_rows};
      T* grad_h = p.grad_h + s.begin * p.outputs + units.begin;
      if (p.unpacked) {
        multiply_unpacked_back(grad_rows, count, p.unpacked + units.begin, p.outputs,
                               recurrent.columns, Addend<T>{}, grad_h, p.outputs);
      } else {
        multiply(grad_rows, count, recurrent, Addend<T>{}, grad_h, p.outputs);
      }
      if (p.input) {
        multiply(grad_rows, count, input, Addend<T>{}, p.grad_x + (s.token + s.begin) * p.inputs,
                 p.inputs);
      }
    }
  }

 private:
  static const T* grad_out_row(const LstmBackward<T>& p, int64_t token) {
    return p.grad_out ? p.grad_out + token * p.outputs : nullptr;
  }

  static void add_rows(const T* a, const T* b, T* sum, int64_t width) {
    for (int64_t i = 0; i < width; ++i) sum[i] = b ? a[i] + b[i] : a[i];
  }

  static ROTCELL_INLINE T* gate(T* gates, Gates::Gate which, int64_t hidden) {
    return gates + Gates::offset(which, hidden);
  }
  static ROTCELL_INLINE const T* gate(const T* gates, Gates::Gate which, int64_t hidden) {
    return gates + Gates::offset(which, hidden);
  }

  static void forward_row(int64_t hidden, UnitRange range, bool save,
                          T* gates,         // [G]
                          const T* c_prev,  // [H]
                          T* c,             // [H]; may be c_prev
                          T* h              // [H]
  ) {
    for_pairs<T>(range, [&](int64_t unit, int64_t units, int64_t angles) ROTCELL_LAMBDA_INLINE {
      const auto preactivation = [&](Gates::Gate which) {
        return load_pairs(gate(gates, which, hidden) + unit, units);
      };
      T* rot = gates + Gates::angles(hidden) + unit / 2;
      const auto a = Cell::activate({preactivation(Gates::kInput), preactivation(Gates::kForget),
                                     preactivation(Gates::kCandidate),
                                     preactivation(Gates::kOutput), load_angles(rot, angles)});
      const P c_new = Cell::next_cell(a, load_pairs(c_prev + unit, units));
      store_pairs(c + unit, c_new, units);
      store_pairs(h + unit, Cell::output(a, c_new), units);
      if (save) store_gates(gates, a, hidden, unit, units, angles);
    });
  }

  static void backward_row(int64_t hidden, UnitRange range,
                           const T* gates,     // [G] activations
                           const T* c_prev,    // [H]
                           const T* c,         // [H]
                           const T* grad_h,    // [H]
                           const T* grad_out,  // [H], added to grad_h, or null
                           T* grad_c,          // [H]: of c, becomes that of c_prev
                           T* grad_gates,      // [G]
                           T* h                // [H]: the output again, or null: not wanted
  ) {
    for_pairs<T>(range, [&](int64_t unit, int64_t units, int64_t angles) ROTCELL_LAMBDA_INLINE {
      const auto activation = [&](Gates::Gate which) {
        return load_pairs(gate(gates, which, hidden) + unit, units);
      };
      const typename Cell::Gates a = {activation(Gates::kInput), activation(Gates::kForget),
                                      activation(Gates::kCandidate), activation(Gates::kOutput),
                                      load_first(gates + Gates::angles(hidden) + unit / 2, angles)};
      const P c_here = load_pairs(c + unit, units);
      P dh = load_pairs(grad_h + unit, units);
      if (grad_out) dh = dh + load_pairs(grad_out + unit, units);
      P dc = load_pairs(grad_c + unit, units);
      const auto d = Cell::backward(a, load_pairs(c_prev + unit, units), c_here, dh, dc);
      store_pairs(grad_c + unit, dc, units);
      store_gates(grad_gates, d, hidden, unit, units, angles);
      if (h) store_pairs(h + unit, Cell::output(a, c_here), units);
    });
  }

  static ROTCELL_INLINE void store_gates(T* gates, const typename Cell::Gates& a, int64_t hidden,
                                         int64_t unit, int64_t units, int64_t angles) {
    store_pairs(gate(gates, Gates::kInput, hidden) + unit, a.i, units);
    store_pairs(gate(gates, Gates::kForget, hidden) + unit, a.f, units);
    store_pairs(gate(gates, Gates::kCandidate, hidden) + unit, a.g, units);
    store_pairs(gate(gates, Gates::kOutput, hidden) + unit, a.o, units);
    store_first(gates + Gates::angles(hidden) + unit / 2, a.rot, angles);
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
