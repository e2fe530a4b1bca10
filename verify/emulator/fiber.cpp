#include "emulator/fiber.h"

namespace rotcell::emulator {

void adopt_running_thread([[maybe_unused]] Fiber& fiber) {
#if defined(ROTCELL_EMULATOR_RACES)
  fiber.racer = __tsan_get_current_fiber();
#endif
}

void prepare_fiber(Fiber& fiber, char* stack, size_t bytes, void (*entry)()) {
  fiber.stack = stack;
  fiber.bytes = bytes;
  prepare_context(fiber.context, stack, bytes, entry);
#if defined(ROTCELL_EMULATOR_ADDRESS)
  fiber.fake_stack = nullptr;
#endif
#if defined(ROTCELL_EMULATOR_RACES)
  fiber.racer = __tsan_create_fiber(0);
#endif
}

void forget_fiber([[maybe_unused]] Fiber& fiber) {
#if defined(ROTCELL_EMULATOR_RACES)
  __tsan_destroy_fiber(fiber.racer);
  fiber.racer = nullptr;
#endif
}

void arrive_first([[maybe_unused]] Fiber& from) {
#if defined(ROTCELL_EMULATOR_ADDRESS)
  const void* stack = nullptr;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &from.bytes);
  from.stack = static_cast<char*>(const_cast<void*>(stack));
#endif
}

void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool for_good) {
#if defined(ROTCELL_EMULATOR_ADDRESS)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack, to.stack, to.bytes);
#endif
#if defined(ROTCELL_EMULATOR_RACES)
  // Switching must not count as synchronization, or no race could ever be seen.
  __tsan_switch_to_fiber(to.racer, __tsan_switch_to_fiber_no_sync);
#endif
  switch_context(from.context, to.context);
#if defined(ROTCELL_EMULATOR_ADDRESS)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

}  // namespace rotcell::emulator
