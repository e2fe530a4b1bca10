#include "emulator/waiting.h"

#include <bit>

#include "emulator/execution.h"
#include "emulator/intrinsics.h"

namespace rotcell::emulator {
namespace {

constexpr unsigned all_lanes = 0xffffffff;

#if defined(ROTCELL_EMULATOR_RACES)
void announce(char* token) { __tsan_release(token); }
void heed(char* token) { __tsan_acquire(token); }
#endif

// Lets others run until this thread is released.
ROTCELL_EMULATOR_UNWATCHED void suspend(Thread& thread) {
  Thread* next = execution.ready.peek();
  if (next == nullptr || next->state == State::unstarted) {
    switch_fiber(thread.fiber, execution.scheduler);
    return;
  }
  execution.ready.drop();
  activate(*next);
  if (next != &thread) switch_fiber(thread.fiber, next->fiber);
}

ROTCELL_EMULATOR_UNWATCHED void release(Thread& thread) {
  thread.state = State::ready;
  execution.ready.add(&thread);
}

[[noreturn]] void fail_divergent(const Thread& thread, const char* barrier, const Site& first) {
  fail(thread, std::string("divergent ") + barrier + ": others wait at " + first.file + ":" +
                   std::to_string(first.line));
}

[[noreturn]] void fail_lane(const Thread& thread, const std::string& before, unsigned lanes,
                            const char* after) {
  fail(thread, before + std::to_string(std::countr_zero(lanes)) + after);
}

// No lambdas in the next two: ThreadSanitizer would watch them.
ROTCELL_EMULATOR_UNWATCHED void hand_out_rows(const Thread* lanes) {
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    const int row = place_in_matrix(static_cast<int>(lane), 0).row;
    for (int matrix = 0; matrix < 4; ++matrix) {
      const Thread& giver = lanes[8 * matrix + row];
      reinterpret_cast<MatrixRows*>(lanes[lane].sent)->read[matrix] =
          reinterpret_cast<const MatrixRows*>(giver.sent)->given;
    }
  }
}

// Gathered first, so that the compiler can use vectors.
ROTCELL_EMULATOR_UNWATCHED void multiply_gathered(const Thread* lanes) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < static_cast<int>(warp_size); ++lane) {
    const TileFragments& fragments = *reinterpret_cast<const TileFragments*>(lanes[lane].sent);
    for (int i = 0; i < elements_of_a; ++i) {
      const Place place = place_in_a(lane, i);
      a[place.row][place.column] = fragments.a[i];
    }
    for (int i = 0; i < elements_of_b; ++i) {
      const Place place = place_in_b(lane, i);
      b[place.row][place.column] = fragments.b[i];
    }
    for (int i = 0; i < elements_of_c; ++i) {
      const Place place = place_in_c(lane, i);
      c[place.row][place.column] = fragments.c[i];
    }
  }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
  for (int lane = 0; lane < static_cast<int>(warp_size); ++lane) {
    TileFragments& fragments = *reinterpret_cast<TileFragments*>(lanes[lane].sent);
    for (int i = 0; i < elements_of_c; ++i) {
      const Place place = place_in_c(lane, i);
      fragments.c[i] = c[place.row][place.column];
    }
  }
}

// Do all lanes that `thread` names wait with it?
ROTCELL_EMULATOR_UNWATCHED bool warp_is_complete(const Thread& thread) {
  const Warp& warp = *thread.warp;
  const unsigned named = thread.mask & warp.present;
  if ((warp.waiting & named) != named) return false;
  for (unsigned left = named; left != 0; left &= left - 1) {
    const Thread& other = warp.lanes[std::countr_zero(left)];
    if (other.mask == thread.mask && other.operation == thread.operation) continue;
    if (other.mask >> thread.lane & 1)
      fail_lane(thread, "warp operations with different masks or of different kinds meet: lane ",
                left, " is in another");
    return false;  // it takes part in another group's operation first
  }
  return true;
}

