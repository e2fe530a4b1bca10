// What kernels find under CUDA's own names: indices, barriers, shuffles, special loads.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/site.h"
#include "emulator/vector_types.h"
#include "emulator/waiting.h"

// Indices of the running thread: the emulator changes them whenever it switches threads.
extern uint3 threadIdx __attribute__((visibility("hidden")));
extern uint3 blockIdx __attribute__((visibility("hidden")));
extern dim3 blockDim __attribute__((visibility("hidden")));
extern dim3 gridDim __attribute__((visibility("hidden")));

inline void __syncthreads(rotcell::emulator::Site site = rotcell::emulator::here()) {
  rotcell::emulator::wait_for_block(site);
}

inline void __syncwarp(unsigned mask = 0xffffffff,
                       rotcell::emulator::Site site = rotcell::emulator::here()) {
  rotcell::emulator::wait_for_warp(mask, site);
}

namespace rotcell::emulator {

template <class T>
T shuffle_value(unsigned mask, T value, int source, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = shuffle(mask, bits, static_cast<unsigned>(source), site);
  std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
  return value;
}

inline int lane() { return static_cast<int>(threadIdx.x % warp_size); }

}  // namespace rotcell::emulator

// A shuffle that would reach beyond the lane's group of `width` lanes reads the lane itself.

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              rotcell::emulator::Site site = rotcell::emulator::here()) {
  const int first = rotcell::emulator::lane() & ~(width - 1);
  return rotcell::emulator::shuffle_value(mask, value, first | (source & (width - 1)), site);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  rotcell::emulator::Site site = rotcell::emulator::here()) {
  const int lane = rotcell::emulator::lane(), last = lane | (width - 1), source = lane ^ lane_mask;
  return rotcell::emulator::shuffle_value(mask, value, source > last ? lane : source, site);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   rotcell::emulator::Site site = rotcell::emulator::here()) {
  const int lane = rotcell::emulator::lane(), last = lane | (width - 1);
  const int source = lane + static_cast<int>(distance);
  return rotcell::emulator::shuffle_value(mask, value, source > last ? lane : source, site);
}

template <class T>
T __ldg(const T* p) {
  return *p;
}
