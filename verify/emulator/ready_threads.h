// The threads that could run now, and which of them is next.
//
// Forward: every thread runs once before any runs again, lowest first.
// Reverse: the last thread to become ready, highest first, runs as far as it can.
// Random: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/control.h"
#include "emulator/sanitizers.h"
#include "emulator/thread.h"

namespace rotcell::emulator {

class ReadyThreads {
 public:
  void set_order(Order order, uint64_t seed);
  Order order() const { return order_; }

  // Empties it; `most` is the number of threads that can be ready at a time.
  void reset(size_t most);

  ROTCELL_EMULATOR_UNWATCHED void add(Thread* thread);

  // Null when all have run that were ready; more may be there after turn_over.
  ROTCELL_EMULATOR_UNWATCHED Thread* peek() const {
    return now_count_ ? now_[now_count_ - 1] : nullptr;
  }
  ROTCELL_EMULATOR_UNWATCHED void drop() { --now_count_; }

  // Brings in those that became ready in the meantime. False when there are none.
  bool turn_over();

  // 0 to below `limit`.
  ROTCELL_EMULATOR_UNWATCHED size_t random_below(size_t limit);

 private:
  Order order_ = Order::forward;
  uint64_t random_state_ = 1;
  std::vector<Thread*> storage_;
  Thread** now_ = nullptr;  // taken from its end
  Thread** later_ = nullptr;
  size_t now_count_ = 0;
  size_t later_count_ = 0;
};

}  // namespace rotcell::emulator