ROTCELL_EMULATOR_UNWATCHED void finish_warp_operation(Thread& thread) {
  Warp& warp = *thread.warp;
  const unsigned named = thread.mask & warp.present;
  uint64_t ballot = 0;
  for (unsigned left = named; left != 0; left &= left - 1) {
    Thread& other = warp.lanes[std::countr_zero(left)];
    ballot |= (other.sent & 1) << other.lane;
    if (other.operation != WarpOperation::shuffle) continue;
    if (!(named >> other.source & 1))
      fail_lane(thread, "shuffle from an absent lane: lane ", left,
                (" reads lane " + std::to_string(other.source)).c_str());
    other.received = warp.lanes[other.source].sent;
  }
  if (thread.operation == WarpOperation::exchange_rows) hand_out_rows(warp.lanes);
  if (thread.operation == WarpOperation::multiply_tiles) multiply_gathered(warp.lanes);
  for (unsigned left = named; left != 0; left &= left - 1) {
    Thread& other = warp.lanes[std::countr_zero(left)];
    if (other.operation == WarpOperation::synchronize) other.received = ballot;
    release(other);
  }
  warp.waiting &= ~named;
}

ROTCELL_EMULATOR_UNWATCHED void take_part(Thread& thread, WarpOperation operation, unsigned mask,
                                          uint64_t sent, unsigned source, Site site) {
  Warp& warp = *thread.warp;
  thread.site = site;
  if (!(mask >> thread.lane & 1)) fail(thread, "warp operation by a lane that its mask leaves out");
  if (mask & warp.exited)
    fail_lane(thread, "warp operation names lane ", mask & warp.exited, ", which has exited");
  thread.operation = operation;
  thread.mask = mask;
  thread.source = source;
  thread.sent = sent;
  thread.state = State::in_warp_operation;
  warp.waiting |= 1u << thread.lane;
  if (warp_is_complete(thread)) finish_warp_operation(thread);
  suspend(thread);
}

}  // namespace

void activate(Thread& thread) {
  execution.current = &thread;
  threadIdx.x = thread.index;
  blockIdx.x = thread.block->index;
}

bool in_shared_memory(const void* memory, size_t bytes) {
  const unsigned char* begin = shared_memory();
  const auto* first = static_cast<const unsigned char*>(memory);
  return begin != nullptr && first >= begin && first + bytes <= begin + execution.grid.shared_bytes;
}

unsigned char* shared_memory() { return execution.current->block->shared.get(); }

void require(bool condition, const char* otherwise, Site site) {
  if (condition) return;
  execution.current->site = site;
  fail(*execution.current, otherwise);
}

void wait_for_block(Site site) {
  Thread& thread = *execution.current;
  Block& block = *thread.block;
  thread.site = site;
  if (block.exited > 0) fail(thread, "block barrier after other threads of the block have exited");
  if (block.at_barrier == 0)
    block.barrier = site;
  else if (!(block.barrier == site))
    fail_divergent(thread, "block barrier", block.barrier);
  thread.state = State::at_block_barrier;
#if defined(ROTCELL_EMULATOR_RACES)
  char* token = block.block_token(thread.block_barriers++);
  announce(token);
#endif
  if (++block.at_barrier == execution.grid.threads) {
    block.at_barrier = 0;
    for (unsigned i = 0; i < execution.grid.threads; ++i) release(block.threads[i]);
  }
  suspend(thread);
#if defined(ROTCELL_EMULATOR_RACES)
  heed(token);
#endif
}

