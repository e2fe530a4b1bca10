// Asynchronous copies into shared memory. What is copied is there only when its thread has waited
// for it: until then the place holds NaNs, so that a wait that is missing shows.
#pragma once

#include <cstdint>
#include <cstring>

#include "emulator/waiting.h"

namespace rotcell::emulator {

inline void copy_later(void* to, const void* from, bool exists, Site site) {
  require(reinterpret_cast<uintptr_t>(to) % copy_bytes == 0 &&
              reinterpret_cast<uintptr_t>(from) % copy_bytes == 0,
          "asynchronous copy: the addresses are not aligned to 16 bytes", site);
  std::memset(to, 0xff, copy_bytes);
  begin_copy({to, from, exists}, site);
}

inline void finish_copies(unsigned groups_left) {
  Copy copy;
  while (next_finished_copy(groups_left, copy)) {
    if (copy.exists) {
      std::memcpy(copy.to, copy.from, copy_bytes);
    } else {
      std::memset(copy.to, 0, copy_bytes);
    }
  }
}

}  // namespace rotcell::emulator
