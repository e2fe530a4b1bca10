// ldmatrix and mma.m16n8k16.
#pragma once

#include <cstdint>
#include <cstring>

#include "emulator/half.h"
#include "emulator/intrinsics.h"
#include "emulator/tile_layout.h"

namespace rotcell::emulator {

// The read is the lane's own, so that sanitizers see it.
inline void load_matrices(unsigned (&to)[4], const void* row, Site site) {
  require(reinterpret_cast<uintptr_t>(row) % 16 == 0, "ldmatrix: a row is not aligned to 16 bytes",
          site);
  require(in_shared_memory(row, 16), "ldmatrix: a row is not in shared memory", site);
  MatrixRows rows{row, {}};
  exchange_rows(rows, site);
  const size_t column = static_cast<size_t>(place_in_matrix(lane(), 0).column);
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto* from = static_cast<const unsigned char*>(rows.read[matrix]);
    std::memcpy(&to[matrix], from + column * sizeof(uint16_t), sizeof(unsigned));
  }
}

// Half of a register, 0 being the low one.
template <class T>
float half_of(unsigned two, int half) {
  T value;
  value.bits = static_cast<uint16_t>(two >> 16 * half);
  return static_cast<float>(value);
}

template <class T>
void multiply_add(float (&sums)[elements_of_c], const unsigned (&a)[elements_of_a / 2],
                  const unsigned (&b)[elements_of_b / 2], Site site) {
  TileFragments fragments;
  for (int i = 0; i < elements_of_a; ++i) fragments.a[i] = half_of<T>(a[i / 2], i % 2);
  for (int i = 0; i < elements_of_b; ++i) fragments.b[i] = half_of<T>(b[i / 2], i % 2);
  std::memcpy(fragments.c, sums, sizeof sums);
  multiply_tiles(fragments, site);
  std::memcpy(sums, fragments.c, sizeof sums);
}

}  // namespace rotcell::emulator
