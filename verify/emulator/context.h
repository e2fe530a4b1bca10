// A place where execution can be left and taken up again: a stack pointer on x86-64, a ucontext
// elsewhere (or anywhere with ROTCELL_EMULATOR_UCONTEXT, which the tests define once).
#pragma once

#include <cstddef>

#include "emulator/sanitizers.h"

#if defined(__x86_64__) && !defined(ROTCELL_EMULATOR_UCONTEXT)

// Saves what a call must preserve on the present stack, stores the stack pointer in *save, and
// continues where `stack_pointer` was stored.
extern "C" void rotcell_emulator_switch(void** save, void* stack_pointer);

namespace rotcell::emulator {

struct Context {
  void* stack_pointer;
};

ROTCELL_EMULATOR_UNWATCHED inline void switch_context(Context& from, const Context& to) {
  rotcell_emulator_switch(&from.stack_pointer, to.stack_pointer);
}

}  // namespace rotcell::emulator

#else

#include <ucontext.h>

namespace rotcell::emulator {

struct Context {
  ucontext_t state;
};

ROTCELL_EMULATOR_UNWATCHED inline void switch_context(Context& from, const Context& to) {
  swapcontext(&from.state, &to.state);
}

}  // namespace rotcell::emulator

#endif

namespace rotcell::emulator {

// A context that runs `entry`, which must never return, on the given stack.
void prepare_context(Context& context, char* stack, size_t bytes, void (*entry)());

}  // namespace rotcell::emulator
