// RotGRU over a whole sequence, forward and backward, for one thread's rows of the batch.
#pragma once

#include "cells/rot_gru.h"
#include "cpu/product.h"
#include "cpu/row_steps.h"
#include "cpu/vector_math.h"

namespace rotcell::cpu::ROTCELL_ISA {

// Rows of the weights that enter one product together.
struct RotGruPart {
  int64_t first_row, rows;
};

// The candidate's product waits for the others, so the weights are packed in three parts.
struct RotGruParts {
  using Gates = RotGruRows;
  static_assert(Gates::kReset == 0 && Gates::kUpdate == 1, "reset and update are one run of rows");

  RotGruPart gates, angles, candidate;

  explicit RotGruParts(int64_t hidden)
      : gates{Gates::offset(Gates::kReset, hidden), 2 * hidden},
        angles{Gates::angles(hidden), hidden / 2},
        candidate{Gates::offset(Gates::kCandidate, hidden), hidden} {}

  struct List {
    RotGruPart parts[3];
    const RotGruPart* begin() const { return parts; }
    const RotGruPart* end() const { return parts + 3; }
  };
  // In the order in which they are packed.
  static List all(int64_t hidden) {
    const RotGruParts p(hidden);
    return {{p.gates, p.angles, p.candidate}};
  }
};

template <class T>
struct RotGruSequence {
  using Cell = RotGruCell<VectorMath<T>>;
  using Gates = RotGruRows;
  using P = Pair<Vec<T>>;

  static void forward(const GruForward<T>& p, RowRange rows) {
    const int64_t H = p.hidden, gate_rows = Gates::count(H), depth = p.inputs + H;
    const RotGruParts parts(H);
    const Panels<T> gate_weights{p.weights, depth, parts.gates.rows};
    const Panels<T> angle_weights{after(gate_weights), depth, parts.angles.rows};
    const Panels<T> candidate_weights{after(angle_weights), depth, parts.candidate.rows};
    const bool gates_are_kept = p.save || !p.x;

    for (int64_t position = 0; position < p.steps.count; ++position) {
      const RowStep s = row_step(p.steps, rows, position);
      T* gates = p.gates + (gates_are_kept ? s.token * gate_rows : 0);
      T* out = p.out + s.token * H;
      const T* carried = p.out + s.token_before * H;
      const auto preactivations = [&](const T* memory, int64_t begin, int64_t end,
                                      const Panels<T>& weights, int64_t column) {
        T* target = gates + begin * gate_rows + column;
        const Rows<T> x{p.x + (s.token + begin) * p.inputs, p.inputs, p.inputs};
        const Addend<T> bias{p.bias ? p.bias + column : nullptr, 0};
        multiply(x, Rows<T>{memory + begin * H, H, H}, end - begin, weights,
                 p.x ? bias : Addend<T>{target, gate_rows}, target, gate_rows);
      };
      preactivations(carried, s.begin, s.carried_end, gate_weights, parts.gates.first_row);
      preactivations(carried, s.begin, s.carried_end, angle_weights, parts.angles.first_row);
      preactivations(p.h0, s.carried_end, s.end, gate_weights, parts.gates.first_row);
      preactivations(p.h0, s.carried_end, s.end, angle_weights, parts.angles.first_row);
      const auto h_prev = [&](int64_t row) {
        return (row < s.carried_end ? carried : p.h0) + row * H;
      };
      for (int64_t row = s.begin; row < s.end; ++row) {
        reset_row(H, p.save, gates + row * gate_rows, h_prev(row), p.rotated + row * H);
      }
      preactivations(p.rotated, s.begin, s.end, candidate_weights, parts.candidate.first_row);
      for (int64_t row = s.begin; row < s.end; ++row) {
        update_row(H, p.save, gates + row * gate_rows, h_prev(row), out + row * H);
      }
      copy_rows(out + s.finished_begin * H, p.h_n + s.finished_begin * H, s.end - s.finished_begin,
                H);
    }
  }

  static void backward(const GruBackward<T>& p, RowRange rows) {
    const int64_t H = p.hidden, gate_rows = Gates::count(H);
    const RotGruParts parts(H);
    const Panels<T> gate_weights{p.recurrent, parts.gates.rows, H};
    const Panels<T> angle_weights{after(gate_weights), parts.angles.rows, H};
    const Panels<T> candidate_weights{after(angle_weights), parts.candidate.rows, H};
    const Panels<T> input{p.input, gate_rows, p.inputs};

    for (int64_t position = p.piece.end - 1; position >= p.piece.begin; --position) {
      const RowStep s = row_step(p.steps, rows, position);
      const int64_t count = s.end - s.begin, first_token = s.token + s.begin;
      const T* gates = p.gates + s.token * gate_rows;
      T* grad_gates = p.grad_gates + (s.token - p.piece.first_token) * gate_rows;
      T* rotated = p.rotated + (s.token - p.piece.first_token) * H;
      T* grad_h = p.grad_h + s.begin * H;
      const T* carried = p.out + s.token_before * H;
      const auto h_prev = [&](int64_t row) {
        return (row < s.carried_end ? carried : p.h0) + row * H;
      };
      const auto grad_rows = [&](const RotGruPart& part) {
        return Rows<T>{grad_gates + s.begin * gate_rows + part.first_row, gate_rows, part.rows};
      };
      for (int64_t row = s.begin; row < s.end; ++row) {
        update_backward_row(H, gates + row * gate_rows, h_prev(row),
                            p.grad_out ? p.grad_out + (s.token + row) * H : nullptr,
                            p.grad_h + row * H, grad_gates + row * gate_rows);
      }
      multiply(grad_rows(parts.candidate), count, candidate_weights, Addend<T>{},
               rotated + s.begin * H, H);
      for (int64_t row = s.begin; row < s.end; ++row) {
        reset_backward_row(H, gates + row * gate_rows, h_prev(row), rotated + row * H,
                           p.grad_h + row * H, grad_gates + row * gate_rows);
      }
      multiply(grad_rows(parts.gates), count, gate_weights, Addend<T>{grad_h, H}, grad_h, H);
      multiply(grad_rows(parts.angles), count, angle_weights, Addend<T>{grad_h, H}, grad_h, H);
      if (p.input) {
        multiply(grad_rows({0, gate_rows}), count, input, Addend<T>{},
                 p.grad_x + first_token * p.inputs, p.inputs);
      }
    }
  }

 private:
  static const T* after(const Panels<T>& panels) {
    return panels.data + panel_elements<T>(panels.depth, panels.columns);
  }

  static void reset_row(int64_t hidden, bool save,
                        T* gates,         // [G]
                        const T* h_prev,  // [H]
                        T* rotated        // [H]
  ) {
    T* reset = gates + Gates::offset(Gates::kReset, hidden);
    T* rot = gates + Gates::angles(hidden);
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
    T* update = gates + Gates::offset(Gates::kUpdate, hidden);
    T* candidate = gates + Gates::offset(Gates::kCandidate, hidden);
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
    const int64_t update = Gates::offset(Gates::kUpdate, hidden);
    const int64_t candidate = Gates::offset(Gates::kCandidate, hidden);
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
    const int64_t reset = Gates::offset(Gates::kReset, hidden);
    const int64_t rot = Gates::angles(hidden);
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
