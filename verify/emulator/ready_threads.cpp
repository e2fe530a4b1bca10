#include "emulator/ready_threads.h"

#include <algorithm>
#include <utility>

namespace rotcell::emulator {

void ReadyThreads::set_order(Order order, uint64_t seed) {
  order_ = order;
  random_state_ = seed;
}

void ReadyThreads::reset(size_t most) {
  if (storage_.size() < 2 * most) storage_.resize(2 * most);
  now_ = storage_.data();
  later_ = now_ + most;
  now_count_ = later_count_ = 0;
}

void ReadyThreads::add(Thread* thread) {
  if (order_ == Order::forward) {
    later_[later_count_++] = thread;
    return;
  }
  now_[now_count_++] = thread;
  if (order_ == Order::random) {
    Thread*& other = now_[random_below(now_count_)];
    now_[now_count_ - 1] = other;
    other = thread;
  }
}

bool ReadyThreads::turn_over() {
  std::swap(now_, later_);
  now_count_ = std::exchange(later_count_, 0);
  std::reverse(now_, now_ + now_count_);
  return now_count_ != 0;
}

// SplitMix64: a counter whose bits are mixed.
size_t ReadyThreads::random_below(size_t limit) {
  uint64_t bits = random_state_ += 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  bits ^= bits >> 31;
  return (bits >> 32) * limit >> 32;
}

}  // namespace rotcell::emulator
