// The functions a cell needs, on vectors, at the accuracy of the dtype. Polynomials are
// Chebyshev fits (mpmath.chebyfit), leading coefficient first. Saturation and NaN behave as in
// torch: sigmoid(-inf) = 0, tanh(inf) = 1, NaN stays NaN, because every clamp is a comparison that
// is false for NaN.
#pragma once

#include "cpu/simd/vectors.h"

namespace rotcell::cpu::ROTCELL_ISA {

template <class T>
struct Coefficients;

template <>
struct Coefficients<float> {
  // (2^r - 1) / r for |r| <= 1/2; sin(2 pi v) / v and (cos(2 pi v) - 1) / v^2 in v^2 for |v| <= 1/4
  static constexpr float exp2[] = {1.54531629e-4f, 1.33908634e-3f, 9.61808256e-3f,
                                   5.55035711e-2f, 2.40226508e-1f, 6.93147188e-1f};
  static constexpr float sin[] = {39.7598271f, -76.5811726f, 81.6024764f, -41.3416806f,
                                  6.28318528f};
  static constexpr float cos[] = {-25.2181623f, 60.1790383f, -85.4553575f, 64.9393826f,
                                  -19.7392088f};
  static constexpr float round_shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr int mantissa_bits = 23;
  static constexpr int exponent_bias = 127;
  static constexpr float tanh_saturates = 32.0f;  // beyond 2^32, (e - 1) / (e + 1) is 1 to the bit
};

template <>
struct Coefficients<double> {
  static constexpr double exp2[] = {
      4.45496059818651839e-10, 7.0725859492692237e-9,  1.01780624458457735e-7,
      1.32154425879216897e-6,  1.52527338298361184e-5, 1.54035304417360502e-4,
      1.33335581464169353e-3,  9.61812910760688853e-3, 5.55041086648215943e-2,
      2.40226506959100982e-1,  6.93147180559945309e-1};
  static constexpr double sin[] = {
      0.100896955016468112, -0.717733792141345331, 3.8199280942271642,
      -15.0946416761179001, 42.0586939254286823,   -76.7058597528249192,
      81.6052492760736152,  -41.3417022403997569,  6.28318530717958648};
  static constexpr double cos[] = {
      -0.0353345335102226253, 0.281883687049731398, -1.7143830010384546,
      7.90353608772450357,    -26.4262567772439396, 60.244641371802197,
      -85.4568172066932746,   64.9393940226682904,  -19.7392088021787172};
  static constexpr double round_shift = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr int mantissa_bits = 52;
  static constexpr int exponent_bias = 1023;
  static constexpr double tanh_saturates = 64.0;
};

template <class T>
struct VectorMath {
  using Value = Vec<T>;
  using C = Coefficients<T>;

  static ROTCELL_INLINE Value constant(double x) { return broadcast(static_cast<T>(x)); }

  static ROTCELL_INLINE Value sigmoid(Value x) {
    const Exp2 e = exp2_parts(
        clamp<T>(x * constant(-kLog2E), T(1 - C::exponent_bias), T(1 + C::exponent_bias)));
    return divide<T>(constant(1), constant(1) + e.scale * (constant(1) + e.rest));
  }

  static ROTCELL_INLINE Value tanh(Value x) {
    const Exp2 e =
        exp2_parts(clamp<T>(x * constant(2 * kLog2E), -C::tanh_saturates, C::tanh_saturates));
    // 2^n rest + (2^n - 1), not 2^n (1 + rest) - 1: keeps the digits of a small x.
    const Value expm1 = e.scale * e.rest + (e.scale - constant(1));
    return divide<T>(expm1, expm1 + constant(2));
  }

  static ROTCELL_INLINE Value hard_sigmoid(Value x) {
    return clamp<T>(x * constant(0.2) + constant(0.5), T(0), T(1));
  }
  static ROTCELL_INLINE Value hard_sigmoid_slope(Value s) {
    const Bits<T> flat = (s <= constant(0)) | (s >= constant(1));
    return flat ? constant(0) : constant(0.2);
  }

  // Exact at s = 0: sin 0 = 0 and cos 0 = 1, so a rotation that is off changes nothing.
  static ROTCELL_INLINE void sincos_turns(Value s, Value& sin, Value& cos) {
    const Value shifted = (s + s) + constant(C::round_shift);
    const Value half_turns = shifted - constant(C::round_shift);
    const Value v = s - half_turns * constant(0.5);
    const Value z = v * v;
    const Bits<T> odd = (reinterpret_cast<Bits<T>>(shifted) & 1) != 0;
    const Value sign = odd ? constant(-1) : constant(1);
    sin = polynomial(C::sin, z) * v * sign;
    cos = (polynomial(C::cos, z) * z + constant(1)) * sign;
  }

 private:
  static constexpr double kLog2E = 1.442695040888963407360;

  struct Exp2 {
    Value scale;  // 2^n
    Value rest;   // 2^(y - n) - 1
  };

  static ROTCELL_INLINE Exp2 exp2_parts(Value y) {
    const Value shifted = y + constant(C::round_shift);
    const Value r = y - (shifted - constant(C::round_shift));
    // n is in the lowest bits of `shifted`; higher bits are shifted out.
    const Bits<T> exponent = reinterpret_cast<Bits<T>>(shifted) << C::mantissa_bits;
    return {reinterpret_cast<Value>(exponent + reinterpret_cast<Bits<T>>(constant(1))),
            polynomial(C::exp2, r) * r};
  }

  template <int N>
  static ROTCELL_INLINE Value polynomial(const T (&coefficients)[N], Value x) {
    Value sum = broadcast(coefficients[0]);
    for (int i = 1; i < N; ++i) sum = sum * x + broadcast(coefficients[i]);
    return sum;
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
