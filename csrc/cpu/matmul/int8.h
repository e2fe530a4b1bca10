// Matmuls of float32 rows with int8 weights: each row is quantized on the way, the sums are exact
// integers. So every instruction set gives the same sums.
//
// A row of weights has one scale, a row of the operand another: its largest absolute value / 127.
//   result = addend + (float)sum * (scale of the operand's row * scale of the weights' row)
// A row of the operand that holds NaN or infinity gives NaN.
#pragma once

#include <cstdint>

#include "cells/portable.h"

namespace rotcell::cpu {

// Weights lie in panels: [ceil(rows / 16), ceil(depth / 4), 16, 4], the rest of them zero. So 4
// weights of 16 rows each fill a register of 64 bytes, and what runs there reads the same memory
// as what runs on narrower registers.
constexpr int64_t kInt8PanelRows = 16, kInt8Group = 4;
ROTCELL_INLINE constexpr int64_t int8_panels(int64_t rows) {
  return (rows + kInt8PanelRows - 1) / kInt8PanelRows;
}
ROTCELL_INLINE constexpr int64_t int8_groups(int64_t depth) {
  return (depth + kInt8Group - 1) / kInt8Group;
}

// Sums of so many products fit 32 bits, and so do those of an operand times 128.
constexpr int64_t kInt8MostDepth = 1 << 17;

struct Int8Weights {
  const int8_t* panels;  // null if there are none
  const float* scales;   // [rows]
  int64_t rows, depth;
};

// Quantized rows of an operand.
struct Int8Rows {
  int8_t* values;  // [count, stride]
  int64_t stride;  // kInt8Group * int8_groups(depth) at least
  float* scales;   // [count]
  int32_t* sums;   // [count]: of a row's values

  ROTCELL_INLINE constexpr Int8Rows from(int64_t row) const {
    return {values + row * stride, stride, scales + row, sums + row};
  }
};

// What is added to the result: `stride` apart from row to row; zero if null.
struct Int8Addend {
  const float* data;
  int64_t stride;
};

struct Int8Kernels {
  const char* instructions;
  // rows [count, depth], `stride` apart.
  void (*quantize)(const float* rows, int64_t stride, int64_t count, int64_t depth,
                   const Int8Rows& quantized);
  // result [count, columns] = addend + rows x weights [first, first + columns)^T. The result may be
  // the addend.
  void (*multiply)(const Int8Rows& rows, int64_t count, const Int8Weights& weights, int64_t first,
                   int64_t columns, Int8Addend addend, float* result, int64_t result_stride);
};

extern const Int8Kernels int8_generic;
#if defined(ROTCELL_X86)
extern const Int8Kernels int8_avx2;
extern const Int8Kernels int8_avx_vnni;
extern const Int8Kernels int8_avx512_vnni;
#endif

// Those that this machine runs and the instruction set in use allows, the fastest last.
struct Int8KernelList {
  const Int8Kernels* kernels[4];
  int count;
};
Int8KernelList usable_int8_kernels();

// The fastest of them.
const Int8Kernels& int8_kernels();

}  // namespace rotcell::cpu
