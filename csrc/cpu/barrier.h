// Where threads that work on the same step wait for each other.
#pragma once

#include <atomic>
#include <cstdint>

namespace rotcell::cpu {

// For steps of a few microseconds: who waits keeps its processor, unless it takes long.
class Barrier {
 public:
  explicit Barrier(int64_t threads) : threads_(threads) {}

  // Returns when all threads are here. What they wrote before can be read then.
  void wait();

 private:
  const int64_t threads_;
  alignas(64) std::atomic<int64_t> arrived_{0};
  alignas(64) std::atomic<int64_t> round_{0};
};

}  // namespace rotcell::cpu
