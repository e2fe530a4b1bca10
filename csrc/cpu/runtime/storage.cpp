#include "cpu/runtime/storage.h"

#include <bit>

namespace rotcell::cpu {
namespace {

float float_of_bfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Without branches, so that compilers make vectors of it.
float float_of_float16(uint16_t bits) {
  constexpr uint32_t kExponent = 0x1fu << 23;       // float16's, after the shift by 13
  constexpr uint32_t kRebias = (127u - 15u) << 23;  // from float16's bias to float32's
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  const uint32_t exponent = magnitude & kExponent;
  const uint32_t is_special = exponent == kExponent ? kRebias : 0u;  // Inf and NaN
  const uint32_t rebased = magnitude + kRebias + is_special;
  // A subnormal is magnitude * 2^-24: read with the smallest normal exponent, minus that number.
  constexpr float kSmallestNormal = 6.103515625e-05f;  // 2^-14
  const float subnormal = std::bit_cast<float>(magnitude + kRebias + (1u << 23)) - kSmallestNormal;
  const uint32_t found = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : rebased;
  return std::bit_cast<float>(found | sign);
}

}  // namespace

void to_float(const void* from, Storage storage, int64_t first, int64_t count, float* to) {
  const auto* bits = static_cast<const uint16_t*>(from) + first;
  if (storage == Storage::kBFloat16) {
    for (int64_t i = 0; i < count; ++i) to[i] = float_of_bfloat16(bits[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = float_of_float16(bits[i]);
  }
}

}  // namespace rotcell::cpu
