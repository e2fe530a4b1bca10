// Whether threads that wait for each other at every step get a processor each. While other programs
// compete for the processors, a step lasts until the last thread gets its turn, and a single thread
// is several times faster.
#pragma once

#include <atomic>
#include <chrono>

namespace rotcell::cpu {

// Learns from how long threads slept, and lets them try again after a pause, which grows with the
// number of failures.
class Contention {
 public:
  using Clock = std::chrono::steady_clock;
  using Nanoseconds = std::chrono::nanoseconds;

  enum class Advice {
    kWaitForEachOther,
    kWorkAlone,
    kLookFirst,  // a pause is over: try again, unless other programs visibly need the processors
  };

  Advice advice(Clock::time_point now = Clock::now()) const {
    if (in_pause(now)) return Advice::kWorkAlone;
    return pause_.load(std::memory_order_relaxed) > 0 ? Advice::kLookFirst
                                                      : Advice::kWaitForEachOther;
  }

  // Another pause as long as the last.
  void put_off(Clock::time_point now = Clock::now()) {
    begin_pause(now, pause_.load(std::memory_order_relaxed));
  }

  // Threads worked together for some time, of which they slept so long, all of them added up.
  void learn(Nanoseconds worked, Nanoseconds slept, Clock::time_point now = Clock::now()) {
    constexpr int64_t kShortest = 200 * kMillisecond, kLongest = 2000 * kMillisecond;
    // A processor may be taken away briefly at any time, for most of a short call. Only this much
    // sleep counts.
    constexpr int64_t kTelling = 2 * kMillisecond;
    const int64_t before = pause_.load(std::memory_order_relaxed);
    const Times lately = remember({worked.count(), slept.count()});
    if (lately.slept < kTelling || lately.is_good()) {
      if (!Times{worked.count(), slept.count()}.is_good()) return;
      // A fast call that began before the pause is no evidence.
      if (before > 0 && !in_pause(now)) {
        pause_.store(before > kShortest ? before / 2 : 0, std::memory_order_relaxed);
      }
      return;
    }
    const int64_t doubled = 2 * before;
    const int64_t pause = doubled < kShortest ? kShortest : doubled < kLongest ? doubled : kLongest;
    pause_.store(pause, std::memory_order_relaxed);
    forget();
    begin_pause(now, pause);
  }

 private:
  static constexpr int64_t kMillisecond = 1'000'000;  // nanoseconds

  // In nanoseconds.
  struct Times {
    int64_t worked, slept;

    bool is_good() const { return 4 * slept < worked; }
  };

  // Adds to the recent totals. Concurrent calls may lose some of it.
  Times remember(Times more) {
    constexpr int64_t kMost = 20 * kMillisecond;
    const Times all{worked_.load(std::memory_order_relaxed) + more.worked,
                    slept_.load(std::memory_order_relaxed) + more.slept};
    if (all.worked > kMost) {  // older measurements count less
      const double part = static_cast<double>(kMost) / 2 / static_cast<double>(all.worked);
      store({kMost / 2, static_cast<int64_t>(static_cast<double>(all.slept) * part)});
    } else {
      store(all);
    }
    return all;
  }
  void forget() { store({0, 0}); }
  void store(Times times) {
    worked_.store(times.worked, std::memory_order_relaxed);
    slept_.store(times.slept, std::memory_order_relaxed);
  }

  bool in_pause(Clock::time_point now) const {
    return now.time_since_epoch().count() < until_.load(std::memory_order_relaxed);
  }
  void begin_pause(Clock::time_point now, int64_t nanoseconds) {
    const Clock::time_point end =
        now + std::chrono::duration_cast<Clock::duration>(Nanoseconds(nanoseconds));
    until_.store(end.time_since_epoch().count(), std::memory_order_relaxed);
  }

  std::atomic<int64_t> worked_{0}, slept_{0};  // recent totals
  std::atomic<int64_t> pause_{0};              // nanoseconds; 0 without failures
  std::atomic<Clock::rep> until_{Clock::rep{INT64_MIN}};
};

}  // namespace rotcell::cpu
