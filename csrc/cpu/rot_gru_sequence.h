// RotGRU over a whole sequence, forward and backward: one thread's work.
#pragma once

#include "cells/rot_gru.h"
#include "cpu/product.h"
#include "cpu/row_steps.h"
#include "cpu/unit_runs.h"
#include "cpu/vector_math.h"

namespace rotcell::cpu::ROTCELL_ISA {

template <class T>
struct RotGruSequence {
  using Cell = RotGruCell<VectorMath<T>>;
  using Gates = RotGruRows;
  using P = Pair<Vec<T>>;

  static void forward(const GruForward<T>& p, const Work& work) {
    const int64_t H = p.hidden, gate_rows = Gates::count(H), depth = p.inputs + H;
    const UnitRange units = work.units;
    const RowRuns runs = gru_runs_before_candidate(H, units);
    const RowRun candidate = gru_candidate_run(H, units);
    const T* weights = nullptr;
    const T* candidate_weights = nullptr;
    if (!p.unpacked) {
      weights = candidate_weights = p.weights + depth * Gates::count(units.begin);
      for (const RowRun& run : runs) candidate_weights += panel_elements<T>(depth, run.rows);
    }
    const bool gates_are_kept = p.save || !p.x;

    for (int64_t position = 0; position < p.steps.count; ++position) {
      const RowStep s = row_step(p.steps, work.rows, position);
      T* gates = p.gates + (gates_are_kept ? s.token * gate_rows : 0);
      T* out = p.out + s.token * H;
      const T* carried = p.out + s.token_before * H;
      const auto preactivations = [&](const T* memory, int64_t begin, int64_t end, const T* panels,
                                      const RowRun& run) {
        T* target = gates + begin * gate_rows + run.first;
        const Rows<T> memory_rows{memory + begin * H, H, H};
        if (p.unpacked) {
          multiply_unpacked(memory_rows, end - begin, p.unpacked + run.first * H, run.rows,
                            Addend<T>{target, gate_rows}, target, gate_rows);
          return;
        }
        const Rows<T> x{p.x + (s.token + begin) * p.inputs, p.inputs, p.inputs};
        const Addend<T> bias{p.bias ? p.bias + run.first : nullptr, 0};
        multiply(x, memory_rows, end - begin, Panels<T>{panels, depth, run.rows},
                 p.x ? bias : Addend<T>{target, gate_rows}, target, gate_rows);
      };
      const T* panels = weights;
      for (const RowRun& run : runs) {
        preactivations(carried, s.begin, s.carried_end, panels, run);
        preactivations(p.h0, s.carried_end, s.end, panels, run);
        if (panels) panels += panel_elements<T>(depth, run.rows);
      }
      const auto h_prev = [&](int64_t row) {
        return (row < s.carried_end ? carried : p.h0) + row * H;
      };
      for (int64_t row = s.begin; row < s.end; ++row) {
        reset_row(H, units, p.save, gates + row * gate_rows, h_prev(row), p.rotated + row * H);
      }
      wait_for_others(work);  // the candidate needs all of the rotated state
      preactivations(p.rotated, s.begin, s.end, candidate_weights, candidate);
      for (int64_t row = s.begin; row < s.end; ++row) {
        update_row(H, units, p.save, gates + row * gate_rows, h_prev(row), out + row * H);
      }
      wait_for_others(work);  // the next step needs all of h; and h_n may be h0
      copy_rows(out + s.finished_begin * H, p.h_n + s.finished_begin * H, s.end - s.finished_begin,
                H, units);
    }
  }

  // If it makes the gradient of x, all units are one thread's.
  static void backward(const GruBackward<T>& p, const Work& work) {
    const int64_t H = p.hidden, gate_rows = Gates::count(H);
    const UnitRange units = work.units;
    const int64_t columns = units.end - units.begin;
    const RowRuns runs = gru_runs_before_candidate(H, {0, H});
    const RowRun candidate = gru_candidate_run(H, {0, H});
    const T* weights = nullptr;
    const T* candidate_weights = nullptr;
    if (!p.unpacked) {
      weights = candidate_weights = p.recurrent + gate_rows * units.begin;
      for (const RowRun& run : runs) candidate_weights += panel_elements<T>(run.rows, columns);
    }
    const Panels<T> input{p.input, gate_rows, p.inputs};

    for (int64_t position = p.piece.end - 1; position >= p.piece.begin; --position) {
      const RowStep s = row_step(p.steps, work.rows, position);
      const int64_t count = s.end - s.begin, first_token = s.token + s.begin;
      const T* gates = p.gates + s.token * gate_rows;
      T* grad_gates = p.grad_gates + (s.token - p.piece.first_token) * gate_rows;
      T* rotated = p.rotated + (s.token - p.piece.first_token) * H;
      T* grad_h = p.grad_h + s.begin * H + units.begin;
      const T* carried = p.out + s.token_before * H;
      const auto h_prev = [&](int64_t row) {
        return (row < s.carried_end ? carried : p.h0) + row * H;
      };
      const auto grad_rows = [&](const RowRun& run) {
        return Rows<T>{grad_gates + s.begin * gate_rows + run.first, gate_rows, run.rows};
      };
      for (int64_t row = s.begin; row < s.end; ++row) {
        update_backward_row(H, units, gates + row * gate_rows, h_prev(row),
                            p.grad_out ? p.grad_out + (s.token + row) * H : nullptr,
                            p.grad_h + row * H, grad_gates + row * gate_rows);
      }
      const auto back = [&](const RowRun& run, const T* panels, const Addend<T>& addend,
                            T* result) {
        if (p.unpacked) {
          multiply_unpacked_back(grad_rows(run), count, p.unpacked + run.first * H + units.begin, H,
                                 columns, addend, result, H);
        } else {
          multiply(grad_rows(run), count, Panels<T>{panels, run.rows, columns}, addend, result, H);
        }
      };
      wait_for_others(work);  // what the candidate saw of a unit went into all candidates
      back(candidate, candidate_weights, Addend<T>{}, rotated + s.begin * H + units.begin);
      for (int64_t row = s.begin; row < s.end; ++row) {
        reset_backward_row(H, units, gates + row * gate_rows, h_prev(row), rotated + row * H,
                           p.grad_h + row * H, grad_gates + row * gate_rows);
      }
      wait_for_others(work);  // every unit's gradient comes from all gates
      const T* panels = weights;
      for (const RowRun& run : runs) {
        back(run, panels, Addend<T>{grad_h, H}, grad_h);
        if (panels) panels += panel_elements<T>(run.rows, columns);
      }
      if (p.input) {
        multiply(grad_rows({0, gate_rows}), count, input, Addend<T>{},
                 p.grad_x + first_token * p.inputs, p.inputs);
      }
    }
  }

