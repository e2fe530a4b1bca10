// The LSTM with layer norm of Ba et al., one row, one timestep, with a rotation U of its cell
// state:
//   a = LN(W_ih x) gain_ih + LN(W_hh h) gain_hh + b_ih + b_hh    over all rows of a weight together
//   c from these gates as in cells/lstm.h                         h = o tanh(LN(c) gain_c + bias_c)
// LN subtracts the mean and divides by the standard deviation. The c that is carried on is not
// normalized.
#pragma once

#include "cells/lstm.h"
#include "cells/row_cell.h"

namespace rotcell {

template <class RotationType>
struct LayerNormLstmMath {
  using Plain = Lstm<RotationType>;
  using Rotation = RotationType;

  // R, rows of each weight: gates as in the plain cell, then the angles.
  static ROTCELL_INLINE constexpr int64_t rows(int64_t hidden) {
    return CellRows<Plain>::count(hidden);
  }

  enum Block { kOfX, kOfH, kBlockCount };
  static ROTCELL_INLINE constexpr ColumnBlock block(int number, int64_t hidden) {
    return {number == kOfX ? FedBy::kInput : FedBy::kHidden, rows(hidden)};
  }

  static constexpr int kStages = 1;
  static constexpr bool kHasCellState = true, kReadsOutput = false, kCanProject = true;
  static constexpr bool kAddsBiases = true, kHasNorm = false;
  static ROTCELL_INLINE constexpr int64_t bias_columns(int64_t hidden) { return rows(hidden); }

  enum { kGainOfX, kGainOfH, kGainOfC, kBiasOfC, kParameterCount };
  static ROTCELL_INLINE constexpr RowParameter parameter(int number) {
    if (number == kGainOfX) return {"gain_ih", ParameterWidth::kInputRows, false};
    if (number == kGainOfH) return {"gain_hh", ParameterWidth::kInputRows, false};
    return {number == kGainOfC ? "gain_c" : "bias_c", ParameterWidth::kUnits, false};
  }

  // The sum of the biases.
  static ROTCELL_INLINE constexpr int64_t prepared(int64_t hidden, int64_t) { return rows(hidden); }
  template <class T>
  static ROTCELL_INLINE void prepare(const RowParameters<T>& p, T* to) {
    for (int64_t i = 0; i < rows(p.hidden); ++i) {
      to[i] = (p.b_ih ? p.b_ih[i] : T(0)) + (p.b_hh ? p.b_hh[i] : T(0));
    }
  }
  // Activated gates, and the gradient of LN(c).
  static ROTCELL_INLINE constexpr int64_t scratch(int64_t hidden) { return rows(hidden) + hidden; }

  static constexpr double kEps = 1e-5;

  // Mean and standard deviation of a row of numbers.
  template <class Row, class T>
  struct Norm {
    using V = typename Row::Math::Value;

    int64_t count;
    T mean, scale;  // scale: 1 / standard deviation

    ROTCELL_INLINE Norm(const T* numbers, int64_t n) : count(n) {
      V sum = Row::all(T(0)), squares = Row::all(T(0));
      Row::for_units(count,
                     [&](auto at) ROTCELL_LAMBDA_INLINE { sum = sum + Row::load(numbers, at); });
      mean = Row::sum(sum) / static_cast<T>(count);
      const V center = Row::all(mean);
      Row::for_units(count, [&](auto at) ROTCELL_LAMBDA_INLINE {
        const V d = Row::only(Row::load(numbers, at) - center, at);
        squares = squares + d * d;
      });
      const T variance = Row::sum(squares) / static_cast<T>(count);
      scale = T(1) / square_root(variance + static_cast<T>(kEps));
    }

    ROTCELL_INLINE V apply(V x) const { return (x - Row::all(mean)) * Row::all(scale); }
    ROTCELL_INLINE Pair<V> apply(const Pair<V>& x) const { return {apply(x.a), apply(x.b)}; }

    // The gradient of x, from that of `normal` = apply(x). Sums are over the row: of these
    // gradients, and of their products with `normal`.
    ROTCELL_INLINE V back(V d, V normal, T sum, T products) const {
      const T n = static_cast<T>(count);
      return (d - Row::all(sum / n) - normal * Row::all(products / n)) * Row::all(scale);
    }
    ROTCELL_INLINE Pair<V> back(const Pair<V>& d, const Pair<V>& normal, T sum, T products) const {
      return {back(d.a, normal.a, sum, products), back(d.b, normal.b, sum, products)};
    }
  };

  // The gates, from what the matmuls gave: columns [2 R].
  template <class Row, class T>
  struct Gates {
    using Math = typename Row::Math;

