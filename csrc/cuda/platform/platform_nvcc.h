// platform.h for a GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "cuda/platform/grid.h"
#include "cuda/platform/stream.h"

#define ROTCELL_GLOBAL __global__
#define ROTCELL_DEVICE __device__ __forceinline__
// One block per multiprocessor: more registers per thread help more than a second block.
#define ROTCELL_LAUNCH_BOUNDS(threads) __launch_bounds__(threads, 1)
#define ROTCELL_SHARED(T, name)                                    \
  extern __shared__ __align__(128) unsigned char rotcell_shared[]; \
  T* name = reinterpret_cast<T*>(rotcell_shared)

namespace rotcell::cuda {

// The limit without cudaFuncSetAttribute.
inline constexpr size_t shared_bytes_without_asking = 48 * 1024;

inline cudaError_t allow_shared_bytes(const void* kernel, size_t bytes) {
  if (bytes <= shared_bytes_without_asking) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

template <class Params, class Launcher>
cudaError_t launch_with(Launcher launcher, void (*kernel)(Params), const Grid& grid, Stream stream,
                        const Params& params) {
  const void* function = reinterpret_cast<const void*>(kernel);
  void* arguments[] = {const_cast<Params*>(&params)};
  cudaError_t error = allow_shared_bytes(function, grid.shared_bytes);
  if (error == cudaSuccess)
    error = launcher(function, dim3(grid.blocks), dim3(grid.threads), arguments, grid.shared_bytes,
                     stream);
  // Clear CUDA's sticky error; the caller reports it.
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

template <class Params>
void launch(const KernelName& name, void (*kernel)(Params), const Grid& grid, Stream stream,
            const Params& params) {
  if (grid.blocks == 0) return;
  const auto launcher = [](auto... arguments) { return cudaLaunchKernel(arguments...); };
  const cudaError_t error = launch_with(launcher, kernel, grid, stream, params);
  if (error != cudaSuccess) launch_failed(name, grid, cudaGetErrorString(error));
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

// Multiprocessors of the current device; 0 if unknown.
inline int64_t multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess)
    return count;
  cudaGetLastError();
  return 0;
}

template <class Params>
void launch_cooperative(const KernelName& name, void (*kernel)(Params), const Grid& grid,
                        Stream stream, const Params& params) {
  if (grid.blocks == 0) return;
  const int64_t at_once =
      multiprocessors() * blocks_per_multiprocessor(kernel, grid.threads, grid.shared_bytes);
  if (at_once < grid.blocks) launch_refused(name, grid, at_once);
  const auto launcher = [](auto... arguments) { return cudaLaunchCooperativeKernel(arguments...); };
  const cudaError_t error = launch_with(launcher, kernel, grid, stream, params);
  // Others may have a part of the device (MPS), or it may be one that cannot at all.
  if (error == cudaErrorCooperativeLaunchTooLarge || error == cudaErrorNotSupported)
    launch_failed<LaunchRefused>(name, grid, cudaGetErrorString(error));
  if (error != cudaSuccess) launch_failed(name, grid, cudaGetErrorString(error));
}

// Every device with clusters has those of up to 8 blocks; larger ones must be asked for.
inline constexpr unsigned portable_cluster = 8;

template <class Params>
void launch_clusters(const KernelName& name, void (*kernel)(Params), const Grid& grid,
                     Stream stream, const Params& params) {
  if (grid.blocks == 0) return;
  const void* function = reinterpret_cast<const void*>(kernel);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {grid.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid.blocks);
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int at_once = 0;
  cudaError_t error = allow_shared_bytes(function, grid.shared_bytes);
  if (error == cudaSuccess && grid.cluster > portable_cluster)
    error = cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&at_once, function, &config);
  if (error != cudaSuccess) {
    cudaGetLastError();  // a size that does not fit at all is an answer, not an error
    at_once = 0;
  }
  const int64_t blocks_at_once = int64_t{at_once} * grid.cluster;
  if (blocks_at_once < grid.blocks) launch_refused(name, grid, blocks_at_once);
  void* arguments[] = {const_cast<Params*>(&params)};
  error = cudaLaunchKernelExC(&config, function, arguments);
  if (error == cudaSuccess) return;
  cudaGetLastError();
  launch_failed(name, grid, cudaGetErrorString(error));
}

ROTCELL_DEVICE void block_barrier() { __syncthreads(); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool has_clusters = true;
ROTCELL_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
ROTCELL_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
ROTCELL_DEVICE void store_in_cluster(uint4* own, unsigned rank, const uint4& value) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(own))), "r"(rank));
  asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(there), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
#else
// The plan never asks for them here.
inline constexpr bool has_clusters = false;
ROTCELL_DEVICE void cluster_arrive() {}
ROTCELL_DEVICE void cluster_wait() {}
ROTCELL_DEVICE void store_in_cluster(uint4*, unsigned, const uint4&) {}
#endif

// Release and acquire are cumulative: with a block barrier before the release and after the
// acquire, all threads of one block see all writes of the other.
ROTCELL_DEVICE void signal(uint64_t* counter) {
  asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(__cvta_generic_to_global(counter))
               : "memory");
}
ROTCELL_DEVICE void wait_for_signals(const uint64_t* counter, uint64_t count) {
  uint64_t found;
  do {
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
                 : "=l"(found)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
  } while (found < count);
}

// Architectures without asynchronous copies copy at once: the compiler groups several loads of a
// loop, but nothing else overlaps with them.
ROTCELL_DEVICE void copy_async(void* to, const void* from, bool exists) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  *static_cast<uint4*>(to) = exists ? __ldcg(static_cast<const uint4*>(from)) : uint4{};
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(__cvta_generic_to_global(from)), "r"(exists ? 16 : 0)
               : "memory");
#endif
}
ROTCELL_DEVICE void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kGroupsLeft>
ROTCELL_DEVICE void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
#endif
}

// Volatile, so that the compiler does not move it across barriers.
ROTCELL_DEVICE void ldmatrix_x4(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row))));
}

template <class T>
ROTCELL_DEVICE void mma_m16n8k16(float (&sums)[4], const unsigned (&a)[4], unsigned b_first,
                                 unsigned b_last);
template <>
ROTCELL_DEVICE void mma_m16n8k16<__half>(float (&sums)[4], const unsigned (&a)[4], unsigned b_first,
                                         unsigned b_last) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  // The columns of A in two halves; what the lanes hold is the same.
  const auto half = [&](unsigned a_above, unsigned a_below, unsigned b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a_above), "r"(a_below), "r"(b));
  };
  half(a[0], a[1], b_first);
  half(a[2], a[3], b_last);
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_first), "r"(b_last));
#endif
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
template <>
ROTCELL_DEVICE void mma_m16n8k16<__nv_bfloat16>(float (&sums)[4], const unsigned (&a)[4],
                                                unsigned b_first, unsigned b_last) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_first), "r"(b_last));
}
#endif

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