 private:
  static void reset_row(int64_t hidden, UnitRange range, bool save,
                        T* gates,         // [G]
                        const T* h_prev,  // [H]
                        T* rotated        // [H]
  ) {
    T* reset = gates + Gates::offset(Gates::kReset, hidden);
    T* rot = gates + Gates::angles(hidden);
    for_pairs<T>(range, [&](int64_t unit, int64_t units, int64_t angles) ROTCELL_LAMBDA_INLINE {
      const auto a = Cell::activate(typename Cell::Reset{load_pairs(reset + unit, units),
                                                         load_angles(rot + unit / 2, angles)});
      store_pairs(rotated + unit, Cell::rotated(a, load_pairs(h_prev + unit, units)), units);
      if (save) {
        store_pairs(reset + unit, a.r, units);
        store_first(rot + unit / 2, a.rot, angles);
      }
    });
  }

  static void update_row(int64_t hidden, UnitRange range, bool save,
                         T* gates,         // [G]
                         const T* h_prev,  // [H]
                         T* h              // [H]
  ) {
    T* update = gates + Gates::offset(Gates::kUpdate, hidden);
    T* candidate = gates + Gates::offset(Gates::kCandidate, hidden);
    for_pairs<T>(range, [&](int64_t unit, int64_t units, int64_t) ROTCELL_LAMBDA_INLINE {
      const auto a = Cell::activate(typename Cell::Update{load_pairs(update + unit, units),
                                                          load_pairs(candidate + unit, units)});
      store_pairs(h + unit, Cell::next_hidden(a, load_pairs(h_prev + unit, units)), units);
      if (save) {
        store_pairs(update + unit, a.z, units);
        store_pairs(candidate + unit, a.n, units);
      }
    });
  }

  static void update_backward_row(int64_t hidden, UnitRange range,
                                  const T* gates,     // [G] activations
                                  const T* h_prev,    // [H]
                                  const T* grad_out,  // [H], added to grad_h, or null
                                  T* grad_h,     // [H]: of h, becomes the direct part of h_prev's
                                  T* grad_gates  // [G]: update and candidate are written
  ) {
    const int64_t update = Gates::offset(Gates::kUpdate, hidden);
    const int64_t candidate = Gates::offset(Gates::kCandidate, hidden);
    for_pairs<T>(range, [&](int64_t unit, int64_t units, int64_t) ROTCELL_LAMBDA_INLINE {
      const typename Cell::Update a = {load_pairs(gates + update + unit, units),
                                       load_pairs(gates + candidate + unit, units)};
      P dh = load_pairs(grad_h + unit, units);
      if (grad_out) dh = dh + load_pairs(grad_out + unit, units);
      P dh_prev;
      const auto d = Cell::backward(a, load_pairs(h_prev + unit, units), dh, dh_prev);
      store_pairs(grad_gates + update + unit, d.z, units);
      store_pairs(grad_gates + candidate + unit, d.n, units);
      store_pairs(grad_h + unit, dh_prev, units);
    });
  }

  static void reset_backward_row(int64_t hidden, UnitRange range,
                                 const T* gates,   // [G] activations
                                 const T* h_prev,  // [H]
                                 T* rotated,       // [H]: its gradient, becomes its value
                                 T* grad_h,        // [H]: of h_prev, added to
                                 T* grad_gates     // [G]: reset and angles are written
  ) {
    const int64_t reset = Gates::offset(Gates::kReset, hidden);
    const int64_t rot = Gates::angles(hidden);
    for_pairs<T>(range, [&](int64_t unit, int64_t units, int64_t angles) ROTCELL_LAMBDA_INLINE {
      const typename Cell::Reset a = {load_pairs(gates + reset + unit, units),
                                      load_first(gates + rot + unit / 2, angles)};
      const P h = load_pairs(h_prev + unit, units);
      P dh_prev = load_pairs(grad_h + unit, units);
      const auto d = Cell::backward(a, h, load_pairs(rotated + unit, units), dh_prev);
      store_pairs(grad_gates + reset + unit, d.r, units);
      store_first(grad_gates + rot + unit / 2, d.rot, angles);
      store_pairs(grad_h + unit, dh_prev, units);
      store_pairs(rotated + unit, Cell::rotated(a, h), units);
    });
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
