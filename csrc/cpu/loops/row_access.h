// Between memory and a cell whose math sees whole rows: vectors of units, vectors of pairs, sums.
#pragma once

#include <cstring>

#include "cpu/loops/units.h"

namespace rotcell::cpu::ROTCELL_ISA {

template <class T>
struct RowAccess {
  using Math = VectorMath<T>;
  using V = Vec<T>;
  static constexpr int L = kLanes<T>;

  // The units that one vector holds.
  struct Units {
    int64_t first, count;
  };

  // body(units) for every vector of a row; the count is a compile-time constant for all but the
  // last.
  template <class Body>
  static ROTCELL_INLINE void for_units(int64_t count, const Body& body) {
    int64_t unit = 0;
    for (; unit + L <= count; unit += L) body(Units{unit, L});
    if (unit < count) body(Units{unit, count - unit});
  }
  // Lanes beyond the end of a row are zero.
  static ROTCELL_INLINE V load(const T* row, const Units& units) {
    return load_first(row + units.first, units.count);
  }
  static ROTCELL_INLINE void store(T* row, V v, const Units& units) {
    store_first(row + units.first, v, units.count);
  }
  static ROTCELL_INLINE void add(T* row, V v, const Units& units) {
    store(row, load(row, units) + v, units);
  }
  static ROTCELL_INLINE void copy(const T* from, T* to, int64_t count) {
    std::memcpy(to, from, count * sizeof(T));
  }

  // v, with zeros in the lanes beyond the end of the row.
  static ROTCELL_INLINE V only(V v, const Units& units) {
    return units.count >= L ? v : first_lanes<T>(units.count) ? v : V{};
  }
  static ROTCELL_INLINE V all(T x) { return broadcast(x); }
  // The sum of all lanes, in the same order for every row.
  static ROTCELL_INLINE T sum(V v) { return sum_of_halves<L / 2>(v); }

  // body(pairs) for every vector of pairs.
  template <class Body>
  static ROTCELL_INLINE void for_pairs(int64_t count, const Body& body) {
    for_groups<T, 2>({0, count}, body);
  }
  static ROTCELL_INLINE Pair<V> load_pairs(const T* row, const GroupVector& pairs) {
    return ROTCELL_ISA::load_pairs(row + pairs.unit, pairs.units);
  }
  static ROTCELL_INLINE void store_pairs(T* row, const Pair<V>& v, const GroupVector& pairs) {
    ROTCELL_ISA::store_pairs(row + pairs.unit, v, pairs.units);
  }
  // Numbers of which there is one per pair.
  static ROTCELL_INLINE V load_of_pairs(const T* row, const GroupVector& pairs) {
    return load_first(row + pairs.unit / 2, pairs.groups);
  }
  static ROTCELL_INLINE void store_of_pairs(T* row, V v, const GroupVector& pairs) {
    store_first(row + pairs.unit / 2, v, pairs.groups);
  }
  static ROTCELL_INLINE void add_of_pairs(T* row, V v, const GroupVector& pairs) {
    store_of_pairs(row, load_of_pairs(row, pairs) + v, pairs);
  }
  // v, with `otherwise` for a last unit without a partner.
  static ROTCELL_INLINE V where_paired(V v, V otherwise, const GroupVector& pairs) {
    return pairs.groups >= L ? v : first_lanes<T>(pairs.groups) ? v : otherwise;
  }

 private:
  template <int HALF>
  static ROTCELL_INLINE T sum_of_halves(V v) {
    if constexpr (HALF == 0) {
      return v[0];
    } else {
      return sum_of_halves<HALF / 2>(v +
                                     swap_halves<HALF>(v, std::make_integer_sequence<int, L>{}));
    }
  }
  template <int HALF, int... I>
  static ROTCELL_INLINE V swap_halves(V v, std::integer_sequence<int, I...>) {
    return shuffle<T>(v, v, std::integer_sequence<int, (I ^ HALF)...>{});
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
