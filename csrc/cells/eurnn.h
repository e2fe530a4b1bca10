// The efficient unitary RNN of Jing et al., real-valued, one row, one timestep: its only recurrent
// weight is a constant rotation Theta of the whole state.
//   h = modReLU(U x + Theta h_before)    modReLU(a) = sign(a) relu(|a| + 0.01 + threshold)
#pragma once

#include "cells/constant_rotation.h"

namespace rotcell {

struct EurnnMath {
  enum Block { kCandidate, kBlockCount };
  static ROTCELL_INLINE constexpr ColumnBlock block(int, int64_t hidden) {
    return {FedBy::kInput, hidden};
  }

  static constexpr int kStages = 1;
  static constexpr bool kHasCellState = false, kReadsOutput = true, kCanProject = false;
  static constexpr bool kAddsBiases = false, kHasNorm = false;
  static ROTCELL_INLINE constexpr int64_t bias_columns(int64_t) { return 0; }

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
  static ROTCELL_INLINE constexpr int64_t scratch(int64_t hidden) { return hidden; }
  static constexpr double kOffset = 0.01;

  template <class Row, class T>
  static ROTCELL_INLINE void forward_row(const RowForward<T>& p) {
    using Math = typename Row::Math;
    const int64_t H = p.parameters.hidden;
    T* turned = p.scratch;
    Row::copy(p.h_before, turned, H);
    ConstantRotation::turn<Row>(turned, H, p.parameters.layers, p.prepared);
    Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
      const auto a = Row::load(p.gates, units) + Row::load(turned, units);
      const auto shift = Row::load(p.parameters.of[kThreshold], units) + Math::constant(kOffset);
      Row::store(p.gates, a, units);
      Row::store(p.result, ModRelu<Math>::value(a, shift), units);
    });
  }

  template <class Row, class T>
  static ROTCELL_INLINE void backward_row(const RowBackward<T>& p) {
    using Math = typename Row::Math;
    const int64_t H = p.parameters.hidden, L = p.parameters.layers;
    T* turned = p.scratch;
    Row::copy(p.h_before, turned, H);
    ConstantRotation::turn<Row>(turned, H, L, p.prepared);
    Row::for_units(H, [&](auto units) ROTCELL_LAMBDA_INLINE {
      const auto a = Row::load(p.gates, units), d = Row::load(p.d_result, units);
      const auto shift = Row::load(p.parameters.of[kThreshold], units) + Math::constant(kOffset);
      const auto of_shift = ModRelu<Math>::slope_of_shift(a, shift);
      Row::add(p.gradients.of[kThreshold], d * of_shift, units);
      const auto da = d * of_shift * of_shift;
      Row::store(p.grad_gates, da, units);
      Row::store(p.grad_h, da, units);
    });
    ConstantRotation::undo<Row>(turned, p.grad_h, H, L, p.prepared, p.gradients.of[kAngles]);
  }
};

}  // namespace rotcell
