// The gated orthogonal recurrent unit of Jing et al., one row, one timestep, with a constant
// rotation Theta of the whole state:
//   r, g = sigmoid(W [x, h])     c = modReLU(U_c x + r (Theta h_before))
//   h = g h_before + (1 - g) c   modReLU(a) = sign(a) relu(|a| + 0.001 + threshold)
#pragma once

#include "cells/constant_rotation.h"

namespace rotcell {

struct GoruMath {
  enum Block { kGates, kCandidate, kBlockCount };
  static ROTCELL_INLINE constexpr ColumnBlock block(int number, int64_t hidden) {
    if (number == kGates) return {FedBy::kBoth, 2 * hidden};  // r, g
    return {FedBy::kInput, hidden};
  }

  static constexpr int kStages = 1;
  static constexpr bool kHasCellState = false, kReadsOutput = true, kCanProject = false;
  static constexpr bool kAddsBiases = false, kHasNorm = false;
  static ROTCELL_INLINE constexpr int64_t bias_columns(int64_t hidden) { return 2 * hidden; }

  enum { kThreshold, kAngles, kParameterCount };
  static ROTCELL_INLINE constexpr RowParameter parameter(int number) {
    if (number == kThreshold) return {"threshold", ParameterWidth::kUnits, false};
    return {"angles", ParameterWidth::kPairs, true};
  }

  static ROTCELL_INLINE constexpr int64_t prepared(int64_t hidden, int64_t layers) {
    return ConstantRotation::prepared(hidden, layers);
  }
  template <class T>
  static ROTCELL_INLINE void prepare(const RowParameters<T>& p, T* to) {
    ConstantRotation::prepare(p.of[kAngles], p.hidden, p.layers, to);
  }
  static ROTCELL_INLINE constexpr int64_t scratch(int64_t hidden) { return 2 * hidden; }
  static constexpr double kOffset = 0.001;

  // Backward needs r, g, and the candidate before modReLU.
  template <class Row, class T>
  static ROTCELL_INLINE void forward_row(const RowForward<T>& p) {
    using Math = typename Row::Math;
    const int64_t H = p.parameters.hidden;
    T *turned = p.scratch, *reset = p.gates, *update = p.gates + H, *candidate = p.gates + 2 * H;
    Row::copy(p.h_before, turned, H);
    ConstantRotation::turn<Row>(turned, H, p.parameters.layers, p.prepared);
    Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
      const auto r = Math::sigmoid(Row::load(reset, units));
      const auto g = Math::sigmoid(Row::load(update, units));
      const auto a = Row::load(candidate, units) + r * Row::load(turned, units);
      const auto shift = Row::load(p.parameters.of[kThreshold], units) + Math::constant(kOffset);
      const auto c = ModRelu<Math>::value(a, shift);
      Row::store(p.result, c + g * (Row::load(p.h_before, units) - c), units);
      Row::store(reset, r, units);
      Row::store(update, g, units);
      Row::store(candidate, a, units);
    });
  }

  template <class Row, class T>
  static ROTCELL_INLINE void backward_row(const RowBackward<T>& p) {
    using Math = typename Row::Math;
    const int64_t H = p.parameters.hidden, L = p.parameters.layers;
    const T *reset = p.gates, *update = p.gates + H, *candidate = p.gates + 2 * H;
    T *turned = p.scratch, *grad_turned = p.scratch + H;
    Row::copy(p.h_before, turned, H);
    ConstantRotation::turn<Row>(turned, H, L, p.prepared);
    Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
      const auto one = Math::constant(1.0), r = Row::load(reset, units),
                 g = Row::load(update, units), a = Row::load(candidate, units),
                 d = Row::load(p.d_result, units);
      const auto shift = Row::load(p.parameters.of[kThreshold], units) + Math::constant(kOffset);
      const auto of_shift = ModRelu<Math>::slope_of_shift(a, shift), dc = d * (one - g);
      const auto da = dc * of_shift * of_shift;
      Row::add(p.gradients.of[kThreshold], dc * of_shift, units);
      Row::store(p.grad_gates, da * Row::load(turned, units) * r * (one - r), units);
      Row::store(
          p.grad_gates + H,
          d * (Row::load(p.h_before, units) - ModRelu<Math>::value(a, shift)) * g * (one - g),
          units);
      Row::store(p.grad_gates + 2 * H, da, units);
      Row::store(grad_turned, da * r, units);
      Row::store(p.grad_h, d * g, units);
    });
    ConstantRotation::undo<Row>(turned, grad_turned, H, L, p.prepared, p.gradients.of[kAngles]);
    Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
      Row::add(p.grad_h, Row::load(grad_turned, units), units);
    });
  }
};

}  // namespace rotcell
