// cuda/platform/platform.h for the emulator.
#pragma once

#include "cuda/platform/grid.h"
#include "cuda/platform/stream.h"
#include "emulator/copies.h"
#include "emulator/device.h"
#include "emulator/device_math.h"
#include "emulator/half.h"
#include "emulator/intrinsics.h"
#include "emulator/launch.h"
#include "emulator/tensor_cores.h"

#define ROTCELL_GLOBAL
#define ROTCELL_DEVICE inline __attribute__((always_inline))
#define ROTCELL_LAUNCH_BOUNDS(threads)
#define ROTCELL_SHARED(T, name) T* name = reinterpret_cast<T*>(::rotcell::emulator::shared_memory())

namespace rotcell::cuda {

template <class Params>
void launch_as(emulator::Kind kind, const KernelName& name, void (*kernel)(Params),
               const Grid& grid, const Params& params) {
  struct Context {
    void (*kernel)(Params);
    const Params& params;
  } context{kernel, params};
  const auto run = [](const void* given) {
    const Context& call = *static_cast<const Context*>(given);
    call.kernel(call.params);
  };
  emulator::launch(name.text().c_str(), kind, grid,
                   {run, &context, reinterpret_cast<const void*>(kernel), &params});
}

template <class Params>
void launch(const KernelName& name, void (*kernel)(Params), const Grid& grid, Stream,
            const Params& params) {
  launch_as(emulator::Kind::ordinary, name, kernel, grid, params);
}

template <class Params>
void launch_cooperative(const KernelName& name, void (*kernel)(Params), const Grid& grid, Stream,
                        const Params& params) {
  launch_as(emulator::Kind::cooperative, name, kernel, grid, params);
}

template <class Params>
void launch_clusters(const KernelName& name, void (*kernel)(Params), const Grid& grid, Stream,
                     const Params& params) {
  launch_as(emulator::Kind::clusters, name, kernel, grid, params);
}

template <class Params>
int blocks_per_multiprocessor(void (*)(Params), unsigned threads, size_t shared_bytes) {
  return emulator::blocks_per_multiprocessor(threads, shared_bytes);
}

inline void block_barrier(emulator::Site site = emulator::here()) {
  emulator::wait_for_block(site);
}

inline constexpr bool has_clusters = true;
inline void cluster_arrive(emulator::Site site = emulator::here()) {
  emulator::arrive_at_cluster(site);
}
inline void cluster_wait(emulator::Site site = emulator::here()) {
  emulator::wait_for_cluster(site);
}
inline void store_in_cluster(uint4* own, unsigned rank, const uint4& value,
                             emulator::Site site = emulator::here()) {
  *static_cast<uint4*>(emulator::in_cluster(own, sizeof value, rank, site)) = value;
}

inline void signal(uint64_t* counter, emulator::Site site = emulator::here()) {
  emulator::signal(counter, site);
}
inline void wait_for_signals(const uint64_t* counter, uint64_t count,
                             emulator::Site site = emulator::here()) {
  emulator::wait_for_signals(counter, count, site);
}

inline void copy_async(void* to, const void* from, bool exists,
                       emulator::Site site = emulator::here()) {
  emulator::copy_later(to, from, exists, site);
}
inline void commit_copies() { emulator::commit_copies(); }
template <int groups_left>
void wait_for_copies() {
  emulator::finish_copies(groups_left);
}

inline void ldmatrix_x4(unsigned (&to)[4], const void* row,
                        emulator::Site site = emulator::here()) {
  emulator::load_matrices(to, row, site);
}
template <class T>
void mma_m16n8k16(float (&sums)[4], const unsigned (&a)[4], unsigned b_first, unsigned b_last,
                  emulator::Site site = emulator::here()) {
  emulator::multiply_add<T>(sums, a, {b_first, b_last}, site);
}

template <class T>
T load_coherent(const T* p) {
  return *p;
}

}  // namespace rotcell::cuda
