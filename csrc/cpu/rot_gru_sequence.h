// RotGRU over a whole sequence, forward and backward, for one thread's rows of the batch.
#pragma once

#include "cells/rot_gru.h"
#include "cpu/product.h"
#include "cpu/row_steps.h"
#include "cpu/vector_math.h"

namespace rotcell::cpu::ROTCELL_ISA {

// The candidate's product waits for the others, so w_hh is packed in three parts: the rows of reset
// and update, those of the candidate, those of the angles.
template <class T>
struct RotGruWeights {
  using Rows = RotGruRows;

  struct Part {
    int64_t first_row, rows;
  };
  static Part gates(int64_t hidden) { return {Rows::offset(Rows::kReset, hidden), 2 * hidden}; }
  static Part candidate(int64_t hidden) { return {Rows::offset(Rows::kCandidate, hidden), hidden}; }
  static Part angles(int64_t hidden) { return {Rows::angles(hidden), hidden / 2}; }
  static_assert(Rows::kReset == 0 && Rows::kUpdate == 1, "reset and update are one run of rows");

  static int64_t forward_elements(int64_t rows, int64_t hidden) {
    return panel_elements<T>(hidden, rows);
  }
  static int64_t backward_elements(int64_t rows, int64_t hidden) {
    return panel_elements<T>(rows, hidden);
  }
};

template <class T>
struct RotGruSequence {
  using Cell = RotGruCell<VectorMath<T>>;
  using Rows = RotGruRows;
  using Weights = RotGruWeights<T>;
  using P = Pair<Vec<T>>;

  static void forward(const GruForward<T>& p, RowRange rows) {
    const int64_t H = p.hidden, gate_rows = Rows::count(H);
    const T* packed = p.recurrent;
    const Panels<T> gate_panels{packed, H, Weights::gates(H).rows};
    packed += Weights::forward_elements(Weights::gates(H).rows, H);
    const Panels<T> candidate_panels{packed, H, Weights::candidate(H).rows};
    packed += Weights::forward_elements(Weights::candidate(H).rows, H);
    const Panels<T> angle_panels{packed, H, Weights::angles(H).rows};

    for (int64_t position = 0; position < p.steps.count; ++position) {
      const RowStep s = row_step(p.steps, rows, position);
      T* gates = p.gates + s.token * gate_rows;
      T* out = p.out + s.token * H;
      const T* carried = p.out + s.token_before * H;
      const auto add_product = [&](const T* from, int64_t begin, int64_t end,
                                   const Panels<T>& panels, int64_t column) {
        multiply(from + begin * H, H, end - begin, panels, gates + begin * gate_rows + column,
                 gate_rows, true);
      };
      add_product(carried, s.begin, s.carried_end, gate_panels, Weights::gates(H).first_row);
      add_product(carried, s.begin, s.carried_end, angle_panels, Weights::angles(H).first_row);
      add_product(p.h0, s.carried_end, s.end, gate_panels, Weights::gates(H).first_row);
      add_product(p.h0, s.carried_end, s.end, angle_panels, Weights::angles(H).first_row);
      const auto h_prev = [&](int64_t row) {
        return (row < s.carried_end ? carried : p.h0) + row * H;
      };
      for (int64_t row = s.begin; row < s.end; ++row) {
        reset_row(H, p.save, gates + row * gate_rows, h_prev(row), p.rotated + row * H);
      }
      add_product(p.rotated, s.begin, s.end, candidate_panels, Weights::candidate(H).first_row);
      for (int64_t row = s.begin; row < s.end; ++row) {
        update_row(H, p.save, gates + row * gate_rows, h_prev(row), out + row * H);
      }
      copy_rows(out + s.finished_begin * H, p.h_n + s.finished_begin * H, s.end - s.finished_begin,
                H);
    }
  }

