// Operations that act on each lane separately.
#pragma once

#include <bit>
#include <type_traits>
#include <utility>

#include "ptx/warp.h"

namespace rotcell::ptx {

template <class T>
constexpr Width width_of() {
  return sizeof(T) == 8 ? Width::eight : Width::four;
}

template <class T>
inline __attribute__((always_inline)) T value_in(Slot<T> slot) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<T>(slot);
  } else {
    return static_cast<T>(slot);
  }
}

template <class T>
inline __attribute__((always_inline)) Slot<T> slot_of(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<Slot<T>>(value);
  } else {
    return static_cast<Slot<T>>(std::make_unsigned_t<T>(value));
  }
}

// result = F(arguments...).
template <class F, class Result, class... Arguments>
void run_each_lane(Warp& warp, const Instruction& instruction, uint32_t active) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    Slot<Result>* to = warp.to<Result>(instruction.operands[0]);
    const auto run = [=](const Slot<Arguments>*... from) {
      for_lanes(active, [=](int lane) {
        to[lane] = slot_of<Result>(F{}(value_in<Arguments>(from[lane])...));
      });
    };
    run(warp.from<Arguments>(instruction.operands[I + 1])...);
  }(std::index_sequence_for<Arguments...>{});
}

template <class Result, class... Arguments, class F>
Operation each_lane(Kind kind, F) {
  return {
      run_each_lane<F, Result, Arguments...>, kind, {width_of<Result>(), width_of<Arguments>()...}};
}

// A predicate of two numbers.
template <class F, class T>
void run_comparison(Warp& warp, const Instruction& instruction, uint32_t active) {
  const Slot<T>*a = warp.from<T>(instruction.operands[1]),
        *b = warp.from<T>(instruction.operands[2]);
  uint32_t found = 0;
  for_lanes(active, [&](int lane) {
    found |= static_cast<uint32_t>(F{}(value_in<T>(a[lane]), value_in<T>(b[lane]))) << lane;
  });
  uint32_t& mask = warp.mask_to(instruction.operands[0]);
  mask = (mask & ~active) | found;
}

template <class T, class F>
Operation comparison(F) {
  return {run_comparison<F, T>,
          std::is_floating_point_v<T> ? Kind::floats : Kind::integer,
          {Width::predicate, width_of<T>(), width_of<T>()}};
}

}  // namespace rotcell::ptx
