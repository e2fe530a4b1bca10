// bfloat16 as a storage type: kernels of it compute in float. No torch here.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cells/portable.h"

namespace rotcell::cpu {

// The upper half of a float. From a float: rounded to nearest even, denormals to zero, as the
// processor's own instruction does it.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  ROTCELL_INLINE constexpr BFloat16(float x) : bits(rounded(__builtin_bit_cast(uint32_t, x))) {}
  ROTCELL_INLINE constexpr operator float() const {
    return __builtin_bit_cast(float, uint32_t{bits} << 16);
  }

 private:
  // Without branches, so that compilers make vectors of it.
  static ROTCELL_INLINE constexpr uint16_t rounded(uint32_t x) {
    const uint32_t nearest = x + 0x7fffu + ((x >> 16) & 1u);
    const uint32_t magnitude = x & 0x7fffffffu;
    const uint32_t flushed = magnitude < 0x00800000u ? x & 0x80000000u : nearest;
    return static_cast<uint16_t>((magnitude > 0x7f800000u ? x | 0x00400000u : flushed) >> 16);
  }
};

namespace detail {
template <class T>
struct MathOf {
  using Type = T;
};
template <>
struct MathOf<BFloat16> {
  using Type = float;
};
}  // namespace detail

// What kernels of a storage type compute in: sums, gates, the running cell state, gradients of
// states and weights.
template <class T>
using MathType = typename detail::MathOf<T>::Type;

// Whether what is stored is rounded.
template <class T>
inline constexpr bool kRoundsStored = !std::is_same_v<T, MathType<T>>;

}  // namespace rotcell::cpu
