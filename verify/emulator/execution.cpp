#include "emulator/execution.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include "emulator/control.h"
#include "emulator/device.h"
#include "emulator/intrinsics.h"
#include "emulator/planted.h"
#include "emulator/waiting.h"

uint3 threadIdx{0, 0, 0};
uint3 blockIdx{0, 0, 0};
dim3 blockDim;
dim3 gridDim;

namespace rotcell::emulator {

Execution execution;

Execution::~Execution() {
  for (Thread& thread : threads) delete thread.copies;
}

namespace {

std::mutex launch_lock;
std::map<std::string, int64_t> launch_counts;
Runner launch_runner = nullptr;

}  // namespace

void set_order(Order order, uint64_t seed) {
  const std::lock_guard lock(launch_lock);
  execution.ready.set_order(order, seed);
}

int64_t launches() {
  int64_t sum = 0;
  for (const auto& [name, count] : launches_by_kernel()) sum += count;
  return sum;
}

std::map<std::string, int64_t> launches_by_kernel() {
  const std::lock_guard lock(launch_lock);
  return launch_counts;
}

void reset_launches() {
  const std::lock_guard lock(launch_lock);
  launch_counts.clear();
}

void run_launches_by(Runner runner) {
  const std::lock_guard lock(launch_lock);
  launch_runner = runner;
}

void FreeMemory::operator()(void* memory) const { std::free(memory); }

void fail(const Thread& thread, const std::string& what) {
  throw std::runtime_error("rotcell: CUDA kernel " + std::string(execution.name) + ": " + what +
                           ", at " + thread.site.file + ":" + std::to_string(thread.site.line) +
                           ", block " + std::to_string(thread.block->index) + ", thread " +
                           std::to_string(thread.index));
}

namespace {

// ThreadSanitizer sees the end of a launch as the end of every thread in it.
ROTCELL_EMULATOR_UNWATCHED void announce_exit() {
#if defined(ROTCELL_EMULATOR_RACES)
  __tsan_release(&execution.exit_token);
#endif
}

ROTCELL_EMULATOR_UNWATCHED void heed_exits() {
#if defined(ROTCELL_EMULATOR_RACES)
  __tsan_acquire(&execution.exit_token);
#endif
}

// A thread that is done leaves its stack to the next one that has none, without a switch.
// ThreadSanitizer would take the two for one.
ROTCELL_EMULATOR_UNWATCHED bool take_over_next(Thread& done) {
#if defined(ROTCELL_EMULATOR_RACES)
  (void)done;
  return false;
#else
  Thread* next = execution.ready.peek();
  if (next == nullptr || next->state != State::unstarted) return false;
  execution.ready.drop();
  next->fiber.stack = std::exchange(done.fiber.stack, nullptr);
  next->fiber.bytes = done.fiber.bytes;
  next->state = State::ready;
  activate(*next);
  return true;
#endif
}

// Returns whether all went well.
ROTCELL_EMULATOR_UNWATCHED bool run_kernel() {
  try {
    execution.call.run(execution.call.context);
    leave(*execution.current);
    return true;
  } catch (...) {
    execution.error = std::current_exception();
    execution.failed = true;
    return false;
  }
}

ROTCELL_EMULATOR_UNWATCHED void fiber_entry() {
  arrive_first(execution.scheduler);
  while (run_kernel() && take_over_next(*execution.current)) continue;
  announce_exit();
  switch_fiber(execution.current->fiber, execution.scheduler, true);
  std::abort();  // not reached: no fiber switches back
}

void start(Thread& thread) {
  // Without different depths the frames of all threads would compete for the same cache lines.
  const size_t depth = thread.index % 61 * 192;
  thread.state = State::ready;
  prepare_fiber(thread.fiber, execution.stacks.take(), stack_bytes - depth, fiber_entry);
}

void retire(Thread& thread) {
  forget_fiber(thread.fiber);
  execution.stacks.give_back(std::exchange(thread.fiber.stack, nullptr));
}

const char* waiting_in(const Thread& thread) {
  switch (thread.state) {
    case State::at_block_barrier:
      return "in a block barrier";
    case State::at_cluster_barrier:
      return "in a cluster barrier";
    case State::at_counter:
      return "for signals of other blocks";
    default:
      return "in a warp operation";
  }
}

[[noreturn]] void fail_deadlocked() {
  struct Group {
    const Thread* first;
    int count = 0;
  };
  std::map<std::string, Group> groups;
  const Thread* stuck = nullptr;
  for (size_t i = 0; i < execution.alive_threads; ++i) {
    const Thread& thread = execution.threads[i];
    if (thread.state == State::exited) continue;
    if (stuck == nullptr) stuck = &thread;
    const std::string where = std::string(waiting_in(thread)) + " at " + thread.site.file + ":" +
                              std::to_string(thread.site.line);
    ++groups.try_emplace(where, Group{&thread}).first->second.count;
  }
  std::string what = "deadlock (";
  for (const auto& [where, group] : groups)
    what += (group.first == stuck ? "" : "; ") + std::to_string(group.count) + " threads " + where;
  fail(*stuck, what + ")");
}

// Runs the blocks that are alive to their end.
void run_alive() {
  for (;;) {
    Thread* thread = execution.ready.peek();
    if (thread == nullptr) {
      if (execution.ready.turn_over()) continue;
      if (execution.exited < execution.alive_threads) fail_deadlocked();
      return;
    }
    execution.ready.drop();
    if (thread->state == State::unstarted) start(*thread);
    activate(*thread);
    switch_fiber(execution.scheduler, thread->fiber);
    if (execution.failed) {
      heed_exits();
      std::rethrow_exception(std::exchange(execution.error, nullptr));
    }
    if (execution.current->state == State::exited) retire(*execution.current);
  }
}

// In every float type, bytes of ones are a NaN: what a kernel reads before it writes will show.
std::unique_ptr<unsigned char, FreeMemory> uninitialized_shared_memory(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  if (posix_memalign(&memory, 128, bytes) != 0) throw std::bad_alloc();
  std::memset(memory, 0xff, bytes);
  return std::unique_ptr<unsigned char, FreeMemory>(static_cast<unsigned char*>(memory));
}

unsigned lowest_lanes(unsigned count) {
  return count >= warp_size ? 0xffffffff : (1u << count) - 1;
}

// Prepares `block` as number `index` of the grid, its threads and warps being the `place`th.
void set_up_block(Block& block, unsigned index, size_t place, Cluster& cluster) {
  const unsigned threads = execution.grid.threads;
  const unsigned warps = (threads + warp_size - 1) / warp_size;
  block.index = index;
  block.cluster = &cluster;
  block.threads = &execution.threads[place * threads];
  block.at_barrier = block.exited = 0;
  block.barriers_before_exit = 0;
  block.barriers_at_exit = std::numeric_limits<unsigned>::max();
#if defined(ROTCELL_EMULATOR_RACES)
  block.tokens = std::make_unique<char[]>(2 + 2 * threads);
#endif
  for (unsigned w = 0; w < warps; ++w)
    execution.warps[place * warps + w] = {block.threads + w * warp_size,
                                          lowest_lanes(threads - w * warp_size), 0, 0};
  for (unsigned i = 0; i < threads; ++i) {
    Thread& thread = block.threads[i];
    thread.block = &block;
    thread.warp = &execution.warps[place * warps + i / warp_size];
    thread.index = i;
    thread.lane = i % warp_size;
    thread.state = State::unstarted;
    thread.site = {};
    thread.cluster_arrivals = thread.cluster_waits = 0;
    if (thread.copies != nullptr)
      thread.copies->first = thread.copies->count = thread.copies->groups = 0;
#if defined(ROTCELL_EMULATOR_RACES)
    thread.block_barriers = thread.warp_barriers = 0;
#endif
    execution.ready.add(&thread);
  }
}

void make_room(size_t blocks_alive) {
  const size_t threads = execution.grid.threads;
  const size_t warps = (threads + warp_size - 1) / warp_size;
  execution.alive_threads = blocks_alive * threads;
  if (execution.threads.size() < execution.alive_threads)
    execution.threads.resize(execution.alive_threads);
  if (execution.warps.size() < blocks_alive * warps) execution.warps.resize(blocks_alive * warps);
}

// Those of a cluster wait for each other, or all of a cooperative launch.
void run_at_once() {
  const unsigned blocks = execution.grid.blocks, of_cluster = execution.grid.cluster;
  make_room(blocks);
  execution.blocks.resize(blocks);
  execution.ready.reset(execution.alive_threads);
  execution.exited = 0;
  execution.clusters.assign(blocks / of_cluster, {});
  for (unsigned i = 0; i < blocks; ++i) {
    Cluster& cluster = execution.clusters[i / of_cluster];
    cluster.blocks = &execution.blocks[i / of_cluster * of_cluster];
    execution.blocks[i].shared = uninitialized_shared_memory(execution.grid.shared_bytes);
    set_up_block(execution.blocks[i], i, i, cluster);
  }
  run_alive();
}

std::vector<unsigned> block_order() {
  const unsigned blocks = execution.grid.blocks;
  std::vector<unsigned> order(blocks);
  for (unsigned i = 0; i < blocks; ++i)
    order[i] = execution.ready.order() == Order::reverse ? blocks - 1 - i : i;
  if (execution.ready.order() == Order::random)
    for (unsigned i = blocks; i > 1; --i)
      std::swap(order[i - 1], order[execution.ready.random_below(i)]);
  return order;
}

// Block after block: they may not wait for each other.
void run_ordinary() {
#if defined(ROTCELL_EMULATOR_RACES)
  // Memory used again would look like memory that two blocks share.
  const size_t kept_blocks = execution.grid.blocks;
#else
  const size_t kept_blocks = 1;
#endif
  make_room(1);
  execution.blocks.resize(kept_blocks);
  size_t place = 0;
  execution.clusters.resize(1);
  for (const unsigned index : block_order()) {
    Block& block = execution.blocks[place++ % kept_blocks];
    if (block.shared == nullptr)
      block.shared = uninitialized_shared_memory(execution.grid.shared_bytes);
    else
      std::memset(block.shared.get(), 0xff, execution.grid.shared_bytes);
    execution.ready.reset(execution.alive_threads);
    execution.exited = 0;
    execution.clusters[0] = {};
    execution.clusters[0].blocks = &block;
    set_up_block(block, index, 0, execution.clusters[0]);
    run_alive();
  }
}

// The host may look at what threads wrote that will never come to their end.
ROTCELL_EMULATOR_UNWATCHED void abandon(Thread& thread) {
#if defined(ROTCELL_EMULATOR_RACES)
  __tsan_switch_to_fiber(thread.fiber.racer, 0);
  __tsan_switch_to_fiber(execution.scheduler.racer, 0);
#endif
  retire(thread);
}

void check_launch(const char* name, Kind kind, const cuda::Grid& grid) {
  const cuda::DeviceProperties device = posed_device();
  if (grid.shared_bytes > static_cast<size_t>(device.shared_bytes_per_block))
    cuda::launch_failed(name, grid, "invalid argument");
  if (grid.threads == 0 || grid.threads > most_threads_per_block ||
      grid.blocks > static_cast<unsigned>(std::numeric_limits<int>::max()))
    cuda::launch_failed(name, grid, "invalid configuration argument");
  if (kind == Kind::ordinary) return;
  if (kind == Kind::clusters) {
    if (grid.cluster == 0 || grid.blocks % grid.cluster != 0)
      cuda::launch_failed(name, grid, "invalid cluster size");
    // A GPU would queue the remaining clusters; here too many are an error.
    const int64_t fitting = clusters_at_once(grid);
    if (grid.blocks / grid.cluster > fitting)
      cuda::launch_refused(name, grid, fitting * grid.cluster);
    return;
  }
  if (!device.cooperative_launch)
    cuda::launch_failed<cuda::LaunchRefused>(name, grid, "operation not supported");
  const int64_t fitting =
      int64_t{device.multiprocessors} * blocks_per_multiprocessor(grid.threads, grid.shared_bytes);
  if (grid.blocks > fitting)
    cuda::launch_failed<cuda::LaunchRefused>(name, grid, "too many blocks in cooperative launch");
}

void run_blocks() {
  try {
    if (execution.kind == Kind::ordinary)
      run_ordinary();
    else
      run_at_once();
  } catch (...) {
    for (Thread& thread : execution.threads)
      if (thread.fiber.stack != nullptr) abandon(thread);
    heed_exits();
    execution.blocks.clear();
    throw;
  }
  heed_exits();
  execution.blocks.clear();
}

}  // namespace

void launch(const char* name, Kind kind, const cuda::Grid& grid, const Call& call) {
  if (grid.blocks == 0) return;
  const Launch comes_to = meet_planted_fault(name);
  if (comes_to == Launch::fails) cuda::launch_failed(name, grid, "a planted fault");
  const std::lock_guard lock(launch_lock);
  check_launch(name, kind, grid);
  ++launch_counts[name];
  if (comes_to == Launch::does_nothing) return;
  if (launch_runner != nullptr) return launch_runner(name, kind, grid, call);
  execution.name = name;
  execution.kind = kind;
  execution.grid = grid;
  execution.call = call;
  execution.at_counters = nullptr;
  execution.failed = false;
  blockDim = dim3(grid.threads);
  gridDim = dim3(grid.blocks);
  adopt_running_thread(execution.scheduler);
  run_blocks();
}

}  // namespace rotcell::emulator
