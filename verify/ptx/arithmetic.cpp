// Numbers, bits and predicates. What is rounded is rounded to the nearest unless the name says
// otherwise; this file must be compiled so that products and sums are not contracted.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <functional>

#include "ptx/each_lane.h"
#include "ptx/operations.h"

namespace rotcell::ptx {
namespace {

template <class T>
Operation copy() {
  return each_lane<Slot<T>, Slot<T>>(Kind::integer, [](Slot<T> a) { return a; });
}

// What is the same for both signs.
template <class S>
void add_bits(Operations& o, const std::string& bits) {
  using U = std::make_unsigned_t<S>;
  using Product = std::common_type_t<U, unsigned>;  // int would overflow
  const auto two = [](auto f) { return each_lane<U, U, U>(Kind::integer, f); };
  o["add.s" + bits] = two([](U a, U b) { return U(a + b); });
  o["sub.s" + bits] = two([](U a, U b) { return U(a - b); });
  o["mul.lo.s" + bits] = two([](U a, U b) { return U(Product(a) * b); });
  o["mad.lo.s" + bits] =
      each_lane<U, U, U, U>(Kind::integer, [](U a, U b, U c) { return U(Product(a) * b + c); });
  o["neg.s" + bits] = each_lane<U, U>(Kind::integer, [](U a) { return U(0 - a); });
  o["and.b" + bits] = two([](U a, U b) { return U(a & b); });
  o["or.b" + bits] = two([](U a, U b) { return U(a | b); });
  o["xor.b" + bits] = two([](U a, U b) { return U(a ^ b); });
  o["not.b" + bits] = each_lane<U, U>(Kind::integer, [](U a) { return U(~a); });
  o["mov.b" + bits] = o["mov.u" + bits] = copy<U>();
  // Distances beyond the number's size count as that size.
  o["shl.b" + bits] = each_lane<U, U, uint32_t>(Kind::integer, [](U a, uint32_t distance) {
    return distance < 8 * sizeof(U) ? U(a << distance) : U(0);
  });
}

template <class T>
void add_integers(Operations& o, const std::string& type) {
  const auto two = [](auto f) { return each_lane<T, T, T>(Kind::integer, f); };
  o["min." + type] = two([](T a, T b) { return std::min(a, b); });
  o["max." + type] = two([](T a, T b) { return std::max(a, b); });
  // Division by zero has no specified result.
  o["div." + type] = two([](T a, T b) { return b == 0 ? T(-1) : T(a / b); });
  o["rem." + type] = two([](T a, T b) { return b == 0 ? T(-1) : T(a % b); });
  o["shr." + type] = each_lane<T, T, uint32_t>(Kind::integer, [](T a, uint32_t distance) {
    return T(a >> std::min<uint32_t>(distance, 8 * sizeof(T) - 1) >> (distance >= 8 * sizeof(T)));
  });
  o["setp.eq." + type] = comparison<T>(std::equal_to<>{});
  o["setp.ne." + type] = comparison<T>(std::not_equal_to<>{});
  o["setp.lt." + type] = comparison<T>(std::less<>{});
  o["setp.le." + type] = comparison<T>(std::less_equal<>{});
  o["setp.gt." + type] = comparison<T>(std::greater<>{});
  o["setp.ge." + type] = comparison<T>(std::greater_equal<>{});
}

template <class T>
void add_floats(Operations& o, const std::string& type) {
  const auto two = [](auto f) { return each_lane<T, T, T>(Kind::floats, f); };
  o["add." + type] = o["add.rn." + type] = two([](T a, T b) { return a + b; });
  o["sub." + type] = o["sub.rn." + type] = two([](T a, T b) { return a - b; });
  o["mul." + type] = o["mul.rn." + type] = two([](T a, T b) { return a * b; });
  o["fma.rn." + type] =
      each_lane<T, T, T, T>(Kind::fma, [](T a, T b, T c) { return std::fma(a, b, c); });
  o["neg." + type] = each_lane<T, T>(Kind::floats, [](T a) { return -a; });
  o["abs." + type] = each_lane<T, T>(Kind::floats, [](T a) { return std::fabs(a); });
  // The sign of the first, the magnitude of the second.
  o["copysign." + type] = two([](T a, T b) { return std::copysign(b, a); });
  o["mov." + type] = copy<T>();
  // Those that end in u are true of NaNs, too.
  o["setp.eq." + type] = comparison<T>(std::equal_to<>{});
  o["setp.lt." + type] = comparison<T>(std::less<>{});
  o["setp.le." + type] = comparison<T>(std::less_equal<>{});
  o["setp.gt." + type] = comparison<T>(std::greater<>{});
  o["setp.ge." + type] = comparison<T>(std::greater_equal<>{});
  o["setp.neu." + type] = comparison<T>([](T a, T b) { return !(a == b); });
  o["setp.ltu." + type] = comparison<T>([](T a, T b) { return !(a >= b); });
  o["setp.leu." + type] = comparison<T>([](T a, T b) { return !(a > b); });
  o["setp.gtu." + type] = comparison<T>([](T a, T b) { return !(a <= b); });
  o["setp.geu." + type] = comparison<T>([](T a, T b) { return !(a < b); });
}

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

void run_fma_down(Warp& warp, const Instruction& instruction, uint32_t active) {
  // Volatile, as the compiler does not know of the rounding.
  const auto f = [](float a, float b, float c) {
    volatile float x = a, y = b, z = c;
    volatile const float result = std::fma(x, y, z);
    return float(result);
  };
  std::fesetround(FE_DOWNWARD);
  run_each_lane<decltype(f), float, float, float, float>(warp, instruction, active);
  std::fesetround(FE_TONEAREST);
}

// Approximations: the nearest number that the hardware could give, which errs by some more bits.
void add_approximations(Operations& o) {
  const auto one = [](auto f) { return each_lane<float, float>(Kind::special, f); };
  o["ex2.approx.ftz.f32"] =
      one([](float a) { return flushed(static_cast<float>(std::exp2(double(flushed(a))))); });
  o["rcp.approx.ftz.f32"] = one([](float a) { return flushed(1 / flushed(a)); });
  // 0 for divisors so large that their reciprocal would be subnormal.
  o["div.approx.f32"] = each_lane<float, float, float>(Kind::special, [](float a, float b) {
    const float size = std::fabs(b);
    return size > 0x1p126f && std::isfinite(size) ? a * std::copysign(0.0f, b) : a / b;
  });
  // The upper half of the result, which is what the hardware has.
  o["rcp.approx.ftz.f64"] = each_lane<double, double>(Kind::special, [](double a) {
    return std::bit_cast<double>(std::bit_cast<uint64_t>(1 / a) >> 32 << 32);
  });
  o["rcp.rn.f64"] = each_lane<double, double>(Kind::special, [](double a) { return 1 / a; });
  o["fma.rm.f32"] = {run_fma_down, Kind::fma, {Width::four, Width::four, Width::four, Width::four}};
}

template <class T>
void run_select(Warp& warp, const Instruction& instruction, uint32_t active) {
  Slot<T>* to = warp.to<T>(instruction.operands[0]);
  const Slot<T>*a = warp.from<T>(instruction.operands[1]),
        *b = warp.from<T>(instruction.operands[2]);
  const uint32_t mask = warp.mask(instruction.operands[3]);
  for_lanes(active, [=](int lane) { to[lane] = mask >> lane & 1 ? a[lane] : b[lane]; });
}

template <class T>
Operation select(Kind kind) {
  return {run_select<T>, kind, {width_of<T>(), width_of<T>(), width_of<T>(), Width::predicate}};
}

template <class F>
void run_masks(Warp& warp, const Instruction& instruction, uint32_t active) {
  const uint32_t a = warp.mask(instruction.operands[1]);
  const uint32_t b = warp.mask(instruction.operands.back());
  uint32_t& to = warp.mask_to(instruction.operands[0]);
  to = (to & ~active) | (F{}(a, b) & active);
}

template <class F>
Operation masks(int arguments, F) {
  return {run_masks<F>, Kind::integer,
          std::vector<Width>(static_cast<size_t>(arguments) + 1, Width::predicate)};
}

}  // namespace

void add_arithmetic(Operations& o) {
  add_bits<int16_t>(o, "16");
  add_bits<int32_t>(o, "32");
  add_bits<int64_t>(o, "64");
  add_integers<int16_t>(o, "s16");
  add_integers<uint16_t>(o, "b16");
  add_integers<int32_t>(o, "s32");
  add_integers<uint32_t>(o, "u32");
  add_integers<uint32_t>(o, "b32");
  add_integers<int64_t>(o, "s64");
  add_integers<uint64_t>(o, "u64");
  add_integers<uint64_t>(o, "b64");
  o["mul.wide.s32"] = each_lane<int64_t, int32_t, int32_t>(
      Kind::integer, [](int64_t a, int64_t b) { return a * b; });
  o["mul.wide.u32"] = each_lane<uint64_t, uint32_t, uint32_t>(
      Kind::integer, [](uint64_t a, uint64_t b) { return a * b; });
  // The lowest `bits` of a take the place of those of b from `begin` on.
  o["bfi.b64"] = each_lane<uint64_t, uint64_t, uint64_t, uint32_t, uint32_t>(
      Kind::integer, [](uint64_t a, uint64_t b, uint32_t begin, uint32_t bits) {
        if (begin >= 64 || bits == 0) return b;
        const uint64_t mask = (bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1) << begin;
        return (b & ~mask) | (a << begin & mask);
      });
  o["mul.hi.u32"] = each_lane<uint32_t, uint32_t, uint32_t>(
      Kind::integer,
      [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); });
  add_floats<float>(o, "f32");
  add_floats<double>(o, "f64");
  add_approximations(o);
  for (const char* type : {"b16", "u16", "b32", "u32", "s32"})
    o["selp." + std::string(type)] = select<uint32_t>(Kind::integer);
  for (const char* type : {"b64", "u64"})
    o["selp." + std::string(type)] = select<uint64_t>(Kind::integer);
  o["selp.f32"] = select<float>(Kind::floats);
  o["selp.f64"] = select<double>(Kind::floats);
  o["and.pred"] = masks(2, [](uint32_t a, uint32_t b) { return a & b; });
  o["or.pred"] = masks(2, [](uint32_t a, uint32_t b) { return a | b; });
  o["xor.pred"] = masks(2, [](uint32_t a, uint32_t b) { return a ^ b; });
  o["not.pred"] = masks(1, [](uint32_t a, uint32_t) { return ~a; });
  o["mov.pred"] = masks(1, [](uint32_t a, uint32_t) { return a; });
}

}  // namespace rotcell::ptx
