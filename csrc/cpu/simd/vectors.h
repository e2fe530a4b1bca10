// Vectors of the widest registers this translation unit is compiled for, on the compiler's own
// vector types (GCC, Clang): arithmetic and comparisons are operators, so only loads, stores and
// shuffles need names.
//
// Included once per instruction set, inside the namespace ROTCELL_ISA, so that no function compiled
// for wide registers can be merged by the linker with one for narrow registers.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "cells/pair.h"
#include "cpu/bfloat16.h"

namespace rotcell::cpu::ROTCELL_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kVectorRegisters = 32;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kVectorRegisters = 16;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16;
constexpr int kVectorRegisters = 32;
#else
constexpr int kVectorBytes = 16;
constexpr int kVectorRegisters = 16;
#endif

// Those of the math with a type.
template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(MathType<T>));

template <class T>
struct VectorTypes;
template <>
struct VectorTypes<float> {
  typedef float Value __attribute__((vector_size(kVectorBytes)));
  typedef int32_t Bits __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorTypes<double> {
  typedef double Value __attribute__((vector_size(kVectorBytes)));
  typedef int64_t Bits __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vec = typename VectorTypes<MathType<T>>::Value;
template <class T>
using Bits = typename VectorTypes<MathType<T>>::Bits;

template <class T>
ROTCELL_INLINE Vec<T> broadcast(T x) {
  return x - Vec<T>{};  // x - 0 is x to the bit, also for x = -0, where 0 + x would not be
}

template <class T>
ROTCELL_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class T>
ROTCELL_INLINE void store(T* p, Vec<T> v) {
  std::memcpy(p, &v, sizeof v);
}

// All bits set in the lanes numbered below n, none in the others.
template <class T>
ROTCELL_INLINE Bits<T> first_lanes(int64_t n) {
  Bits<T> lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = i;
  const int limit = n < 0 ? 0 : n > kLanes<T> ? kLanes<T> : static_cast<int>(n);
  return lane < limit;
}

// The first n elements (any n: none below 0, all above the lanes); the other lanes are zero and
// their memory is not touched.
template <class T>
ROTCELL_INLINE Vec<T> load_first(const T* p, int64_t n) {
  if (n >= kLanes<T>) return load(p);
  if (n <= 0) return Vec<T>{};
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
  } else {
    return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1), p);
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    return _mm256_maskload_ps(p, reinterpret_cast<__m256i>(first_lanes<T>(n)));
  } else {
    return _mm256_maskload_pd(p, reinterpret_cast<__m256i>(first_lanes<T>(n)));
  }
#else
  Vec<T> v{};
  std::memcpy(&v, p, n * sizeof(T));
  return v;
#endif
}

template <class T>
ROTCELL_INLINE void store_first(T* p, Vec<T> v, int64_t n) {
  if (n >= kLanes<T>) return store(p, v);
  if (n <= 0) return;
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
  } else {
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << n) - 1), v);
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    _mm256_maskstore_ps(p, reinterpret_cast<__m256i>(first_lanes<T>(n)), v);
  } else {
    _mm256_maskstore_pd(p, reinterpret_cast<__m256i>(first_lanes<T>(n)), v);
  }
#else
  std::memcpy(p, &v, n * sizeof(T));
#endif
}

// The first n elements of a storage type, each in the low half of a lane.
ROTCELL_INLINE Bits<float> load_low_halves(const BFloat16* p, int64_t n) {
#if defined(__AVX512F__)
  const __m256i halves =
      n >= kLanes<float> ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
      : n <= 0           ? _mm256_setzero_si256()
                         : _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p);
  return reinterpret_cast<Bits<float>>(_mm512_cvtepu16_epi32(halves));
#else
  Bits<float> lanes{};
  for (int i = 0; i < kLanes<float> && i < n; ++i) lanes[i] = p[i].bits;
  return lanes;
#endif
}

// Both ways between a storage type and vectors of its math.
ROTCELL_INLINE Vec<float> load_first(const BFloat16* p, int64_t n) {
  return reinterpret_cast<Vec<float>>(load_low_halves(p, n) << 16);
}
ROTCELL_INLINE Vec<float> load(const BFloat16* p) { return load_first(p, kLanes<float>); }
ROTCELL_INLINE void store_first(BFloat16* p, Vec<float> v, int64_t n) {
#if defined(__AVX512BF16__)
  const __m256bh rounded = _mm512_cvtneps_pbh(v);
  __m256i halves;
  std::memcpy(&halves, &rounded, sizeof halves);
  if (n >= kLanes<float>) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
  } else if (n > 0) {
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1), halves);
  }
#else
  for (int i = 0; i < kLanes<float> && i < n; ++i) p[i] = v[i];
#endif
}

