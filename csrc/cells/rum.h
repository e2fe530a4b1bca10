// The rotational unit of memory of Dangovski et al. with lambda = 0, one row, one timestep:
//   r = W_r [x, h]   u = sigmoid(W_u [x, h])   e = W_e x
//   c = relu(e + R h_before)    v = u h_before + (1 - u) c    h = v, or norm v / |v|
// R turns the plane of e and r by the angle from e to r. With the unit vectors p of e and q of r,
// and s = p + q, R h = h - 2 s (s.h) / |s|^2 + 2 q (p.h). Opposite vectors have no plane: |s|^2 is
// held at the rounding error. If e or r is zero, nothing turns.
#pragma once

#include <limits>

#include "cells/row_cell.h"

namespace rotcell {

struct RumMath {
  enum Block { kTargetAndUpdate, kEmbedding, kBlockCount };
  static ROTCELL_INLINE constexpr ColumnBlock block(int number, int64_t hidden) {
    if (number == kTargetAndUpdate) return {FedBy::kBoth, 2 * hidden};
    return {FedBy::kInput, hidden};
  }

  static constexpr int kStages = 1;
  static constexpr bool kHasCellState = false, kReadsOutput = true, kCanProject = false;
  static constexpr bool kAddsBiases = false, kHasNorm = true;
  static ROTCELL_INLINE constexpr int64_t bias_columns(int64_t hidden) { return 3 * hidden; }

  static constexpr int kParameterCount = 0;
  static ROTCELL_INLINE constexpr RowParameter parameter(int) { return {}; }
  static ROTCELL_INLINE constexpr int64_t prepared(int64_t, int64_t) { return 0; }
  template <class T>
  static ROTCELL_INLINE void prepare(const RowParameters<T>&, T*) {}
  static ROTCELL_INLINE constexpr int64_t scratch(int64_t hidden) { return hidden; }

  // 1 / |v| from |v|^2; 0 for a zero vector.
  template <class T>
  static ROTCELL_INLINE T inverse_norm(T square) {
    constexpr T kLeast = std::numeric_limits<T>::min();
    return square < kLeast ? T(0) : T(1) / square_root(square);
  }

  // R, from the sums over the row that it depends on.
  template <class Row, class T>
  struct Rotation {
    using V = typename Row::Math::Value;

    T of_e, of_r;          // 1 / |e|, 1 / |r|
    T ss, sh, ph, ps, qs;  // products of s, p, q and h
    T square;              // |s|^2 as a divisor
    const T *e, *r, *h;

