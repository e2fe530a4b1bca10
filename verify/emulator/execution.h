// The state of a launch, shared by the scheduler and the operations in which threads wait.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "cuda/platform/grid.h"
#include "emulator/launch.h"
#include "emulator/ready_threads.h"
#include "emulator/stacks.h"
#include "emulator/thread.h"

namespace rotcell::emulator {

// The launch that runs now: there is one at a time.
struct Execution {
  const char* name = nullptr;
  Kind kind = Kind::ordinary;
  cuda::Grid grid{};
  Call call{};

  std::vector<Thread> threads;  // of the blocks that are alive
  std::vector<Warp> warps;
  std::vector<Block> blocks;
  std::vector<Cluster> clusters;
  Stacks stacks;
  ReadyThreads ready;
  Fiber scheduler;
  Thread* current = nullptr;

  size_t alive_threads = 0;
  size_t exited = 0;
  Thread* at_counters = nullptr;  // linked by Thread::next_at_counter
  bool failed = false;
  std::exception_ptr error;  // of the thread that failed

  ~Execution();

#if defined(ROTCELL_EMULATOR_RACES)
  // Addresses by which ThreadSanitizer learns who waited for whom, as in Block.
  char exit_token;
#endif
};

extern Execution execution __attribute__((visibility("hidden")));

// "kernel ...: what at file:line, block b, thread t", thrown on the thread's own fiber.
[[noreturn]] void fail(const Thread& thread, const std::string& what);

}  // namespace rotcell::emulator
