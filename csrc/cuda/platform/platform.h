// The one header between the kernels and what runs them: a GPU (nvcc) or, in tests, the emulator.
//
//   Stream, Grid                          stream.h, grid.h
//   launch, launch_cooperative            run a kernel, which takes one parameter struct by value;
//                                         the second throws LaunchRefused if the blocks do not fit
//                                         the device at once
//   blocks_per_multiprocessor             how many blocks fit; 0 if not even one does
//   ROTCELL_GLOBAL, ROTCELL_DEVICE, ROTCELL_LAUNCH_BOUNDS(threads)
//   ROTCELL_SHARED(T, name)               T* name: the dynamic shared memory, aligned to 128 bytes
//   launch_clusters                       the same for clusters of grid.cluster blocks; refused if
//                                         not all clusters fit at once
//   has_clusters                          whether kernels that are compiled now may use them: from
//                                         9.0 on
//   block_barrier                         every thread of the block must come to the same
//   signal, wait_for_signals              one thread adds to a counter in global memory; others
//                                         wait for it and see what was done before; among blocks
//                                         only of a cooperative launch
//   cluster_arrive, cluster_wait          the two halves of a barrier of all threads of a cluster:
//                                         who has waited sees what all did before they arrived
//   store_in_cluster                      writes to the same place in the shared memory of another
//                                         block: one that has begun, and exits after a barrier
//   copy_async, commit_copies,            16 bytes from global into shared memory, or zeros;
//     wait_for_copies<groups left>        makes them a group; until the thread's own have arrived,
//                                         but for the last groups. Coherent as load_coherent
//   load_coherent                         reads what other blocks wrote during the same launch
//   ldmatrix_x4, mma_m16n8k16<T>          as PTX has them, for float16 and, from 8.0 on, bfloat16;
//                                         the second with float32 sums, A by rows and B by columns.
//                                         All lanes of the warp take part
//
// By their CUDA names: threadIdx.x and its like, __syncwarp, the shuffles, __half, __nv_bfloat16,
// vector types, device mathematics.
#pragma once

#if defined(__CUDACC__)
#include "cuda/platform/platform_nvcc.h"
#elif defined(ROTCELL_EMULATOR)
#include "emulator/platform.h"
#else
#error "Kernels are compiled by nvcc, or with ROTCELL_EMULATOR defined."
#endif
