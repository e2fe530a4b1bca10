// What the cell math needs from a compiler: forced inlining, and __host__ __device__ under nvcc;
// unrolled loops over the units of a group, which GPUs have no kernels for.
#pragma once

#if defined(__CUDACC__)
#define ROTCELL_INLINE __host__ __device__ __forceinline__
#define ROTCELL_UNROLL(COUNT)
#else
#define ROTCELL_INLINE inline __attribute__((always_inline))
#define ROTCELL_UNROLL(COUNT) ROTCELL_PRAGMA(GCC unroll COUNT)
#define ROTCELL_PRAGMA(WORDS) _Pragma(#WORDS)
#endif

// A compile-time constant as a value. A compiler may emit functions of std::integral_constant out
// of line, and the linker could then merge one compiled for wide registers with another.
namespace rotcell {

template <class T, T VALUE>
struct Constant {
  static constexpr T value = VALUE;
  ROTCELL_INLINE constexpr operator T() const { return VALUE; }
  ROTCELL_INLINE constexpr T operator()() const { return VALUE; }
};

}  // namespace rotcell

// Where a lambda's body must be inlined too: behind its parameter list.
#define ROTCELL_LAMBDA_INLINE __attribute__((always_inline))
