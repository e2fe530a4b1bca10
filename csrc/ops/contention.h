// Whether threads that wait for each other at every step get processors to do so. While other
// programs use them too, a step lasts until the last thread had its turn, and one thread alone is
// several times faster.
#pragma once

#include <atomic>
#include <chrono>

namespace rotcell::ops {

// Learns from how long threads slept, and tries again after a pause, which is longer the more often
// they slept before.
class Contention {
 public:
  using Clock = std::chrono::steady_clock;
  using Nanoseconds = std::chrono::nanoseconds;

  // Whether threads had better not wait for each other now.
  bool expected(Clock::time_point now = Clock::now()) const {
    return now.time_since_epoch().count() < until_.load(std::memory_order_relaxed);
  }

  // Threads worked together for some time, of which they slept so long, all of them added up.
  void learn(Nanoseconds worked, Nanoseconds slept, Clock::time_point now = Clock::now()) {
    constexpr int kTolerated = 4;  // a fourth of the time
    constexpr int64_t kShortest = Nanoseconds(std::chrono::milliseconds(200)).count();
    constexpr int64_t kLongest = Nanoseconds(std::chrono::milliseconds(2000)).count();
    const int64_t before = pause_.load(std::memory_order_relaxed);
    if (kTolerated * slept < worked) {
      // Luck within a call that has begun before the pause tells nothing.
      if (before > 0 && !expected(now)) {
        pause_.store(before > kShortest ? before / 2 : 0, std::memory_order_relaxed);
      }
      return;
    }
    const int64_t doubled = 2 * before;
    const int64_t pause = doubled < kShortest ? kShortest : doubled < kLongest ? doubled : kLongest;
    pause_.store(pause, std::memory_order_relaxed);
    const Clock::time_point end =
        now + std::chrono::duration_cast<Clock::duration>(Nanoseconds(pause));
    until_.store(end.time_since_epoch().count(), std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> pause_{0};  // nanoseconds; 0 while all goes well
  std::atomic<Clock::rep> until_{Clock::rep{INT64_MIN}};
};

}  // namespace rotcell::ops
