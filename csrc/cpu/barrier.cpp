#include "cpu/barrier.h"

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
  constexpr int kSpinLimit = 2000;  // some tens of microseconds
  const uint32_t round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    // Sequentially consistent, as is what a sleeper does: one of the two sees the other.
    round_.store(round + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) round_.notify_all();
    return;
  }
  for (int spins = 0; spins < kSpinLimit; ++spins) {
    if (round_.load(std::memory_order_acquire) != round) return;
    pause();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (round_.load(std::memory_order_seq_cst) == round) {
    round_.wait(round, std::memory_order_seq_cst);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace rotcell::cpu