// x, but at least low and at most high; NaN stays NaN (the instructions return their second operand
// then).
template <class T>
ROTCELL_INLINE Vec<T> clamp(Vec<T> x, T low, T high) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return _mm512_min_ps(broadcast(high), _mm512_max_ps(broadcast(low), x));
  } else {
    return _mm512_min_pd(broadcast(high), _mm512_max_pd(broadcast(low), x));
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    return _mm256_min_ps(broadcast(high), _mm256_max_ps(broadcast(low), x));
  } else {
    return _mm256_min_pd(broadcast(high), _mm256_max_pd(broadcast(low), x));
  }
#else
  x = x < broadcast(low) ? broadcast(low) : x;
  return x > broadcast(high) ? broadcast(high) : x;
#endif
}

// a / b for b >= 1, infinity included. AVX-512 divides slowly: there an estimate of 1 / b and one
// Newton step are good to the last bit or so of a float in a third of the time.
template <class T>
ROTCELL_INLINE Vec<T> divide(Vec<T> a, Vec<T> b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    const __m512 estimate = _mm512_rcp14_ps(b);
    const __m512 error = _mm512_fnmadd_ps(b, estimate, _mm512_set1_ps(1.0f));
    const __mmask16 finite =
        _mm512_cmp_ps_mask(b, _mm512_set1_ps(0x1p126f), _CMP_NGT_UQ);  // or NaN
    return a * _mm512_maskz_fmadd_ps(finite, estimate, error, estimate);
  }
#endif
  return a / b;
}

// Lane i of the result is lane I[i] of the vectors a, b laid end to end.
template <class T, int... I>
ROTCELL_INLINE Vec<T> shuffle(Vec<T> a, Vec<T> b, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, I...);
#else
  return __builtin_shuffle(a, b, Bits<T>{I...});
#endif
}

// Turns the L vectors of an L x L block into its columns: swaps the off-diagonal quarters of all
// blocks of 2, then of 4, and so on.
template <class T, int HALF, int... I>
ROTCELL_INLINE void transpose_blocks(Vec<T> (&rows)[kLanes<T>], std::integer_sequence<int, I...>) {
  constexpr int L = kLanes<T>;
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) {
    if (i & HALF) continue;
    const Vec<T> upper = rows[i], lower = rows[i + HALF];
    rows[i] =
        shuffle<T>(upper, lower, std::integer_sequence<int, (I & HALF ? L + (I ^ HALF) : I)...>{});
    rows[i + HALF] =
        shuffle<T>(upper, lower, std::integer_sequence<int, (I & HALF ? L + I : I ^ HALF)...>{});
  }
  if constexpr (2 * HALF < L) {
    transpose_blocks<T, 2 * HALF>(rows, std::integer_sequence<int, I...>{});
  }
}

template <class T>
ROTCELL_INLINE void transpose(Vec<T> (&rows)[kLanes<T>]) {
  transpose_blocks<T, 1>(rows, std::make_integer_sequence<int, kLanes<T>>{});
}

// Units lie in memory one after the other; the cell wants the even and the odd ones of its pairs
// apart.
template <class T, int... I>
ROTCELL_INLINE Pair<Vec<T>> split_pairs(Vec<T> low, Vec<T> high, std::integer_sequence<int, I...>) {
  return {shuffle<T>(low, high, std::integer_sequence<int, 2 * I...>{}),
          shuffle<T>(low, high, std::integer_sequence<int, 2 * I + 1 ...>{})};
}

template <class T, int... I>
ROTCELL_INLINE Pair<Vec<T>> join_pairs(const Pair<Vec<T>>& p, std::integer_sequence<int, I...>) {
  constexpr int L = kLanes<T>;
  return {shuffle<T>(p.a, p.b, std::integer_sequence<int, I / 2 + I % 2 * L...>{}),
          shuffle<T>(p.a, p.b, std::integer_sequence<int, (L + I) / 2 + I % 2 * L...>{})};
}

// The first n of the 2 * kLanes units from p on.
template <class T>
ROTCELL_INLINE Pair<Vec<T>> load_pairs(const T* p, int64_t n) {
  constexpr int L = kLanes<T>;
  return split_pairs<MathType<T>>(load_first(p, n), load_first(p + L, n - L),
                                  std::make_integer_sequence<int, L>{});
}

template <class T>
ROTCELL_INLINE void store_pairs(T* p, const Pair<Vec<T>>& pairs, int64_t n) {
  constexpr int L = kLanes<T>;
  const Pair<Vec<T>> units = join_pairs<MathType<T>>(pairs, std::make_integer_sequence<int, L>{});
  store_first(p, units.a, n);
  store_first(p + L, units.b, n - L);
}

// N vectors laid end to end, N odd: takes apart what is interleaved (element N * i + k becomes lane
// i of vector k), or interleaves it again. Each result picks its lanes from one vector after the
// other.
template <class T, int N, bool APART>
struct OddInterleaving {
  static constexpr int L = kLanes<T>;