    const RowContext<T>& p;
    const T* columns;
    int64_t H, R;
    Norm<Row, T> of_x, of_h;

    ROTCELL_INLINE Gates(const RowContext<T>& context, const T* row)
        : p(context),
          columns(row),
          H(context.parameters.hidden),
          R(rows(H)),
          of_x(row, R),
          of_h(row + R, R) {}

    // Before activation; load(numbers) is where they are in a row of a weight.
    template <class Load>
    ROTCELL_INLINE auto affine(const Load& load) const {
      return of_x.apply(load(columns)) * load(p.parameters.of[kGainOfX]) +
             (of_h.apply(load(columns + R)) * load(p.parameters.of[kGainOfH]) + load(p.prepared));
    }

    // Activated.
    template <class Pairs>
    ROTCELL_INLINE GateValues<Plain, Math> operator()(const Pairs& pairs) const {
      GateValues<Plain, Math> a;
      for_gates<Plain>([&](auto gate) ROTCELL_LAMBDA_INLINE {
        const int64_t first = CellRows<Plain>::offset(decltype(gate)::value, H);
        a[gate] = affine([&](const T* row)
                             ROTCELL_LAMBDA_INLINE { return Row::load_pairs(row + first, pairs); });
      });
      if constexpr (Rotation::kHasAngles) {
        const auto turns = affine([&](const T* row) ROTCELL_LAMBDA_INLINE {
          return Row::load_of_pairs(row + CellRows<Plain>::angles(H), pairs);
        });
        // A last unit without a partner is not rotated.
        a.turns = Row::where_paired(turns, Row::all(-static_cast<T>(__builtin_inf())), pairs);
      }
      activate<Plain, 0, Math>(p.activations, a);
      return a;
    }
  };

  // Gates, or their gradients, as a row of a weight has them.
  template <class Row, class T, class Values, class Pairs>
  static ROTCELL_INLINE void store_gates(T* row, int64_t hidden, const Values& values,
                                         const Pairs& pairs) {
    for_gates<Plain>([&](auto gate) ROTCELL_LAMBDA_INLINE {
      const int64_t first = CellRows<Plain>::offset(decltype(gate)::value, hidden);
      Row::store_pairs(row + first, values[gate], pairs);
    });
    if constexpr (Rotation::kHasAngles) {
      Row::store_of_pairs(row + CellRows<Plain>::angles(hidden), values.turns, pairs);
    }
  }
  template <class Row, class T, class Values, class Pairs>
  static ROTCELL_INLINE void load_gates(const T* row, int64_t hidden, Values& values,
                                        const Pairs& pairs) {
    for_gates<Plain>([&](auto gate) ROTCELL_LAMBDA_INLINE {
      const int64_t first = CellRows<Plain>::offset(decltype(gate)::value, hidden);
      values[gate] = Row::load_pairs(row + first, pairs);
    });
    if constexpr (Rotation::kHasAngles) {
      values.turns = Row::load_of_pairs(row + CellRows<Plain>::angles(hidden), pairs);
    }
  }

  // Backward needs what the matmuls gave, as it is.
  template <class Row, class T>
  static ROTCELL_INLINE void forward_row(const RowForward<T>& p) {
    using Math = typename Row::Math;
    const int64_t H = p.parameters.hidden;
    const Gates<Row, T> gates(p, p.gates);
    Row::for_pairs(H, [&](auto pairs) ROTCELL_LAMBDA_INLINE {
      const auto a = gates(pairs);
      const auto c = Plain::template cell_state<Math>(a, Row::load_pairs(p.c_before, pairs));
      Row::store_pairs(p.c, c, pairs);
      Row::store_pairs(p.result, a[Plain::kOutput], pairs);
    });
    const Norm<Row, T> of_c(p.c, H);
    Row::for_units(H, [&](auto at) ROTCELL_LAMBDA_INLINE {
      const auto read =
          Math::tanh(of_c.apply(Row::load(p.c, at)) * Row::load(p.parameters.of[kGainOfC], at) +
                     Row::load(p.parameters.of[kBiasOfC], at));
      Row::store(p.result, Row::load(p.result, at) * read, at);
    });
  }

  template <class Row, class T>
  static ROTCELL_INLINE void cell_state_row(const RowBackward<T>& p, T* c) {
    const Gates<Row, T> gates(p, p.gates);
    Row::for_pairs(p.parameters.hidden, [&](auto pairs) ROTCELL_LAMBDA_INLINE {
      const auto before = Row::load_pairs(p.c_before, pairs);
      Row::store_pairs(c, Plain::template cell_state<typename Row::Math>(gates(pairs), before),
                       pairs);
    });
  }