  static void backward(const GruBackward<T>& p, RowRange rows) {
    const int64_t H = p.hidden, gate_rows = Rows::count(H);
    const T* packed = p.recurrent;
    const Panels<T> gate_panels{packed, Weights::gates(H).rows, H};
    packed += Weights::backward_elements(Weights::gates(H).rows, H);
    const Panels<T> candidate_panels{packed, Weights::candidate(H).rows, H};
    packed += Weights::backward_elements(Weights::candidate(H).rows, H);
    const Panels<T> angle_panels{packed, Weights::angles(H).rows, H};

    for (int64_t position = p.steps.count - 1; position >= 0; --position) {
      const RowStep s = row_step(p.steps, rows, position);
      const int64_t count = s.end - s.begin;
      const T* gates = p.gates + s.token * gate_rows;
      T* grad_gates = p.grad_gates + s.token * gate_rows;
      T* rotated = p.rotated + s.token * H;
      const T* carried = p.out + s.token_before * H;
      const auto h_prev = [&](int64_t row) {
        return (row < s.carried_end ? carried : p.h0) + row * H;
      };
      for (int64_t row = s.begin; row < s.end; ++row) {
        update_backward_row(H, gates + row * gate_rows, h_prev(row),
                            p.grad_out ? p.grad_out + (s.token + row) * H : nullptr,
                            p.grad_h + row * H, grad_gates + row * gate_rows);
      }
      const T* first_grad = grad_gates + s.begin * gate_rows;
      multiply(first_grad + Weights::candidate(H).first_row, gate_rows, count, candidate_panels,
               rotated + s.begin * H, H, false);
      for (int64_t row = s.begin; row < s.end; ++row) {
        reset_backward_row(H, gates + row * gate_rows, h_prev(row), rotated + row * H,
                           p.grad_h + row * H, grad_gates + row * gate_rows);
      }
      multiply(first_grad + Weights::gates(H).first_row, gate_rows, count, gate_panels,
               p.grad_h + s.begin * H, H, true);
      multiply(first_grad + Weights::angles(H).first_row, gate_rows, count, angle_panels,
               p.grad_h + s.begin * H, H, true);
    }
  }

 private:
  static void reset_row(int64_t hidden, bool save,
                        T* gates,         // [G]
                        const T* h_prev,  // [H]
                        T* rotated        // [H]
  ) {
    T* reset = gates + Rows::offset(Rows::kReset, hidden);
    T* rot = gates + Rows::angles(hidden);
    for_pairs<T>(hidden, [&](int64_t unit, int64_t units, int64_t angles) ROTCELL_LAMBDA_INLINE {
      const auto a = Cell::activate(typename Cell::Reset{load_pairs(reset + unit, units),
                                                         load_angles(rot + unit / 2, angles)});
      store_pairs(rotated + unit, Cell::rotated(a, load_pairs(h_prev + unit, units)), units);
      if (save) {
        store_pairs(reset + unit, a.r, units);
        store_first(rot + unit / 2, a.rot, angles);
      }
    });
  }

  static void update_row(int64_t hidden, bool save,
                         T* gates,         // [G]
                         const T* h_prev,  // [H]
                         T* h              // [H]
  ) {
    T* update = gates + Rows::offset(Rows::kUpdate, hidden);
    T* candidate = gates + Rows::offset(Rows::kCandidate, hidden);
    for_pairs<T>(hidden, [&](int64_t unit, int64_t units, int64_t) ROTCELL_LAMBDA_INLINE {
      const auto a = Cell::activate(typename Cell::Update{load_pairs(update + unit, units),
                                                          load_pairs(candidate + unit, units)});
      store_pairs(h + unit, Cell::next_hidden(a, load_pairs(h_prev + unit, units)), units);
      if (save) {
        store_pairs(update + unit, a.z, units);
        store_pairs(candidate + unit, a.n, units);
      }
    });
  }

  static void update_backward_row(int64_t hidden,
                                  const T* gates,     // [G] activations
                                  const T* h_prev,    // [H]
                                  const T* grad_out,  // [H], added to grad_h, or null
                                  T* grad_h,     // [H]: of h, becomes the direct part of h_prev's
                                  T* grad_gates  // [G]: update and candidate are written
  ) {
    const int64_t update = Rows::offset(Rows::kUpdate, hidden);
    const int64_t candidate = Rows::offset(Rows::kCandidate, hidden);
    for_pairs<T>(hidden, [&](int64_t unit, int64_t units, int64_t) ROTCELL_LAMBDA_INLINE {
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

  static void reset_backward_row(int64_t hidden,
                                 const T* gates,   // [G] activations
                                 const T* h_prev,  // [H]
                                 T* rotated,       // [H]: its gradient, becomes its value
                                 T* grad_h,        // [H]: of h_prev, added to
                                 T* grad_gates     // [G]: reset and angles are written
  ) {
    const int64_t reset = Rows::offset(Rows::kReset, hidden);
    const int64_t rot = Rows::angles(hidden);
    for_pairs<T>(hidden, [&](int64_t unit, int64_t units, int64_t angles) ROTCELL_LAMBDA_INLINE {
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