    ROTCELL_INLINE Rotation(const T* embedding, const T* target, const T* h_before, int64_t H)
        : e(embedding), r(target), h(h_before) {
      const V zero = Row::Math::constant(0.0);
      V ee = zero, rr = zero;
      Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
        const V of_units = Row::load(e, units), to_units = Row::load(r, units);
        ee = ee + of_units * of_units;
        rr = rr + to_units * to_units;
      });
      of_e = inverse_norm(Row::sum(ee));
      of_r = inverse_norm(Row::sum(rr));
      V sums[5] = {zero, zero, zero, zero, zero};
      Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
        const V p = this->p(units), q = this->q(units), s = p + q, x = Row::load(h, units);
        sums[0] = sums[0] + s * s;
        sums[1] = sums[1] + s * x;
        sums[2] = sums[2] + p * x;
        sums[3] = sums[3] + p * s;
        sums[4] = sums[4] + q * s;
      });
      ss = Row::sum(sums[0]);
      sh = Row::sum(sums[1]);
      ph = Row::sum(sums[2]);
      ps = Row::sum(sums[3]);
      qs = Row::sum(sums[4]);
      square = ss < kLeastSquare ? kLeastSquare : ss;
    }

    static constexpr T kLeastSquare = std::numeric_limits<T>::epsilon();
    ROTCELL_INLINE bool turns() const { return of_e != T(0) && of_r != T(0); }

    template <class Units>
    ROTCELL_INLINE V p(Units units) const {
      return Row::load(e, units) * Row::all(of_e);
    }
    template <class Units>
    ROTCELL_INLINE V q(Units units) const {
      return Row::load(r, units) * Row::all(of_r);
    }

    template <class Units>
    ROTCELL_INLINE V turned(Units units) const {
      const V x = Row::load(h, units);
      if (!turns()) return x;
      const V p = this->p(units), q = this->q(units);
      return x - (p + q) * Row::all(2 * sh / square) + q * Row::all(2 * ph);
    }
  };

  // The state before its norm is set.
  template <class V>
  static ROTCELL_INLINE V mixed(V u, V h, V c) {
    return c + u * (h - c);
  }
  template <class V>
  static ROTCELL_INLINE V relu(V a, V zero) {
    return a <= zero ? zero : a;  // NaN stays NaN
  }

  // Backward needs r, u after its sigmoid, and e. In lanes beyond the row all values are 0 but u,
  // which multiplies a 0.
  template <class Row, class T>
  static ROTCELL_INLINE void forward_row(const RowForward<T>& p) {
    using Math = typename Row::Math;
    using V = typename Math::Value;
    const int64_t H = p.parameters.hidden;
    T* update = p.gates + H;
    const T* embedding = p.gates + 2 * H;
    const Rotation<Row, T> rotation(embedding, p.gates, p.h_before, H);
    const V zero = Math::constant(0.0);
    V square = zero;
    Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
      const V u = Math::sigmoid(Row::load(update, units));
      const V c = relu(Row::load(embedding, units) + rotation.turned(units), zero);
      const V v = mixed(u, Row::load(p.h_before, units), c);
      square = square + v * v;
      Row::store(update, u, units);
      Row::store(p.result, v, units);
    });
    if (p.parameters.norm == 0) return;
    const V factor = Row::all(static_cast<T>(p.parameters.norm) * inverse_norm(Row::sum(square)));
    Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
      Row::store(p.result, Row::load(p.result, units) * factor, units);
    });
  }

  template <class Row, class T>
  static ROTCELL_INLINE void backward_row(const RowBackward<T>& p) {
    using Math = typename Row::Math;
    using V = typename Math::Value;
    const int64_t H = p.parameters.hidden;
    const T *target = p.gates, *update = p.gates + H, *embedding = p.gates + 2 * H;
    T *grad_target = p.grad_gates, *grad_embedding = p.grad_gates + 2 * H;
    const Rotation<Row, T> rotation(embedding, target, p.h_before, H);
    const V zero = Math::constant(0.0), one = Math::constant(1.0);
    const auto candidate = [&](auto units) ROTCELL_LAMBDA_INLINE {
      return relu(Row::load(embedding, units) + rotation.turned(units), zero);
    };
    // The gradient of v: through its norm, if that is set.
    T scale = 1, along = 0;  // d_v = scale (d_result - v along)
    if (p.parameters.norm != 0) {
      V vv = zero, vd = zero;
      Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
        const V v = mixed(Row::load(update, units), Row::load(p.h_before, units), candidate(units));
        vv = vv + v * v;
        vd = vd + v * Row::load(p.d_result, units);
      });
      const T inverse = inverse_norm(Row::sum(vv));
      scale = static_cast<T>(p.parameters.norm) * inverse;
      along = inverse * inverse * Row::sum(vd);
    }
    // d, the gradient of R's result, in scratch, and its products with s, p and q.
    T* grad_turned = p.scratch;
    V sd_sum = zero, pd_sum = zero, qd_sum = zero;
    Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
      const V u = Row::load(update, units), h = Row::load(p.h_before, units);
      const V c = candidate(units);
      const V dv =
          (Row::load(p.d_result, units) - mixed(u, h, c) * Row::all(along)) * Row::all(scale);
      const V d = c > zero ? dv * (one - u) : zero;
      Row::store(p.grad_gates + H, dv * (h - c) * u * (one - u), units);
      Row::store(p.grad_h, dv * u, units);
      Row::store(grad_turned, d, units);
      const V of_p = rotation.p(units), of_q = rotation.q(units);
      sd_sum = sd_sum + (of_p + of_q) * d;
      pd_sum = pd_sum + of_p * d;
      qd_sum = qd_sum + of_q * d;
    });
    if (!rotation.turns()) {
      Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
        const V d = Row::load(grad_turned, units);
        Row::store(grad_target, zero, units);
        Row::store(grad_embedding, d, units);
        Row::add(p.grad_h, d, units);
      });
      return;
    }
    // R h = h - 2 s sh / square + 2 q ph, from the last to the first.
    const T sd = Row::sum(sd_sum), pd = Row::sum(pd_sum), qd = Row::sum(qd_sum);
    const T qh = rotation.sh - rotation.ph;
    const T d_sh = -2 * sd / rotation.square, d_ph = 2 * qd;
    const T by_s = 2 * rotation.sh / rotation.square;
    const T d_ss = rotation.ss < rotation.kLeastSquare ? T(0) : by_s * sd / rotation.square;
    // Gradients of p and of q less what points along each: a unit vector has no such gradient.
    const T along_p = -by_s * pd + d_sh * rotation.ph + 2 * d_ss * rotation.ps + d_ph * rotation.ph;
    const T along_q = -by_s * qd + d_sh * qh + 2 * d_ss * rotation.qs + 2 * rotation.ph * qd;
    Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
      const V of_p = rotation.p(units), of_q = rotation.q(units), s = of_p + of_q;
      const V d = Row::load(grad_turned, units), h = Row::load(p.h_before, units);
      const V ds = h * Row::all(d_sh) + s * Row::all(2 * d_ss) - d * Row::all(by_s);
      const V dp = ds + h * Row::all(d_ph) - of_p * Row::all(along_p);
      const V dq = ds + d * Row::all(2 * rotation.ph) - of_q * Row::all(along_q);
      Row::store(grad_embedding, d + dp * Row::all(rotation.of_e), units);
      Row::store(grad_target, dq * Row::all(rotation.of_r), units);
      Row::add(p.grad_h, d + s * Row::all(d_sh) + of_p * Row::all(d_ph), units);
    });
  }
};

}  // namespace rotcell