void arrive_at_cluster(Site site) {
  Thread& thread = *execution.current;
  Cluster& cluster = *thread.block->cluster;
  thread.site = site;
  if (execution.kind != Kind::clusters)
    fail(thread, "a barrier of the cluster in a kernel that was not launched in clusters");
  if (thread.cluster_arrivals > thread.cluster_waits)
    fail(thread, "arrives at a cluster barrier again before it has waited for the one before");
  if (cluster.exited > 0)
    fail(thread, "cluster barrier after other threads of the cluster have exited");
  if (cluster.arrived == 0)
    cluster.barrier = site;
  else if (!(cluster.barrier == site))
    fail_divergent(thread, "cluster barrier", cluster.barrier);
#if defined(ROTCELL_EMULATOR_RACES)
  announce(cluster.token(thread.cluster_arrivals));
#endif
  ++thread.cluster_arrivals;
  const unsigned blocks = execution.grid.cluster, threads = execution.grid.threads;
  if (++cluster.arrived < blocks * threads) return;
  cluster.arrived = 0;
  ++cluster.completed;
  for (unsigned i = 0; i < blocks * threads; ++i) {
    Thread& other = cluster.blocks->threads[i];
    if (other.state == State::at_cluster_barrier) release(other);
  }
}

void wait_for_cluster(Site site) {
  Thread& thread = *execution.current;
  Cluster& cluster = *thread.block->cluster;
  thread.site = site;
  if (thread.cluster_arrivals == thread.cluster_waits)
    fail(thread, "waits for a cluster barrier at which it has not arrived");
  if (cluster.completed < thread.cluster_arrivals) {
    thread.state = State::at_cluster_barrier;
    suspend(thread);
  }
#if defined(ROTCELL_EMULATOR_RACES)
  heed(cluster.token(thread.cluster_waits));
#endif
  ++thread.cluster_waits;
}

void* in_cluster(void* own, size_t bytes, unsigned rank, Site site) {
  Thread& thread = *execution.current;
  require(rank < execution.grid.cluster, "the cluster has no such block", site);
  require(in_shared_memory(own, bytes), "the place is not in shared memory", site);
  Block& other = thread.block->cluster->blocks[rank];
  if (&other != thread.block) {
    require(thread.cluster_waits > 0,
            "shared memory of another block before a cluster barrier: it may not have begun", site);
    // This thread's next arrival comes after its access.
    const unsigned barriers = thread.cluster_arrivals + 1;
    require(barriers <= other.barriers_at_exit,
            "shared memory of another block after its last cluster barrier: it may have exited",
            site);
    if (barriers > other.barriers_before_exit) other.barriers_before_exit = barriers;
  }
  return other.shared.get() + (static_cast<unsigned char*>(own) - shared_memory());
}

void signal(uint64_t* counter, Site site) {
  Thread& thread = *execution.current;
  thread.site = site;
#if defined(ROTCELL_EMULATOR_RACES)
  announce(reinterpret_cast<char*>(counter));
#endif
  ++*counter;
  Thread** link = &execution.at_counters;
  while (*link != nullptr) {
    Thread& waiting = **link;
    if (waiting.counter == counter && *counter >= waiting.signals) {
      *link = waiting.next_at_counter;
      release(waiting);
    } else {
      link = &waiting.next_at_counter;
    }
  }
}

void wait_for_signals(const uint64_t* counter, uint64_t count, Site site) {
  Thread& thread = *execution.current;
  thread.site = site;
  if (execution.kind != Kind::cooperative)
    fail(thread, "waiting for other blocks in a kernel that was not launched cooperatively");
  if (*counter < count) {
    thread.state = State::at_counter;
    thread.counter = counter;
    thread.signals = count;
    thread.next_at_counter = execution.at_counters;
    execution.at_counters = &thread;
    suspend(thread);
  }
#if defined(ROTCELL_EMULATOR_RACES)
  heed(reinterpret_cast<char*>(const_cast<uint64_t*>(counter)));
#endif
}

void begin_copy(const Copy& copy, Site site) {
  Thread& thread = *execution.current;
  thread.site = site;
  if (thread.copies == nullptr) thread.copies = new Copies{};
  Copies& copies = *thread.copies;
  if (copies.first == copies.count) copies.first = copies.count = 0;
  if (copies.count == Copies::most) fail(thread, "too many asynchronous copies under way");
  copies.begun[copies.count] = copy;
  copies.group[copies.count++] = copies.groups;
}

