#include "cpu/runtime/barrier.h"

#include <algorithm>

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
  const uint32_t round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    // Sequentially consistent, as is what a sleeper does: one of the two sees the other.
    round_.store(round + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) round_.notify_all();
    return;
  }
  const int most_spins = spins_.load(std::memory_order_relaxed);
  for (int spins = 0; spins < most_spins; ++spins) {
    if (round_.load(std::memory_order_acquire) != round) {
      if (most_spins < kMostSpins) {
        spins_.store(std::min(2 * most_spins, kMostSpins), std::memory_order_relaxed);
      }
      return;
    }
    pause();
  }
  spins_.store(std::max(most_spins / 2, kFewestSpins), std::memory_order_relaxed);
  const auto begin = std::chrono::steady_clock::now();
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (round_.load(std::memory_order_seq_cst) == round) {
    round_.wait(round, std::memory_order_seq_cst);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  const std::chrono::nanoseconds slept = std::chrono::steady_clock::now() - begin;
  slept_.fetch_add(slept.count(), std::memory_order_relaxed);
}

}  // namespace rotcell::cpu
