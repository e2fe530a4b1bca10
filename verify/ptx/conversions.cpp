// From one type of number to another; halves of registers.
#include <cmath>
#include <limits>

#include "emulator/half.h"
#include "ptx/each_lane.h"
#include "ptx/half_values.h"
#include "ptx/operations.h"

namespace rotcell::ptx {
namespace {

// What does not fit becomes the nearest that does, and NaN becomes 0.
template <class To, class From>
To truncated(From x) {
  if (std::isnan(x)) return 0;
  const From limit = -static_cast<From>(std::numeric_limits<To>::min());
  if (x >= limit) return std::numeric_limits<To>::max();
  if (x < -limit) return std::numeric_limits<To>::min();
  return static_cast<To>(x);
}

// For a register that may be longer than the number in it.
void run_sign_extension(Warp& warp, const Instruction& instruction, uint32_t active) {
  uint64_t* to = warp.to<uint64_t>(instruction.operands[0]);
  for_lanes(active, [&](int lane) {
    const auto number = static_cast<int32_t>(warp.number(instruction.operands[1], lane));
    to[lane] = static_cast<uint64_t>(int64_t{number});
  });
}

// {low, high} of a register, or a register of them.
template <class Whole>
void run_unpack(Warp& warp, const Instruction& instruction, uint32_t active) {
  uint32_t* low = warp.to<uint32_t>(instruction.operands[0]);
  uint32_t* high = warp.to<uint32_t>(instruction.operands[1]);
  const Slot<Whole>* from = warp.from<Whole>(instruction.operands[2]);
  constexpr int bits = 4 * sizeof(Whole);
  constexpr Whole part = (Whole{1} << bits) - 1;
  for_lanes(active, [=](int lane) {
    const Whole whole = from[lane];
    low[lane] = static_cast<uint32_t>(whole & part);
    high[lane] = static_cast<uint32_t>(whole >> bits);
  });
}

template <class Whole>
void run_pack(Warp& warp, const Instruction& instruction, uint32_t active) {
  Slot<Whole>* to = warp.to<Whole>(instruction.operands[0]);
  const uint32_t* low = warp.from<uint32_t>(instruction.operands[1]);
  const uint32_t* high = warp.from<uint32_t>(instruction.operands[2]);
  constexpr int bits = 4 * sizeof(Whole);
  constexpr Whole part = (Whole{1} << bits) - 1;
  for_lanes(active, [=](int lane) { to[lane] = (low[lane] & part) | Whole{high[lane]} << bits; });
}

}  // namespace

void add_conversions(Operations& o) {
  constexpr Kind special = Kind::special, integer = Kind::integer;
  o["cvt.s64.s32"] = {run_sign_extension, integer, {Width::eight, Width::either}};
  o["cvt.u64.u32"] = each_lane<uint64_t, uint32_t>(integer, [](uint32_t a) { return uint64_t{a}; });
  o["cvt.u32.u64"] =
      each_lane<uint32_t, uint64_t>(integer, [](uint64_t a) { return static_cast<uint32_t>(a); });
  o["cvt.u16.u32"] =
      each_lane<uint16_t, uint32_t>(integer, [](uint32_t a) { return static_cast<uint16_t>(a); });
  o["cvta.shared.u64"] =
      each_lane<uint64_t, uint64_t>(integer, [](uint64_t a) { return a | shared_window; });
  o["cvta.to.global.u64"] = each_lane<uint64_t, uint64_t>(integer, [](uint64_t a) { return a; });

  o["cvt.f64.f32"] = each_lane<double, float>(special, [](float a) { return double{a}; });
  o["cvt.rn.f32.f64"] =
      each_lane<float, double>(special, [](double a) { return static_cast<float>(a); });
  o["cvt.rni.f32.f32"] =
      each_lane<float, float>(special, [](float a) { return std::nearbyint(a); });
  o["cvt.rni.f64.f64"] =
      each_lane<double, double>(special, [](double a) { return std::nearbyint(a); });
  o["cvt.rzi.f32.f32"] = each_lane<float, float>(special, [](float a) { return std::trunc(a); });
  o["cvt.rzi.f64.f64"] = each_lane<double, double>(special, [](double a) { return std::trunc(a); });
  o["cvt.rzi.s32.f32"] =
      each_lane<int32_t, float>(special, [](float a) { return truncated<int32_t>(a); });
  o["cvt.rzi.s64.f64"] =
      each_lane<int64_t, double>(special, [](double a) { return truncated<int64_t>(a); });
  // Between 0 and 1; NaN becomes 0.
  o["cvt.sat.f32.f32"] = each_lane<float, float>(
      Kind::floats, [](float a) { return a > 0 ? a < 1 ? a : 1.0f : 0.0f; });

  o["cvt.f32.f16"] = each_lane<float, uint16_t>(special, [](uint16_t a) { return half_value(a); });
  o["cvt.rn.f16.f32"] =
      each_lane<uint16_t, float>(special, [](float a) { return emulator::half_bits(a); });
  o["cvt.f32.bf16"] =
      each_lane<float, uint16_t>(special, [](uint16_t a) { return bfloat16_value(a); });
  o["cvt.rn.bf16.f32"] =
      each_lane<uint16_t, float>(special, [](float a) { return emulator::bfloat16_bits(a); });

  const Width four = Width::four, eight = Width::eight;
  o["unpack.b32"] = {run_unpack<uint32_t>, integer, {four, four, four}, 2};
  o["unpack.b64"] = {run_unpack<uint64_t>, integer, {four, four, eight}, 2};
  o["pack.b32"] = {run_pack<uint32_t>, integer, {four, four, four}};
  o["pack.b64"] = {run_pack<uint64_t>, integer, {eight, four, four}};
}

}  // namespace rotcell::ptx
