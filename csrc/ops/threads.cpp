#include "ops/threads.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "cpu/partition.h"
#include "ops/contention.h"
#include "ops/processors.h"
#include "ops/tensor.h"

extern "C" {
// Of the OpenMP runtime that torch brought; we link none of our own.
__attribute__((weak)) int omp_in_parallel();
}

namespace rotcell::ops {
namespace {

bool torch_uses_openmp() { return omp_in_parallel != nullptr; }

int64_t torch_threads() {
  uint32_t threads;
  ROTCELL_SHIM(torch_get_num_threads, &threads);
  return threads;
}

thread_local bool works_alone = false;

// How many threads there are for us: as many as torch may use, unless we are in a parallel region
// already, and no more than there are processors.
int64_t available_threads() {
  if (works_alone || (torch_uses_openmp() && omp_in_parallel())) return 1;
  const int64_t threads = torch_threads();
  return threads > 1 ? std::min(threads, processors()) : 1;
}

// How many threads a product is worth: waking one takes a few microseconds, as long as this many
// multiplications.
int64_t worthwhile_threads(int64_t rows, int64_t multiplications_per_row) {
  constexpr double kWorthAThread = 2e5;
  const double work = static_cast<double>(rows) * static_cast<double>(multiplications_per_row);
  const int64_t worth = 1 + static_cast<int64_t>(work / kWorthAThread);
  return worth > 1 ? std::min(available_threads(), worth) : 1;
}

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

// body(begin, end) on torch's threads for ranges that make up [0, count). torch would take an
// exception's type and text away.
void parallel_ranges(int64_t count, FunctionRef<void(int64_t, int64_t)> body) {
  struct Context {
    FunctionRef<void(int64_t, int64_t)> body;
    FirstException exception;
  } context{body, {}};
  const auto call = [](int64_t begin, int64_t end, void* known) {
    auto& at = *static_cast<Context*>(known);
    at.exception.guard([&] { at.body(begin, end); });
  };
  ROTCELL_SHIM(torch_parallel_for, 0, count, /*grain_size=*/1, call, &context);
  context.exception.rethrow();
}

// body(i) for all i below count, on up to as many threads.
void parallel(int64_t count, FunctionRef<void(int64_t)> body) {
  if (count == 1) {
    body(0);
    return;
  }
  if (count <= 0) return;
  parallel_ranges(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

// Holds threads back until all are there.
class StartGate {
 public:
  enum class Signal { kWait, kGo, kGiveUp };

  void open(Signal signal) {
    {
      const std::lock_guard lock(mutex_);
      signal_ = signal;
    }
    changed_.notify_all();
  }
  Signal wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return signal_ != Signal::kWait; });
    return signal_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Signal signal_ = Signal::kWait;
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
    fail("could not start ", count - 1, " more threads (", error.what(),
         "); torch.set_num_threads sets how many are used");
  }
  finish(StartGate::Signal::kGo);
  exception.rethrow();
}

// body(i) for all i below count at the same time, each on a thread of its own.
void run_together(int64_t count, FunctionRef<void(int64_t)> body) {
  bool all_there = false;
  if (torch_uses_openmp()) {
    parallel_ranges(count, [&](int64_t begin, int64_t end) {
      uint32_t thread;
      ROTCELL_SHIM(torch_get_thread_idx, &thread);
      // With fewer threads the first has more than one item, and the others begin further behind.
      if (end - begin != 1 || static_cast<int64_t>(thread) != begin) return;
      if (begin == 0) all_there = true;
      body(begin);
    });
  }
  // OpenMP gave fewer, at a limit that the user set; these would wait for the others for ever.
  if (!all_there) run_on_new_threads(count, body);
}

// A thread that runs what it is given, one thing at a time, until the process ends.
class Worker {
 public:
  Worker() {
    std::thread([this] { loop(); }).detach();
  }

  void run(FunctionRef<void()> body) {
    FirstException exception;
    const auto guarded = [&] { exception.guard(body); };
    const FunctionRef<void()> task(guarded);
    {
      std::unique_lock lock(mutex_);
      task_ = &task;
      changed_.notify_all();
      changed_.wait(lock, [&] { return task_ == nullptr; });
    }
    exception.rethrow();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return task_ != nullptr; });
      (*task_)();
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const FunctionRef<void()>* task_ = nullptr;
};

// Of all calls: threads of one find the processors as those of another did.
Contention contention;

// Whether so many threads may count on a processor each while they wait for each other.
bool may_wait_for_each_other(int64_t threads) {
  switch (contention.advice()) {
    case Contention::Advice::kWaitForEachOther:
      return true;
    case Contention::Advice::kWorkAlone:
      return false;
    case Contention::Advice::kLookFirst:
      break;
  }
  if (runnable_elsewhere() + threads <= processors_of_machine()) return true;
  contention.put_off();
  return false;
}

