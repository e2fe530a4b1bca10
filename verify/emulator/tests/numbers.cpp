// fp16, bf16 and device math, against their definitions and the C library.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "emulator/tests/check.h"

namespace rotcell::tests {
namespace {

static_assert(sizeof(__half) == 2 && std::is_trivially_copyable_v<__half>);
static_assert(sizeof(__nv_bfloat16) == 2 && std::is_trivially_copyable_v<__nv_bfloat16>);
static_assert(!std::is_convertible_v<float, __half> && !std::is_convertible_v<__half, float>);
static_assert(alignof(float2) == 8 && alignof(float4) == 16 && alignof(double2) == 16);
static_assert(alignof(uint2) == 8 && alignof(uint4) == 16 && alignof(uint3) == 4);

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

__half half_of_bits(unsigned bits) {
  const uint16_t stored = static_cast<uint16_t>(bits);
  __half half;
  std::memcpy(&half, &stored, sizeof half);
  return half;
}

constexpr unsigned half_infinity = 0x7c00;

// Sign, five bits of exponent, ten of fraction.
double half_by_definition(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
  double magnitude = std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 0) magnitude = std::ldexp(fraction, -24);
  if (exponent == 31) magnitude = fraction == 0 ? INFINITY : NAN;
  return bits >> 15 ? -magnitude : magnitude;
}

// By search: the nearer neighbor, the even one when equally near. Rounding knows no infinity: its
// place is that of the next power of two.
unsigned nearest_half(float value) {
  const unsigned sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude >= 65536) return sign | half_infinity;
  unsigned below = 0, above = half_infinity;
  while (above - below > 1) {
    const unsigned middle = (below + above) / 2;
    (half_by_definition(middle) <= magnitude ? below : above) = middle;
  }
  const double up = (above == half_infinity ? 65536 : half_by_definition(above)) - magnitude;
  const double down = magnitude - half_by_definition(below);
  return sign | (down < up || (down == up && below % 2 == 0) ? below : above);
}

// Every value, and between every two neighbors the middle and the floats next to it.
void test_half() {
  bool widened = true, narrowed = true, kept = true;
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float value = __half2float(half_of_bits(bits));
    widened &= same(value, static_cast<float>(half_by_definition(bits)));
    if (std::isnan(value)) {
      narrowed &= std::isnan(__half2float(__float2half(value)));
      continue;
    }
    kept &= __float2half(value).bits == bits;
    if (std::isinf(value)) continue;
    const bool last = (bits & 0x7fff) == half_infinity - 1;
    const float next = last ? std::copysign(65536.0f, value) : __half2float(half_of_bits(bits + 1));
    const float middle = (value + next) / 2;
    for (const float near :
         {std::nextafter(middle, -INFINITY), middle, std::nextafter(middle, INFINITY)})
      narrowed &= __float2half(near).bits == nearest_half(near);
  }
  for (const float value : {1e30f, -70000.0f, 1e-40f, -1e-40f})
    narrowed &= __float2half(value).bits == nearest_half(value);
  check(widened, "__half2float of all 65536 values");
  check(kept, "__float2half gives all values back");
  check(narrowed, "__float2half rounds to nearest even");
}

// The nearer of the two neighbors by their distance in double, the even one when equally near.
uint16_t nearest_bfloat16(float value) {
  const uint16_t below = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  const uint16_t above = static_cast<uint16_t>(below + 1);
  const auto widen = [](uint16_t bits) {
    const float wide = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    // Rounding knows no infinity: its place is that of the next power of two.
    return std::isinf(wide) ? std::copysign(0x1p128, wide) : static_cast<double>(wide);
  };
  const double down = std::fabs(value - widen(below)), up = std::fabs(widen(above) - value);
  return down < up || (down == up && below % 2 == 0) ? below : above;
}

void test_bfloat16() {
  bool kept = true, narrowed = true;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = std::bit_cast<float>(bits << 16);
    if (std::isnan(value)) {
      narrowed &= std::isnan(__bfloat162float(__float2bfloat16(value)));
      continue;
    }
    kept &= __float2bfloat16(value).bits == bits;
    kept &= same(__bfloat162float(__float2bfloat16(value)), value);
    if (std::isinf(value)) continue;
    for (const uint32_t rest : {1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float between = std::bit_cast<float>(bits << 16 | rest);
      narrowed &= __float2bfloat16(between).bits == nearest_bfloat16(between);
    }
  }
  check(kept, "__float2bfloat16 gives all values back");
  check(narrowed, "__float2bfloat16 rounds to nearest even");
}

void test_sine_and_cosine() {
  constexpr long double pi = 3.14159265358979323846264338327950288L;
  bool near = true, exact = true;
  for (int i = -4000; i <= 4000; ++i) {
    const double x = i / 999.0;
    double s, c;
    sincospi(x, &s, &c);
    constexpr double tolerance = 4 * std::numeric_limits<double>::epsilon();
    near &= std::fabs(s - static_cast<double>(sinl(pi * x))) <= tolerance;
    near &= std::fabs(c - static_cast<double>(cosl(pi * x))) <= tolerance;
  }
  // Quarter turns, also where a multiplication by pi would lose them.
  for (const float base : {0.0f, -8.0f, 4096.0f, 1048576.0f}) {
    constexpr float sines[] = {0, 1, 0, -1};
    for (int quarter = 0; quarter < 4; ++quarter) {
      float s, c;
      sincospif(base + 0.5f * static_cast<float>(quarter), &s, &c);
      exact &= s == sines[quarter] && c == sines[(quarter + 1) % 4];
    }
  }
  check(near, "sincospi");
  check(exact, "sincospif of quarter turns is exact");
}

void test_fast_functions() {
  bool right = true;
  for (float x = -10; x <= 10; x += 0.37f) {
    // The argument times log2(e) is rounded: an error that grows with the argument.
    const float tolerance = (2 + std::fabs(x)) * std::numeric_limits<float>::epsilon();
    right &= std::fabs(__expf(x) / std::exp(x) - 1) <= tolerance;
  }
  const float stored = 3;
  check(right && __fdividef(1, 4) == 0.25f && __ldg(&stored) == 3, "__expf, __fdividef, __ldg");
}

}  // namespace

void test_numbers() {
  test_half();
  test_bfloat16();
  test_sine_and_cosine();
  test_fast_functions();
}

}  // namespace rotcell::tests
