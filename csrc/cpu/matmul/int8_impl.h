// The int8 kernels for the instruction set that this translation unit is compiled for, in the
// namespace ROTCELL_ISA.
#pragma once

#include <cstring>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "cells/pair.h"
#include "cpu/matmul/int8.h"

namespace rotcell::cpu::ROTCELL_ISA {

#if defined(__AVX512VNNI__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
constexpr int kLanes = kBytes / 4;  // rows of the weights in a vector
constexpr int64_t kPanelBytes = kInt8PanelRows * kInt8Group;

typedef int32_t Ints __attribute__((vector_size(kBytes)));
typedef uint32_t Wrapping __attribute__((vector_size(kBytes)));
typedef float Floats __attribute__((vector_size(kBytes)));

template <class Vector, class T>
ROTCELL_INLINE Vector load(const T* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// vpdpbusd multiplies unsigned with signed numbers: it gets the weights + 128, and the sum of the
// operand's row times 128 is taken off in the end. Sums may wrap around before that.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr int32_t kWeightOffset = 128;
#else
constexpr int32_t kWeightOffset = 0;
#endif

// 4 weights of each lane.
ROTCELL_INLINE Ints load_weights(const int8_t* p) {
  const Ints weights = load<Ints>(p);
  if constexpr (kWeightOffset == 0) return weights;
  return weights ^ static_cast<int32_t>(0x80808080);
}

// 4 numbers of the operand, for all lanes.
ROTCELL_INLINE Ints load_operand(const int8_t* p) {
  int32_t group;
  std::memcpy(&group, p, sizeof group);
  return group - Ints{};
}

// sum + the products of 4 weights and 4 numbers of the operand, exactly.
ROTCELL_INLINE Ints add_products(Ints sum, Ints weights, Ints operand) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<Ints>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum),
                                                    reinterpret_cast<__m512i>(weights),
                                                    reinterpret_cast<__m512i>(operand)));
#elif defined(__AVXVNNI__)
  return reinterpret_cast<Ints>(_mm256_dpbusd_avx_epi32(reinterpret_cast<__m256i>(sum),
                                                        reinterpret_cast<__m256i>(weights),
                                                        reinterpret_cast<__m256i>(operand)));
#elif defined(__AVX2__)
  // Sums of two products fit 16 bits: no number is -128.
  const auto w = reinterpret_cast<__m256i>(weights), x = reinterpret_cast<__m256i>(operand);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(w, x));
  return sum + reinterpret_cast<Ints>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#else
  for (int shift = 24; shift >= 0; shift -= 8) {
    sum += ((weights << shift) >> 24) * ((operand << shift) >> 24);
  }
  return sum;
#endif
}

struct MatmulPlace {
  Int8Rows rows;
  const int8_t* panels;  // the first panel of the weights
  const float* scales;
  int64_t groups;
  int64_t first, end;  // columns of the result, by rows of the weights
  Int8Addend addend;
  float* result;  // of column `first`
  int64_t result_stride;
};

// A register tile: ROWS rows of the operand times the vectors of weights [vector, vector +
// VECTORS).
template <int ROWS, int VECTORS>
void multiply_tile(const MatmulPlace& p, int64_t vector) {
  constexpr int64_t kVectorsOfPanel = kInt8PanelRows / kLanes;
  Ints sum[ROWS][VECTORS] = {};
  const int8_t* weights[VECTORS];
#pragma GCC unroll 8
  for (int v = 0; v < VECTORS; ++v) {
    weights[v] = p.panels + (vector + v) / kVectorsOfPanel * p.groups * kPanelBytes +
                 (vector + v) % kVectorsOfPanel * kBytes;
  }
  for (int64_t group = 0; group < p.groups; ++group) {
    Ints w[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) w[v] = load_weights(weights[v] + group * kPanelBytes);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const Ints x = load_operand(p.rows.values + r * p.rows.stride + group * kInt8Group);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) sum[r][v] = add_products(sum[r][v], w[v], x);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < VECTORS; ++v) {
    const int64_t column = (vector + v) * kLanes;
    const int64_t begin = column < p.first ? p.first - column : 0;
    const int64_t end = p.end - column < kLanes ? p.end - column : kLanes;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const auto offset = static_cast<uint32_t>(p.rows.sums[r] * kWeightOffset);
      const auto exact = reinterpret_cast<Ints>(reinterpret_cast<Wrapping>(sum[r][v]) - offset);
      const Floats value = __builtin_convertvector(exact, Floats);
      const float scale = p.rows.scales[r];
      const int64_t place = column - p.first;
      const float* addend = p.addend.data ? p.addend.data + r * p.addend.stride + place : nullptr;
      float* result = p.result + r * p.result_stride + place;
      if (begin == 0 && end == kLanes) {
        const Floats product = value * (load<Floats>(p.scales + column) * scale);
        const Floats total = (addend ? load<Floats>(addend) : Floats{}) + product;
        std::memcpy(result, &total, sizeof total);
      } else {
        for (int64_t lane = begin; lane < end; ++lane) {
          const float product = value[lane] * (p.scales[column + lane] * scale);
          result[lane] = (addend ? addend[lane] : 0) + product;
        }
      }
    }
  }
}

