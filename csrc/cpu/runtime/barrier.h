// Where threads that work on the same step wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace rotcell::cpu {

// For steps of a few microseconds: who waits keeps its processor for about as long as a step takes,
// and sleeps if that was not enough, so that the thread it waits for gets a processor. Where that
// happens again and again, because threads have to take turns on a processor, waiting threads soon
// give theirs up at once.
class Barrier {
 public:
  explicit Barrier(int64_t threads) : threads_(static_cast<uint32_t>(threads)) {}

  // Returns when all threads are here. What they wrote before can be read then.
  void wait();

  // How long threads have slept here, all together.
  std::chrono::nanoseconds slept() const {
    return std::chrono::nanoseconds(slept_.load(std::memory_order_relaxed));
  }

 private:
  static constexpr int kMostSpins = 2000;  // some tens of microseconds
  static constexpr int kFewestSpins = 30;

  const uint32_t threads_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<int> spins_{kMostSpins};  // before a thread sleeps
  std::atomic<int64_t> slept_{0};       // nanoseconds
};

}  // namespace rotcell::cpu
