// What the cell maths needs from a compiler: forced inlining, and __host__ __device__ under nvcc.
#pragma once

#if defined(__CUDACC__)
#define ROTCELL_INLINE __host__ __device__ __forceinline__
#else
#define ROTCELL_INLINE inline __attribute__((always_inline))
#endif

// Where a lambda's body must be inlined too: behind its parameter list.
#define ROTCELL_LAMBDA_INLINE __attribute__((always_inline))
