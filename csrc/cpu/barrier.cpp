#include "cpu/barrier.h"

#include <thread>

namespace rotcell::cpu {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Barrier::wait() {
  constexpr int kPatience = 300;  // looks, a few microseconds
  const int64_t round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    return;
  }
  for (int looks = 0; round_.load(std::memory_order_acquire) == round; ++looks) {
    if (looks < kPatience) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace rotcell::cpu
