// The threads that a call runs on. They belong to the program around us: torch's pool in the wheel,
// the drivers' own in tests.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

#include "cpu/runtime/function_ref.h"

namespace rotcell::cpu {

struct ThreadPool {
  // How many threads a call may use.
  int64_t (*threads)();
  // Whether the calling thread is inside a parallel region already.
  bool (*in_parallel)();
  // Runs body(begin, end, context) on ranges that make up [0, count), at least `least` long but for
  // the last, and returns when all are done. The body does not throw.
  void (*parallel_for)(int64_t count, int64_t least,
                       void (*body)(int64_t begin, int64_t end, void* context), void* context);
  // Inside parallel_for: the number of the calling thread. With as many threads as items, item i
  // runs on thread i. Null for a pool that promises no such thing.
  int64_t (*thread_index)();
};

// Before this is called there is one thread, the caller's.
void use_thread_pool(const ThreadPool& pool);
const ThreadPool& thread_pool();

// The first exception that one of several threads met.
class FirstException {
 public:
  template <class Body>
  void guard(const Body& body) noexcept {
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!exception_) exception_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr exception_;
};

// body(i) for all i below count, on at most this many threads.
void parallel(int64_t count, int64_t threads, FunctionRef<void(int64_t)> body);

// body(i) for all i below count at the same time, each on its own thread, so that they may wait for
// each other.
void run_together(int64_t count, FunctionRef<void(int64_t)> body);

}  // namespace rotcell::cpu