// Whether this thread called the fork() that made this process, and who runs ops for it. Never
// destroyed: the worker may still wait when the process ends.
thread_local bool called_fork = false;
thread_local Worker* worker = nullptr;

const int fork_handler [[maybe_unused]] = pthread_atfork(nullptr, nullptr, [] {
  called_fork = true;
  worker = nullptr;  // a parent's, which is not in this process
});

}  // namespace

void run_op(FunctionRef<void()> body) {
  if (!called_fork || torch_threads() == 1) {
    body();
    return;
  }
  if (worker == nullptr) worker = new Worker;
  worker->run(body);
}

void for_slices(int64_t elements, FunctionRef<void(cpu::Slice)> body) {
  constexpr int64_t kWorthAThread = 1 << 17;
  int64_t slices = elements / kWorthAThread;
  if (slices > 1) slices = std::min(slices, available_threads());
  slices = std::max<int64_t>(1, slices);
  parallel(slices, [&](int64_t i) { body({i, slices}); });
}

void for_row_tiles(int64_t rows, int64_t row_tile, int64_t multiplications_per_row,
                   FunctionRef<void(int64_t, int64_t)> body) {
  const int64_t tiles = (rows + row_tile - 1) / row_tile;
  const int64_t slices = std::min(tiles, worthwhile_threads(rows, multiplications_per_row));
  const auto first_row = [&](int64_t slice) {
    return std::min(rows, tiles * slice / slices * row_tile);
  };
  parallel(slices, [&](int64_t i) { body(first_row(i), first_row(i + 1)); });
}

ThreadPlan::ThreadPlan(const LayerWork& work)
    : row_tile_(work.row_tile), row_threads_(worthwhile_threads(work.tokens, work.weights)) {
  // Waiting for each other at every step takes threads as long as this many multiplications.
  constexpr int64_t kWorthWaiting = 30000;
  // Larger weights come from memory at every step, for each thread anew, and take longer than the
  // products of a few rows.
  constexpr int64_t kCachedBytes = 8 << 20, kFewRows = 32;
  const int64_t threads = row_threads_;
  const int64_t row_tiles = (work.batch + work.row_tile - 1) / work.row_tile;
  const int64_t unit_tiles =
      std::max<int64_t>(1, (work.hidden + work.unit_tile - 1) / work.unit_tile);
  const bool weights_are_cached = work.weights * work.weight_bytes <= kCachedBytes;
  int64_t shares = 1;
  if (work.sharing == UnitSharing::kAllowed && row_tiles > 0 && threads > 1) {
    shares = weights_are_cached || work.batch >= threads * kFewRows ? threads / row_tiles : threads;
    const int64_t worth = work.batch * work.weights / kWorthWaiting;
    shares = std::clamp<int64_t>(std::min(shares, worth), 1, unit_tiles);
    crowded_out_ = shares > 1 && !may_wait_for_each_other(threads);
    if (crowded_out_) shares = 1;
  }
  if (shares > 1) row_threads_ = threads / shares;
  units_.reserve(static_cast<size_t>(shares));
  for (int64_t i = 0; i < shares; ++i) {
    const auto first = [&](int64_t share) { return unit_tiles * share / shares * work.unit_tile; };
    units_.push_back({first(i), std::min(work.hidden, first(i + 1))});
  }
}

AloneWhereCrowded::AloneWhereCrowded(const ThreadPlan& plan)
    : before_(std::exchange(works_alone, works_alone || plan.is_crowded_out())) {}

AloneWhereCrowded::~AloneWhereCrowded() { works_alone = before_; }

void ThreadPlan::run(const Steps& steps, const Chunk& chunk,
                     FunctionRef<void(const cpu::Work&)> body) const {
  if (row_threads_ == 1 && !units_are_shared()) {
    if (chunk.tokens > 0) body({{0, steps.batch}, units_[0], nullptr, /*slot=*/0});
    return;
  }
  const std::vector<RowRange> rows = cpu::partition_rows(steps, chunk, row_threads_, row_tile_);
  if (!units_are_shared()) {
    parallel(static_cast<int64_t>(rows.size()),
             [&](int64_t i) { body({rows[i], units_[0], nullptr, /*slot=*/i}); });
    return;
  }
  std::deque<cpu::Barrier> barriers;  // which cannot be moved
  std::vector<cpu::Work> works;
  for (const RowRange& range : rows) {
    barriers.emplace_back(static_cast<int64_t>(units_.size()));
    for (const cpu::UnitRange& units : units_) {
      const auto slot = static_cast<int64_t>(works.size());
      works.push_back({range, units, &barriers.back(), slot});
    }
  }
  const auto begin = Contention::Clock::now();
  run_together(static_cast<int64_t>(works.size()), [&](int64_t i) { body(works[i]); });
  Contention::Nanoseconds slept{0};
  for (const cpu::Barrier& barrier : barriers) slept += barrier.slept();
  contention.learn(Contention::Clock::now() - begin, slept);
}

}  // namespace rotcell::ops
