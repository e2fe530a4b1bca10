// RotLSTM over a whole sequence, forward and backward, for one thread's rows of the batch.
#pragma once

#include "cells/rot_lstm.h"
#include "cpu/product.h"
#include "cpu/row_steps.h"
#include "cpu/vector_math.h"

namespace rotcell::cpu::ROTCELL_ISA {

template <class T>
struct RotLstmSequence {
  using Cell = RotLstmCell<VectorMath<T>>;
  using Rows = RotLstmRows;
  using P = Pair<Vec<T>>;

  static void forward(const LstmForward<T>& p, RowRange rows) {
    const int64_t gate_rows = Rows::count(p.hidden);
    const Panels<T> recurrent{p.recurrent, p.outputs, gate_rows};
    const Panels<T> projection{p.projection, p.hidden, p.outputs};
    const auto cell_row = [&](int64_t token, int64_t row) {
      return p.cells + (p.save ? token + row : row) * p.hidden;
    };
    for (int64_t position = 0; position < p.steps.count; ++position) {
      const RowStep s = row_step(p.steps, rows, position);
      T* out = p.out + s.token * p.outputs;
      T* gates = p.gates + s.token * gate_rows;
      multiply(p.out + (s.token_before + s.begin) * p.outputs, p.outputs, s.carried_end - s.begin,
               recurrent, gates + s.begin * gate_rows, gate_rows, true);
      multiply(p.h0 + s.carried_end * p.outputs, p.outputs, s.end - s.carried_end, recurrent,
               gates + s.carried_end * gate_rows, gate_rows, true);
      T* hidden = p.projection ? p.unprojected : out;
      for (int64_t row = s.begin; row < s.end; ++row) {
        const T* c_prev =
            row < s.carried_end ? cell_row(s.token_before, row) : p.c0 + row * p.hidden;
        forward_row(p.hidden, p.save, gates + row * gate_rows, c_prev, cell_row(s.token, row),
                    hidden + row * p.hidden);
      }
      if (p.projection) {
        multiply(hidden + s.begin * p.hidden, p.hidden, s.end - s.begin, projection,
                 out + s.begin * p.outputs, p.outputs, false);
      }
      const int64_t finished = s.end - s.finished_begin;
      copy_rows(out + s.finished_begin * p.outputs, p.h_n + s.finished_begin * p.outputs, finished,
                p.outputs);
      copy_rows(cell_row(s.token, s.finished_begin), p.c_n + s.finished_begin * p.hidden, finished,
                p.hidden);
    }
  }

  static void backward(const LstmBackward<T>& p, RowRange rows) {
    const int64_t gate_rows = Rows::count(p.hidden);
    const Panels<T> recurrent{p.recurrent, gate_rows, p.outputs};
    const Panels<T> projection{p.projection, p.outputs, p.hidden};
    for (int64_t position = p.steps.count - 1; position >= 0; --position) {
      const RowStep s = row_step(p.steps, rows, position);
      if (p.projection) {
        T* grad_projected = p.grad_projected + s.token * p.outputs;
        for (int64_t row = s.begin; row < s.end; ++row) {
          add_rows(p.grad_h + row * p.outputs, grad_out_row(p, s.token + row),
                   grad_projected + row * p.outputs, p.outputs);
        }
        multiply(grad_projected + s.begin * p.outputs, p.outputs, s.end - s.begin, projection,
                 p.grad_unprojected + s.begin * p.hidden, p.hidden, false);
      }
      for (int64_t row = s.begin; row < s.end; ++row) {
        const int64_t token = s.token + row;
        const T* c_prev = row < s.carried_end ? p.cells + (s.token_before + row) * p.hidden
                                              : p.c0 + row * p.hidden;
        const T* grad_hidden =
            p.projection ? p.grad_unprojected + row * p.hidden : p.grad_h + row * p.hidden;
        backward_row(p.hidden, p.gates + token * gate_rows, c_prev, p.cells + token * p.hidden,
                     grad_hidden, p.projection ? nullptr : grad_out_row(p, token),
                     p.grad_c + row * p.hidden, p.grad_gates + token * gate_rows,
                     p.projection ? p.unprojected + token * p.hidden : nullptr);
      }
      multiply(p.grad_gates + (s.token + s.begin) * gate_rows, gate_rows, s.end - s.begin,
               recurrent, p.grad_h + s.begin * p.outputs, p.outputs, false);
    }
  }

 private:
  static const T* grad_out_row(const LstmBackward<T>& p, int64_t token) {
    return p.grad_out ? p.grad_out + token * p.outputs : nullptr;
  }

  static void add_rows(const T* a, const T* b, T* sum, int64_t width) {
    for (int64_t i = 0; i < width; ++i) sum[i] = b ? a[i] + b[i] : a[i];
  }

  static ROTCELL_INLINE T* gate(T* gates, Rows::Gate which, int64_t hidden) {
    return gates + Rows::offset(which, hidden);
  }
  static ROTCELL_INLINE const T* gate(const T* gates, Rows::Gate which, int64_t hidden) {
    return gates + Rows::offset(which, hidden);
  }

  static void forward_row(int64_t hidden, bool save,
                          T* gates,         // [G]
                          const T* c_prev,  // [H]
                          T* c,             // [H]; may be c_prev
                          T* h              // [H]
  ) {
    for_pairs<T>(hidden, [&](int64_t unit, int64_t units, int64_t angles) ROTCELL_LAMBDA_INLINE {
      const auto preactivation = [&](Rows::Gate which) {
        return load_pairs(gate(gates, which, hidden) + unit, units);
      };
      T* rot = gates + Rows::angles(hidden) + unit / 2;
      const auto a = Cell::activate({preactivation(Rows::kInput), preactivation(Rows::kForget),
                                     preactivation(Rows::kCandidate), preactivation(Rows::kOutput),
                                     load_angles(rot, angles)});
      const P c_new = Cell::next_cell(a, load_pairs(c_prev + unit, units));
      store_pairs(c + unit, c_new, units);
      store_pairs(h + unit, Cell::output(a, c_new), units);
      if (save) store_gates(gates, a, hidden, unit, units, angles);
    });
  }

  static void backward_row(int64_t hidden,
                           const T* gates,     // [G] activations
                           const T* c_prev,    // [H]
                           const T* c,         // [H]
                           const T* grad_h,    // [H]
                           const T* grad_out,  // [H], added to grad_h, or null
                           T* grad_c,          // [H]: of c, becomes that of c_prev
                           T* grad_gates,      // [G]
                           T* h                // [H]: the output again, or null: not wanted
  ) {
    for_pairs<T>(hidden, [&](int64_t unit, int64_t units, int64_t angles) ROTCELL_LAMBDA_INLINE {
      const auto activation = [&](Rows::Gate which) {
        return load_pairs(gate(gates, which, hidden) + unit, units);
      };
      const typename Cell::Gates a = {activation(Rows::kInput), activation(Rows::kForget),
                                      activation(Rows::kCandidate), activation(Rows::kOutput),
                                      load_first(gates + Rows::angles(hidden) + unit / 2, angles)};
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
    store_pairs(gate(gates, Rows::kInput, hidden) + unit, a.i, units);
    store_pairs(gate(gates, Rows::kForget, hidden) + unit, a.f, units);
    store_pairs(gate(gates, Rows::kCandidate, hidden) + unit, a.g, units);
    store_pairs(gate(gates, Rows::kOutput, hidden) + unit, a.o, units);
    store_first(gates + Rows::angles(hidden) + unit / 2, a.rot, angles);
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
