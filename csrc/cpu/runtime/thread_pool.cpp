#include "cpu/runtime/thread_pool.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace rotcell::cpu {
namespace {

constexpr ThreadPool kOnlyTheCaller{
    .threads = [] { return int64_t{1}; },
    .in_parallel = [] { return false; },
    .parallel_for = [](int64_t count, int64_t, void (*body)(int64_t, int64_t, void*),
                       void* context) { body(0, count, context); },
    .thread_index = nullptr,
};

ThreadPool pool_in_use = kOnlyTheCaller;

// As ThreadPool::parallel_for, for a body that may throw.
void parallel_ranges(int64_t count, int64_t least, FunctionRef<void(int64_t, int64_t)> body) {
  struct Context {
    FunctionRef<void(int64_t, int64_t)> body;
    FirstException exception;
  } context{body, {}};
  const auto call = [](int64_t begin, int64_t end, void* known) {
    auto& at = *static_cast<Context*>(known);
    at.exception.guard([&] { at.body(begin, end); });
  };
  pool_in_use.parallel_for(count, least, call, &context);
  context.exception.rethrow();
}

// Holds threads back until all are there. An atomic: std::condition_variable::wait would need the
// C++ library of GCC 12.
class StartGate {
 public:
  enum class Signal : int { kWait, kGo, kGiveUp };

  void open(Signal signal) {
    signal_.store(signal, std::memory_order_release);
    signal_.notify_all();
  }
  Signal wait() {
    signal_.wait(Signal::kWait, std::memory_order_acquire);
    return signal_.load(std::memory_order_acquire);
  }

 private:
  std::atomic<Signal> signal_{Signal::kWait};
};

// As run_together, on new threads.
void run_on_new_threads(int64_t count, FunctionRef<void(int64_t)> body) {
  FirstException exception;
  StartGate gate;
  std::vector<std::thread> threads;
  const auto finish = [&](StartGate::Signal signal) {
    gate.open(signal);
    if (signal == StartGate::Signal::kGo) exception.guard([&] { body(0); });
    for (std::thread& thread : threads) thread.join();
  };
  try {
    threads.reserve(static_cast<size_t>(count - 1));
    for (int64_t i = 1; i < count; ++i) {
      threads.emplace_back([&, i] {
        if (gate.wait() == StartGate::Signal::kGo) exception.guard([&] { body(i); });
      });
    }
  } catch (const std::exception& error) {
    finish(StartGate::Signal::kGiveUp);
    throw std::runtime_error("rotcell: could not start " + std::to_string(count - 1) +
                             " more threads (" + error.what() +
                             "); torch.set_num_threads sets how many are used");
  }
  finish(StartGate::Signal::kGo);
  exception.rethrow();
}

}  // namespace

void use_thread_pool(const ThreadPool& pool) { pool_in_use = pool; }

const ThreadPool& thread_pool() { return pool_in_use; }

void parallel(int64_t count, int64_t threads, FunctionRef<void(int64_t)> body) {
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  };
  if (count <= 1 || threads == 1) {
    run(0, count);
  } else {
    parallel_ranges(count, (count + threads - 1) / threads, run);
  }
}

void run_together(int64_t count, FunctionRef<void(int64_t)> body) {
  bool all_there = false;
  if (pool_in_use.thread_index != nullptr) {
    parallel_ranges(count, /*least=*/1, [&](int64_t begin, int64_t end) {
      // With fewer threads the first has more than one item, and the others begin further behind.
      if (end - begin != 1 || pool_in_use.thread_index() != begin) return;
      if (begin == 0) all_there = true;
      body(begin);
    });
  }
  // OpenMP gave fewer, at a limit that the user set; these would wait for the others forever.
  if (!all_there) run_on_new_threads(count, body);
}

}  // namespace rotcell::cpu
