#include "cpu/runtime/fork_worker.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
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