  template <class Row, class T>
  static ROTCELL_INLINE void backward_row(const RowBackward<T>& p) {
    using Math = typename Row::Math;
    using V = typename Math::Value;
    const int64_t H = p.parameters.hidden, R = rows(H);
    T *activated = p.scratch, *grad_read = p.scratch + R;
    const V zero = Math::constant(0.0), one = Math::constant(1.0);

    const Gates<Row, T> gates(p, p.gates);
    Row::for_pairs(H, [&](auto pairs) ROTCELL_LAMBDA_INLINE {
      store_gates<Row>(activated, H, gates(pairs), pairs);
    });

    // From h = o tanh(LN(c) gain + bias) to LN(c), in grad_read, and o, in its column.
    const Norm<Row, T> of_c(p.c, H);
    const T* output = activated + CellRows<Plain>::offset(Plain::kOutput, H);
    T* grad_output = p.grad_gates + CellRows<Plain>::offset(Plain::kOutput, H);
    V sums = zero, products = zero;
    Row::for_units(H, [&](auto at) ROTCELL_LAMBDA_INLINE {
      const V normal = Row::only(of_c.apply(Row::load(p.c, at)), at);
      const V gain = Row::load(p.parameters.of[kGainOfC], at);
      const V read = Math::tanh(normal * gain + Row::load(p.parameters.of[kBiasOfC], at));
      const V d = Row::load(p.d_result, at), o = Row::load(output, at);
      if (p.result != nullptr) Row::store(p.result, o * read, at);
      Row::store(grad_output, d * read, at);
      const V d_affine = d * o * (one - read * read), d_normal = d_affine * gain;
      Row::add(p.gradients.of[kBiasOfC], d_affine, at);
      Row::add(p.gradients.of[kGainOfC], d_affine * normal, at);
      Row::store(grad_read, d_normal, at);
      sums = sums + d_normal;
      products = products + d_normal * normal;
    });
    const T sum_c = Row::sum(sums), products_c = Row::sum(products);

    // Through the plain cell to its preactivations, in the columns of x.
    Row::for_pairs(H, [&](auto pairs) ROTCELL_LAMBDA_INLINE {
      GateValues<Plain, Math> a, d;
      load_gates<Row>(activated, H, a, pairs);
      PairState<Math> s{};
      s.c_before = Row::load_pairs(p.c_before, pairs);
      s.c = Row::load_pairs(p.c, pairs);
      auto dc = Row::load_pairs(p.grad_c, pairs) +
                of_c.back(Row::load_pairs(grad_read, pairs), of_c.apply(s.c), sum_c, products_c);
      Plain::template cell_state_backward<Math>(a, s, dc, d);
      d[Plain::kOutput] = Row::load_pairs(grad_output, pairs);
      through_activations<Plain, 0, Math>(p.activations, a, d);
      Row::store_pairs(p.grad_c, dc, pairs);
      store_gates<Row>(p.grad_gates, H, d, pairs);
    });

    // And through both norms.
    V sums_x = zero, products_x = zero, sums_h = zero, products_h = zero;
    Row::for_units(R, [&](auto at) ROTCELL_LAMBDA_INLINE {
      const V d = Row::load(p.grad_gates, at);
      const V x = gates.of_x.apply(Row::load(p.gates, at));
      const V h = gates.of_h.apply(Row::load(p.gates + R, at));
      Row::add(p.gradients.bias, d, at);
      Row::add(p.gradients.of[kGainOfX], d * x, at);
      Row::add(p.gradients.of[kGainOfH], d * h, at);
      const V dx = d * Row::load(p.parameters.of[kGainOfX], at);
      const V dh = d * Row::load(p.parameters.of[kGainOfH], at);
      sums_x = sums_x + dx;
      products_x = products_x + dx * x;
      sums_h = sums_h + dh;
      products_h = products_h + dh * h;
    });
    const T sum_x = Row::sum(sums_x), sum_products_x = Row::sum(products_x);
    const T sum_h = Row::sum(sums_h), sum_products_h = Row::sum(products_h);
    Row::for_units(R, [&](auto at) ROTCELL_LAMBDA_INLINE {
      const V d = Row::load(p.grad_gates, at);
      const V x = gates.of_x.apply(Row::load(p.gates, at));
      const V h = gates.of_h.apply(Row::load(p.gates + R, at));
      const V dx = d * Row::load(p.parameters.of[kGainOfX], at);
      const V dh = d * Row::load(p.parameters.of[kGainOfH], at);
      Row::store(p.grad_gates, gates.of_x.back(dx, x, sum_x, sum_products_x), at);
      Row::store(p.grad_gates + R, gates.of_h.back(dh, h, sum_h, sum_products_h), at);
    });
  }
};

}  // namespace rotcell
