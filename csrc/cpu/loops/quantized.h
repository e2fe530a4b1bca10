// The matmuls of a time loop with int8 weights.
#pragma once

#include "cpu/matmul/int8.h"

namespace rotcell::cpu {

struct QuantizedMatmuls {
  const Int8Kernels* kernels;
  Int8Weights w_hh;  // [R_h, P]
  Int8Weights w_hr;  // [P, H], if projected
  Int8Rows scratch;  // [slots, rows_of_slot]: what a thread multiplies, by Work::slot
  int64_t rows_of_slot;

  // result [count, columns] = addend + rows [count, depth] x weights [first, first + columns)^T
  ROTCELL_INLINE void multiply(const float* rows, int64_t count, const Int8Weights& weights,
                               int64_t first, int64_t columns, Int8Addend addend, float* result,
                               int64_t result_stride, int64_t slot) const {
    const Int8Rows quantized = scratch.from(slot * rows_of_slot);
    kernels->quantize(rows, weights.depth, count, weights.depth, quantized);
    kernels->multiply(quantized, count, weights, first, columns, addend, result, result_stride);
  }
};

}  // namespace rotcell::cpu