  // Where lane i of result `to` comes from, as a place in the vectors laid end to end.
  static constexpr int source(int to, int i) {
    return APART ? N * i + to : (to * L + i) % N * L + (to * L + i) / N;
  }

  template <int TO, int FROM, int... I>
  static ROTCELL_INLINE Vec<T> pick(const Vec<T> (&v)[N], Vec<T> picked,
                                    std::integer_sequence<int, I...> lanes) {
    if constexpr (FROM == N) {
      return picked;
    } else {
      picked =
          shuffle<T>(picked, v[FROM],
                     std::integer_sequence<int, (source(TO, I) / L == FROM ? L + source(TO, I) % L
                                                 : FROM == 1 && source(TO, I) < L ? source(TO, I)
                                                                                  : I)...>{});
      return pick<TO, FROM + 1>(v, picked, lanes);
    }
  }

  template <int... TO>
  static ROTCELL_INLINE void run(Vec<T> (&v)[N], std::integer_sequence<int, TO...>) {
    const Vec<T> results[N] = {
        pick<TO, 1>(v, v[0], std::make_integer_sequence<int, kLanes<T>>{})...};
    ((v[TO] = results[TO]), ...);
  }
};

// The same for any N: vectors of even and of odd elements, each with half as many interleaved.
template <class T, int N>
ROTCELL_INLINE void take_apart(Vec<T> (&v)[N]) {
  if constexpr (N % 2 == 0) {
    Vec<T> even[N / 2], odd[N / 2];
#pragma GCC unroll 32
    for (int i = 0; i < N / 2; ++i) {
      const Pair<Vec<T>> pairs =
          split_pairs<T>(v[2 * i], v[2 * i + 1], std::make_integer_sequence<int, kLanes<T>>{});
      even[i] = pairs.a;
      odd[i] = pairs.b;
    }
    take_apart<T>(even);
    take_apart<T>(odd);
#pragma GCC unroll 32
    for (int i = 0; i < N; ++i) v[i] = i % 2 == 0 ? even[i / 2] : odd[i / 2];
  } else if constexpr (N > 1) {
    OddInterleaving<T, N, true>::run(v, std::make_integer_sequence<int, N>{});
  }
}
template <class T, int N>
ROTCELL_INLINE void interleave(Vec<T> (&v)[N]) {
  if constexpr (N % 2 == 0) {
    Vec<T> even[N / 2], odd[N / 2];
#pragma GCC unroll 32
    for (int i = 0; i < N; ++i) (i % 2 == 0 ? even : odd)[i / 2] = v[i];
    interleave<T>(even);
    interleave<T>(odd);
#pragma GCC unroll 32
    for (int i = 0; i < N / 2; ++i) {
      const Pair<Vec<T>> joined =
          join_pairs<T>({even[i], odd[i]}, std::make_integer_sequence<int, kLanes<T>>{});
      v[2 * i] = joined.a;
      v[2 * i + 1] = joined.b;
    }
  } else if constexpr (N > 1) {
    OddInterleaving<T, N, false>::run(v, std::make_integer_sequence<int, N>{});
  }
}

// The first n of the N * kLanes elements from p on; element N * i + k becomes lane i of v[k].
// Not inlined, as its inverse: inlining made the kernels of large groups take minutes to compile.
template <class T, int N>
__attribute__((noinline)) void load_interleaved(const T* p, int64_t n, Vec<T> (&v)[N]) {
  constexpr int L = kLanes<T>;
#pragma GCC unroll 32
  for (int i = 0; i < N; ++i) v[i] = load_first(p + i * L, n - i * L);
  take_apart<MathType<T>>(v);
}

template <class T, int N>
__attribute__((noinline)) void store_interleaved(T* p, const Vec<T> (&v)[N], int64_t n) {
  constexpr int L = kLanes<T>;
  Vec<T> laid_out[N];
#pragma GCC unroll 32
  for (int i = 0; i < N; ++i) laid_out[i] = v[i];
  interleave<MathType<T>>(laid_out);
#pragma GCC unroll 32
  for (int i = 0; i < N; ++i) store_first(p + i * L, laid_out[i], n - i * L);
}

// The first n of the units from p on, as groups of K.
template <int K, class T>
ROTCELL_INLINE Group<Vec<T>, K> load_groups(const T* p, int64_t n) {
  if constexpr (K == 2) {
    return load_pairs(p, n);
  } else {
    Group<Vec<T>, K> groups;
    load_interleaved(p, n, groups.unit);
    return groups;
  }
}

template <class T, class V, int K>
ROTCELL_INLINE void store_groups(T* p, const Group<V, K>& groups, int64_t n) {
  if constexpr (K == 2) {
    store_pairs(p, groups, n);
  } else {
    store_interleaved(p, groups.unit, n);
  }
}

}  // namespace rotcell::cpu::ROTCELL_ISA
