// cuda/platform.h for the executor.
#pragma once

#include "cuda/grid.h"
#include "cuda/stream.h"
#include "simt/copies.h"
#include "simt/device.h"
#include "simt/device_math.h"
#include "simt/half.h"
#include "simt/intrinsics.h"
#include "simt/launch.h"
#include "simt/recording.h"
#include "simt/tensor_cores.h"

#define ROTCELL_GLOBAL
#define ROTCELL_DEVICE inline __attribute__((always_inline))
#define ROTCELL_LAUNCH_BOUNDS(threads)
#define ROTCELL_SHARED(T, name) T* name = reinterpret_cast<T*>(::rotcell::simt::shared_memory())

namespace rotcell::cuda {

template <class Params>
void launch_as(simt::Kind kind, const KernelName& name, void (*kernel)(Params), const Grid& grid,
               const Params& params) {
  struct Context {
    void (*kernel)(Params);
    const Params& params;
  } context{kernel, params};
  const auto run = [](const void* given) {
    const Context& call = *static_cast<const Context*>(given);
    call.kernel(call.params);
  };
  simt::launch(name.text().c_str(), kind, grid,
               {run, &context, reinterpret_cast<const void*>(kernel), &params});
}

template <class Params>
void launch(const KernelName& name, void (*kernel)(Params), const Grid& grid, Stream stream,
            const Params& params) {
  simt::run_in_order(stream, [=] { launch_as(simt::Kind::ordinary, name, kernel, grid, params); });
}

template <class Params>
void launch_cooperative(const KernelName& name, void (*kernel)(Params), const Grid& grid,
                        Stream stream, const Params& params) {
  simt::run_in_order(stream,
                     [=] { launch_as(simt::Kind::cooperative, name, kernel, grid, params); });
}

template <class Params>
void launch_clusters(const KernelName& name, void (*kernel)(Params), const Grid& grid, Stream,
                     const Params& params) {
  launch_as(simt::Kind::clusters, name, kernel, grid, params);
}

template <class Params>
int blocks_per_multiprocessor(void (*)(Params), unsigned threads, size_t shared_bytes) {
  return simt::blocks_per_multiprocessor(threads, shared_bytes);
}

inline void block_barrier(simt::Site site = simt::here()) { simt::wait_for_block(site); }

inline constexpr bool has_clusters = true;
inline void cluster_arrive(simt::Site site = simt::here()) { simt::arrive_at_cluster(site); }
inline void cluster_wait(simt::Site site = simt::here()) { simt::wait_for_cluster(site); }
inline void store_in_cluster(uint4* own, unsigned rank, const uint4& value,
                             simt::Site site = simt::here()) {
  *static_cast<uint4*>(simt::in_cluster(own, sizeof value, rank, site)) = value;
}

inline void signal(uint64_t* counter, simt::Site site = simt::here()) {
  simt::signal(counter, site);
}
inline void wait_for_signals(const uint64_t* counter, uint64_t count,
                             simt::Site site = simt::here()) {
  simt::wait_for_signals(counter, count, site);
}

inline void copy_async(void* to, const void* from, bool exists, simt::Site site = simt::here()) {
  simt::copy_later(to, from, exists, site);
}
inline void commit_copies() { simt::commit_copies(); }
template <int groups_left>
void wait_for_copies() {
  simt::finish_copies(groups_left);
}

inline void ldmatrix_x4(unsigned (&to)[4], const void* row, simt::Site site = simt::here()) {
  simt::load_matrices(to, row, site);
}
template <class T>
void mma_m16n8k16(float (&sums)[4], const unsigned (&a)[4], unsigned b_first, unsigned b_last,
                  simt::Site site = simt::here()) {
  simt::multiply_add<T>(sums, a, {b_first, b_last}, site);
}

template <class T>
T load_coherent(const T* p) {
  return *p;
}

}  // namespace rotcell::cuda
