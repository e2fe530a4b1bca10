#include "emulator/context.h"

#include <cstdint>

#if defined(__x86_64__) && !defined(ROTCELL_EMULATOR_UCONTEXT)

asm(R"(
.text
.globl rotcell_emulator_switch
.hidden rotcell_emulator_switch
.type rotcell_emulator_switch, @function
rotcell_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size rotcell_emulator_switch, .-rotcell_emulator_switch
)");

namespace rotcell::emulator {

void prepare_context(Context& context, char* stack, size_t bytes, void (*entry)()) {
  constexpr int saved_registers = 6;
  const uintptr_t top = reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15};
  void** slot = reinterpret_cast<void**>(top);
  *--slot = nullptr;  // where a return address would be: puts the stack as a call leaves it
  *--slot = reinterpret_cast<void*>(entry);
  for (int i = 0; i < saved_registers; ++i) *--slot = nullptr;
  context.stack_pointer = slot;
}

}  // namespace rotcell::emulator

#else

namespace rotcell::emulator {

void prepare_context(Context& context, char* stack, size_t bytes, void (*entry)()) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = stack;
  context.state.uc_stack.ss_size = bytes;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}

}  // namespace rotcell::emulator

#endif
