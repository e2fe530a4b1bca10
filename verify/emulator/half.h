// __half and __nv_bfloat16: storage and conversion, to the nearest with ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace rotcell::emulator {

inline uint16_t half_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7fff;   // NaN, as a GPU writes it
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and more round to infinity
  if (magnitude < 0x38800000) {                       // below 2^-14: subnormal or zero
    // Adding 0.5 puts the last bit of the sum at 2^-24, the unit of subnormals.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000));
  }
  constexpr uint32_t exponent_difference = (127 - 15) << 23;
  const uint32_t tie_to_even = 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (magnitude - exponent_difference + tie_to_even) >> 13);
}

inline float half_value(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  if (magnitude >= 0x0f800000) return std::bit_cast<float>(sign | 0x70000000 | magnitude);
  // Read as a float the magnitude is too small by 2^112, subnormals included.
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

inline uint16_t bfloat16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace rotcell::emulator

struct __half {
  uint16_t bits;
  __half() = default;
  explicit __half(float value) : bits(rotcell::emulator::half_bits(value)) {}
  explicit operator float() const { return rotcell::emulator::half_value(bits); }
};

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float value) : bits(rotcell::emulator::bfloat16_bits(value)) {}
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

inline __half __float2half(float value) { return __half(value); }
inline float __half2float(__half value) { return static_cast<float>(value); }
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return static_cast<float>(value); }