void commit_copies() {
  Thread& thread = *execution.current;
  if (thread.copies != nullptr) ++thread.copies->groups;
}

bool next_finished_copy(unsigned groups_left, Copy& copy) {
  Thread& thread = *execution.current;
  if (thread.copies == nullptr) return false;
  Copies& copies = *thread.copies;
  if (copies.first == copies.count) return false;
  if (copies.group[copies.first] + groups_left >= copies.groups) return false;
  copy = copies.begun[copies.first++];
  return true;
}

void wait_for_warp(unsigned mask, Site site) {
  Thread& thread = *execution.current;
#if defined(ROTCELL_EMULATOR_RACES)
  // The lanes' turns differ if they met others before: each reports its own.
  const unsigned turn = thread.warp_barriers++ % 2;
  announce(thread.block->thread_token(thread.index, turn));
  take_part(thread, WarpOperation::synchronize, mask, turn, 0, site);
  for (unsigned left = mask & thread.warp->present; left != 0; left &= left - 1) {
    const unsigned lane = std::countr_zero(left);
    heed(
        thread.block->thread_token(thread.index - thread.lane + lane, thread.received >> lane & 1));
  }
#else
  take_part(thread, WarpOperation::synchronize, mask, 0, 0, site);
#endif
}

uint64_t shuffle(unsigned mask, uint64_t sent, unsigned source, Site site) {
  Thread& thread = *execution.current;
  take_part(thread, WarpOperation::shuffle, mask, sent, source, site);
  return thread.received;
}

namespace {

ROTCELL_EMULATOR_UNWATCHED void take_part_with_all(WarpOperation operation, void* fragments,
                                                   Site site) {
  Thread& thread = *execution.current;
  require(thread.warp->present == all_lanes,
          "operation for tensor cores in a warp of fewer than 32 lanes", site);
  take_part(thread, operation, all_lanes, reinterpret_cast<uint64_t>(fragments), 0, site);
}

}  // namespace

void exchange_rows(MatrixRows& rows, Site site) {
  take_part_with_all(WarpOperation::exchange_rows, &rows, site);
}

void multiply_tiles(TileFragments& fragments, Site site) {
  take_part_with_all(WarpOperation::multiply_tiles, &fragments, site);
}

void leave(Thread& thread) {
  Warp& warp = *thread.warp;
  Block& block = *thread.block;
  if (block.at_barrier > 0) {
    thread.site = block.barrier;
    fail(thread, "the thread has exited while others wait for it at a block barrier");
  }
  for (unsigned left = warp.waiting; left != 0; left &= left - 1) {
    const Thread& other = warp.lanes[std::countr_zero(left)];
    if (!(other.mask >> thread.lane & 1)) continue;
    thread.site = other.site;
    fail_lane(thread, "the thread has exited while lane ", left,
              " waits for it in a warp operation");
  }
  if (thread.copies != nullptr && thread.copies->first < thread.copies->count)
    fail(thread, "the thread has exited while its asynchronous copies are under way");
  if (thread.cluster_arrivals > thread.cluster_waits)
    fail(thread, "the thread has exited without waiting for a cluster barrier at which it arrived");
  if (thread.cluster_waits < block.barriers_before_exit)
    fail(thread,
         "the thread has exited without a cluster barrier after others used its shared memory");
  if (block.cluster->arrived > 0) {
    thread.site = block.cluster->barrier;
    fail(thread, "the thread has exited while others wait for it at a cluster barrier");
  }
  if (thread.cluster_waits < block.barriers_at_exit) block.barriers_at_exit = thread.cluster_waits;
  ++block.cluster->exited;
  warp.exited |= 1u << thread.lane;
  ++block.exited;
  ++execution.exited;
  thread.state = State::exited;
}

}  // namespace rotcell::emulator