// Rows of a tile, and how many vectors it may be wide: as many sums as there are registers, and
// enough of them for a single row to hide what a product takes.
constexpr int kTileRows = kBytes == 64 ? 8 : 4;
constexpr int most_vectors(int rows) {
  constexpr int kWide[] = {8, 8, 6, 5, 4, 4, 3, 3}, kNarrow[] = {4, 4, 2, 2};
  return kBytes == 64 ? kWide[rows - 1] : kNarrow[rows - 1];
}
constexpr int kMostVectors = most_vectors(1);

using TileFunction = void (*)(const MatmulPlace&, int64_t vector);

template <int I>
constexpr TileFunction tile_at() {
  constexpr int kRows = I / kMostVectors + 1, kVectors = I % kMostVectors + 1;
  if constexpr (kVectors > most_vectors(kRows)) {
    return nullptr;
  } else {
    return multiply_tile<kRows, kVectors>;
  }
}

template <int... I>
ROTCELL_INLINE TileFunction tile_function(int rows, int vectors, std::integer_sequence<int, I...>) {
  static constexpr TileFunction kTiles[] = {tile_at<I>()...};
  return kTiles[(rows - 1) * kMostVectors + vectors - 1];
}

// Panels outside, so that they stay in the first-level cache for all rows.
inline void multiply(const Int8Rows& rows, int64_t count, const Int8Weights& weights, int64_t first,
                     int64_t columns, Int8Addend addend, float* result, int64_t result_stride) {
  using Shapes = std::make_integer_sequence<int, kTileRows * kMostVectors>;
  if (count <= 0 || columns <= 0) return;
  MatmulPlace place{.rows = rows,
                    .panels = weights.panels,
                    .scales = weights.scales,
                    .groups = int8_groups(weights.depth),
                    .first = first,
                    .end = first + columns,
                    .addend = addend,
                    .result = result,
                    .result_stride = result_stride};
  const int64_t tiles = (count + kTileRows - 1) / kTileRows;
  const int widest = most_vectors(static_cast<int>((count + tiles - 1) / tiles));
  const int64_t end = (place.end + kLanes - 1) / kLanes;
  for (int64_t vector = first / kLanes; vector < end; vector += widest) {
    const int vectors = static_cast<int>(end - vector < widest ? end - vector : widest);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of about the same height.
      const int64_t row = count * tile / tiles, next = count * (tile + 1) / tiles;
      place.rows = rows.from(row);
      place.addend.data = addend.data ? addend.data + row * addend.stride : nullptr;
      place.result = result + row * result_stride;
      tile_function(static_cast<int>(next - row), vectors, Shapes{})(place, vector);
    }
  }
}

// Loops of integers, which the compiler vectorizes: as integers, absolute values are in the order
// of floats, with infinity and NaN above them all.
inline void quantize_row(const float* row, int64_t depth, const Int8Rows& quantized) {
  constexpr int32_t kAbsolute = 0x7fffffff, kInfinity = 0x7f800000;
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLeast = 1e-30f;       // 127 / a smaller number may be infinite
  int32_t largest_bits = 0;
  for (int64_t i = 0; i < depth; ++i) {
    int32_t bits;
    std::memcpy(&bits, row + i, sizeof bits);
    bits &= kAbsolute;
    largest_bits = largest_bits < bits ? bits : largest_bits;
  }
  float largest;
  std::memcpy(&largest, &largest_bits, sizeof largest);
  const int64_t padded = int8_groups(depth) * kInt8Group;
  const bool finite = largest_bits < kInfinity;
  *quantized.scales = finite ? largest / 127.0f : __builtin_nanf("");
  *quantized.sums = 0;
  if (!finite || largest < kLeast) {
    std::memset(quantized.values, 0, padded);
    return;
  }
  const float inverse = 127.0f / largest;
  int32_t shift_bits, sum = 0;
  std::memcpy(&shift_bits, &kShift, sizeof shift_bits);
  for (int64_t i = 0; i < depth; ++i) {
    const float shifted = row[i] * inverse + kShift;
    int32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    const int32_t value = bits - shift_bits;
    quantized.values[i] = static_cast<int8_t>(value);
    sum += value;
  }
  *quantized.sums = sum;
  std::memset(quantized.values + depth, 0, padded - depth);
}

inline void quantize(const float* rows, int64_t stride, int64_t count, int64_t depth,
                     const Int8Rows& quantized) {
  for (int64_t row = 0; row < count; ++row) {
    quantize_row(rows + row * stride, depth, quantized.from(row));
  }
}

constexpr Int8Kernels make_int8_kernels(const char* instructions) {
  return {.instructions = instructions, .quantize = quantize, .multiply = multiply};
}

}  // namespace rotcell::cpu::ROTCELL_ISA
