// The steps of a sequence as one thread's rows of the batch see them.
#pragma once

#include <cstdint>

#include "cpu/kernels.h"
#include "cpu/simd.h"

namespace rotcell::cpu::ROTCELL_ISA {

struct RowStep {
  int64_t begin, end;  // the rows alive at this step
  int64_t
      carried_end;  // rows [begin, carried_end) come from the step before, the others start here
  int64_t finished_begin;  // rows [finished_begin, end) end here
  int64_t token;           // tokens of this step are token + row
  int64_t token_before;    // tokens of the step before are token_before + row
};

// position counts steps in the order of processing; end <= begin if none of the rows is alive.
inline RowStep row_step(const Steps& steps, RowRange rows, int64_t position) {
  const auto alive_end = [&](int64_t step) {
    if (step < 0 || step >= steps.count) return rows.begin;
    const int64_t alive = steps.batch_sizes[step];
    return alive < rows.begin ? rows.begin : alive < rows.end ? alive : rows.end;
  };
  const int64_t step = steps.reverse ? steps.count - 1 - position : position;
  const int64_t before = steps.reverse ? step + 1 : step - 1;
  const int64_t after = steps.reverse ? step - 1 : step + 1;
  const int64_t end = alive_end(step);
  const auto at_most_end = [&](int64_t row) { return row < end ? row : end; };
  return {rows.begin,
          end,
          at_most_end(alive_end(before)),
          at_most_end(alive_end(after)),
          steps.offsets[step],
          position > 0 ? steps.offsets[before] : 0};
}

// Calls body(unit, units, angles) for every vector of pairs: units and angles are how many exist
// from there on, constants of the compiler for all but the last vector.
template <class T, class Body>
ROTCELL_INLINE void for_pairs(UnitRange range, const Body& body) {
  constexpr int L = kLanes<T>;
  int64_t unit = range.begin;
  for (; unit + 2 * L <= range.end; unit += 2 * L) body(unit, int64_t{2 * L}, int64_t{L});
  if (unit < range.end) body(unit, range.end - unit, (range.end - unit) / 2);
}

// Angles before activation; -inf, no rotation, for a last unit that has no partner.
template <class T>
ROTCELL_INLINE Vec<T> load_angles(const T* p, int64_t n) {
  const Vec<T> angles = load_first(p, n);
  if (n >= kLanes<T>) return angles;
  return first_lanes<T>(n) ? angles : broadcast(-static_cast<T>(__builtin_inf()));
}

// Copies some columns of rows that are `width` wide.
template <class T>
inline void copy_rows(const T* from, T* to, int64_t rows, int64_t width, UnitRange columns) {
  if (from == to || rows <= 0) return;
  const int64_t count = columns.end - columns.begin;
  if (count == width) {
    std::memcpy(to, from, rows * width * sizeof(T));
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * width + columns.begin;
    std::memcpy(to + first, from + first, count * sizeof(T));
  }
}

inline void wait_for_others(const Work& work) {
  if (work.others) work.others->wait();
}

}  // namespace rotcell::cpu::ROTCELL_ISA
