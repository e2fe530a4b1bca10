// Where threads that work on the same step wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace rotcell::cpu {

// For steps of a few microseconds. A waiting thread spins for about the time of a step, then
// sleeps, so that the thread it waits for gets a processor. If that happens repeatedly, because
// threads take turns on a processor, waiting threads sleep almost at once.
class Barrier {
 public:
  explicit Barrier(int64_t threads) : threads_(static_cast<uint32_t>(threads)) {}

  // Returns when all threads have arrived. Their earlier writes are visible then.
  void wait();

  // The total time that threads have slept here.
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
