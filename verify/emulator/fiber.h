// A flow of control with a separate stack, announced to the sanitizers.
#pragma once

#include <cstddef>

#include "emulator/context.h"
#include "emulator/sanitizers.h"

namespace rotcell::emulator {

struct Fiber {
  Context context;
  char* stack = nullptr;  // lowest byte
  size_t bytes = 0;
#if defined(ROTCELL_EMULATOR_ADDRESS)
  void* fake_stack = nullptr;
#endif
#if defined(ROTCELL_EMULATOR_RACES)
  void* racer = nullptr;  // ThreadSanitizer's name for it
#endif
};

// Makes a fiber of the running thread, as the one from which others are entered.
void adopt_running_thread(Fiber& fiber);

void prepare_fiber(Fiber& fiber, char* stack, size_t bytes, void (*entry)());

// What ThreadSanitizer keeps of a fiber that will not run again.
void forget_fiber(Fiber& fiber);

// The first thing on a new fiber, which `from` switched to.
ROTCELL_EMULATOR_UNWATCHED void arrive_first(Fiber& from);

// With `for_good`, `from` will never be switched to again.
ROTCELL_EMULATOR_UNWATCHED void switch_fiber(Fiber& from, Fiber& to, bool for_good = false);

}  // namespace rotcell::emulator
