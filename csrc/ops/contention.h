// Whether threads that wait for each other at every step get processors to do so. While other
// programs use them too, a step lasts until the last thread had its turn, and one thread alone is
// several times faster.
#pragma once

#include <atomic>
#include <chrono>

namespace rotcell::ops {

// Learns from how long threads slept, and forgets after a while: at first soon, later, if it was
// the same each time, seldom.
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
    if (kTolerated * slept < worked) {
      pause_.store(0, std::memory_order_relaxed);
      return;
    }
    using Pause = std::chrono::duration<int64_t, std::milli>;
    constexpr int64_t kShortest = Nanoseconds(Pause(50)).count();
    constexpr int64_t kLongest = Nanoseconds(Pause(2000)).count();
    const int64_t doubled = 2 * pause_.load(std::memory_order_relaxed);
    const int64_t pause = doubled < kShortest ? kShortest : doubled < kLongest ? doubled : kLongest;
    pause_.store(pause, std::memory_order_relaxed);
    const Clock::time_point end =
        now + std::chrono::duration_cast<Clock::duration>(Nanoseconds(pause));
    until_.store(end.time_since_epoch().count(), std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> pause_{0};  // nanoseconds; 0 if all went well
  std::atomic<Clock::rep> until_{Clock::rep{INT64_MIN}};
};

}  // namespace rotcell::ops
