// platform.h for a GPU.
#pragma once

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include "cuda/grid.h"
#include "cuda/stream.h"

#define ROTCELL_GLOBAL __global__
#define ROTCELL_DEVICE __device__ __forceinline__
// One block a multiprocessor is enough: registers count for more than a second one.
#define ROTCELL_LAUNCH_BOUNDS(threads) __launch_bounds__(threads, 1)
#define ROTCELL_SHARED(T, name)                                    \
  extern __shared__ __align__(128) unsigned char rotcell_shared[]; \
  T* name = reinterpret_cast<T*>(rotcell_shared)

namespace rotcell::cuda {

// What any kernel may use; for more it has to ask.
inline constexpr size_t shared_bytes_without_asking = 48 * 1024;

inline cudaError_t allow_shared_bytes(const void* kernel, size_t bytes) {
  if (bytes <= shared_bytes_without_asking) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

template <class Params, class Launcher>
void launch_with(Launcher launcher, const char* name, void (*kernel)(Params), const Grid& grid,
                 Stream stream, const Params& params) {
  if (grid.blocks == 0) return;
  const void* function = reinterpret_cast<const void*>(kernel);
  void* arguments[] = {const_cast<Params*>(&params)};
  cudaError_t error = allow_shared_bytes(function, grid.shared_bytes);
  if (error == cudaSuccess)
    error = launcher(function, dim3(grid.blocks), dim3(grid.threads), arguments, grid.shared_bytes,
                     stream);
  if (error == cudaSuccess) return;
  cudaGetLastError();  // reported here: the next one to ask shall not find it again
  launch_failed(name, grid, cudaGetErrorString(error));
}

template <class Params>
void launch(const char* name, void (*kernel)(Params), const Grid& grid, Stream stream,
            const Params& params) {
  const auto launcher = [](auto... arguments) { return cudaLaunchKernel(arguments...); };
  launch_with(launcher, name, kernel, grid, stream, params);
}

template <class Params>
void launch_cooperative(const char* name, void (*kernel)(Params), const Grid& grid, Stream stream,
                        const Params& params) {
  const auto launcher = [](auto... arguments) { return cudaLaunchCooperativeKernel(arguments...); };
  launch_with(launcher, name, kernel, grid, stream, params);
}

template <class Params>
int blocks_per_multiprocessor(void (*kernel)(Params), unsigned threads, size_t shared_bytes) {
  const void* function = reinterpret_cast<const void*>(kernel);
  int blocks = 0;
  cudaError_t error = allow_shared_bytes(function, shared_bytes);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function,
                                                          static_cast<int>(threads), shared_bytes);
  if (error == cudaSuccess) return blocks;
  cudaGetLastError();  // a size that does not fit at all is an answer, not an error
  return 0;
}

ROTCELL_DEVICE void block_barrier() { __syncthreads(); }
ROTCELL_DEVICE void grid_barrier() { cooperative_groups::this_grid().sync(); }

// Through L2, which all blocks share; L1 may hold what was there before.
template <class T>
ROTCELL_DEVICE T load_coherent(const T* p) {
  if constexpr (sizeof(T) == 2) {
    const unsigned short bits = __ldcg(reinterpret_cast<const unsigned short*>(p));
    T value;
    memcpy(static_cast<void*>(&value), &bits, sizeof bits);
    return value;
  } else {
    return __ldcg(p);
  }
}

}  // namespace rotcell::cuda
