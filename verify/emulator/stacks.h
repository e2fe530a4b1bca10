// Stacks for fibers, used again and again.
#pragma once

#include <cstddef>
#include <vector>

#include "emulator/sanitizers.h"

namespace rotcell::emulator {

#if defined(ROTCELL_EMULATOR_ADDRESS) || defined(ROTCELL_EMULATOR_RACES)
inline constexpr size_t stack_bytes = 256 * 1024;  // red zones and spilled values take room
#else
inline constexpr size_t stack_bytes = 64 * 1024;
#endif

class Stacks {
 public:
  char* take();
  void give_back(char* stack);

 private:
  char* map();

  std::vector<char*> free_;
  size_t mapped_ = 0;
};

}  // namespace rotcell::emulator
