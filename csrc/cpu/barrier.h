// Where threads that work on the same step wait for each other.
#pragma once

#include <atomic>
#include <cstdint>

namespace rotcell::cpu {

// For steps of a few microseconds: who waits keeps its processor for about as long as a step takes,
// and sleeps if that was not enough, so that the thread it waits for gets a processor.
class Barrier {
 public:
  explicit Barrier(int64_t threads) : threads_(static_cast<uint32_t>(threads)) {}

  // Returns when all threads are here. What they wrote before can be read then.
  void wait();

 private:
  const uint32_t threads_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace rotcell::cpu
