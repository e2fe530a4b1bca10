#include "emulator/stacks.h"

#include <sys/mman.h>

#include <new>

namespace rotcell::emulator {
namespace {

// A page below each stack that may not be touched turns an overflow into a crash. It costs a
// mapping, of which Linux grants a process some 65000, so the stacks of very large launches go
// without.
constexpr size_t guard_bytes = 4096;
constexpr size_t most_guarded_stacks = 8192;

}  // namespace

char* Stacks::map() {
  void* memory = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (mapped_++ < most_guarded_stacks) mprotect(memory, guard_bytes, PROT_NONE);
  return static_cast<char*>(memory) + guard_bytes;
}

char* Stacks::take() {
  if (free_.empty()) return map();
  char* stack = free_.back();
  free_.pop_back();
  return stack;
}

void Stacks::give_back(char* stack) {
#if defined(ROTCELL_EMULATOR_RACES)
  // ThreadSanitizer must forget who wrote here: the next owner is another CUDA thread.
  munmap(stack - guard_bytes, guard_bytes + stack_bytes);
  --mapped_;
#else
#if defined(ROTCELL_EMULATOR_ADDRESS)
  __asan_unpoison_memory_region(stack, stack_bytes);
#endif
  free_.push_back(stack);
#endif
}

}  // namespace rotcell::emulator
