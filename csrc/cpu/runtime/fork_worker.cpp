#include "cpu/runtime/fork_worker.h"

#include <pthread.h>

#include <atomic>
#include <thread>

#include "cpu/runtime/thread_pool.h"

namespace rotcell::cpu {
namespace {

// A thread that runs one function at a time until the process ends.
class Worker {
 public:
  Worker() {
    std::thread([this] { loop(); }).detach();
  }

  void run(FunctionRef<void()> body) {
    FirstException exception;
    const auto guarded = [&] { exception.guard(body); };
    const FunctionRef<void()> task(guarded);
    task_ = &task;
    state_.store(State::kTask, std::memory_order_release);
    state_.notify_all();
    state_.wait(State::kTask, std::memory_order_acquire);
    exception.rethrow();
  }

 private:
  enum class State : int { kIdle, kTask };

  void loop() {
    while (true) {
      state_.wait(State::kIdle, std::memory_order_acquire);
      (*task_)();
      state_.store(State::kIdle, std::memory_order_release);
      state_.notify_all();
    }
  }

  // An atomic, not a condition variable: see StartGate in thread_pool.cpp.
  std::atomic<State> state_{State::kIdle};
  const FunctionRef<void()>* task_ = nullptr;
};

// Whether this thread called the fork() that made this process, and who runs ops for it. Never
// destroyed: the worker may still wait when the process ends.
thread_local bool called_fork = false;
thread_local Worker* worker = nullptr;

const int fork_handler [[maybe_unused]] = pthread_atfork(nullptr, nullptr, [] {
  called_fork = true;
  worker = nullptr;  // the parent's; its thread does not exist in this process
});

}  // namespace

void run_safely_after_fork(FunctionRef<void()> body) {
  if (!called_fork || thread_pool().threads() == 1) {
    body();
    return;
  }
  if (worker == nullptr) worker = new Worker;
  worker->run(body);
}

}  // namespace rotcell::cpu
