// What the emulator knows of every CUDA thread, warp and block that is alive.
#pragma once

#include <cstdint>
#include <memory>

#include "emulator/fiber.h"
#include "emulator/site.h"

namespace rotcell::emulator {

inline constexpr unsigned warp_size = 32;

enum class State : uint8_t {
  unstarted,
  ready,
  at_block_barrier,
  at_cluster_barrier,
  at_counter,
  in_warp_operation,
  exited
};

enum class WarpOperation : uint8_t { synchronize, shuffle, exchange_rows, multiply_tiles };

struct Block;
struct Cluster;
struct Warp;

// An asynchronous copy into shared memory that has begun.
struct Copy {
  void* to;
  const void* from;
  bool exists;  // or zeros are written
};

// A thread's copies, in order. A plain array, as ThreadSanitizer must not watch it.
struct Copies {
  static constexpr unsigned most = 256;
  Copy begun[most];
  unsigned group[most];  // of each
  unsigned first, count;
  unsigned groups;  // committed
};

struct alignas(64) Thread {
  Fiber fiber;
  Block* block;
  Warp* warp;
  unsigned index;  // in its block
  unsigned lane;   // in its warp
  State state;

  Site site;  // where it waits

  // The counter at which it waits, and for how many signals.
  const uint64_t* counter;
  uint64_t signals;
  Thread* next_at_counter;

  // Barriers of its cluster: how often it has arrived, and how often it has waited for all others.
  unsigned cluster_arrivals;
  unsigned cluster_waits;

  Copies* copies;  // made when first used, and kept for the next launch

  // The warp operation in which it waits.
  WarpOperation operation;
  unsigned mask;
  unsigned source;  // of a shuffle: the lane to read
  uint64_t sent;
  uint64_t received;

#if defined(ROTCELL_EMULATOR_RACES)
  unsigned block_barriers;  // passed
  unsigned warp_barriers;   // passed
#endif
};

struct Warp {
  Thread* lanes;     // the first of them
  unsigned present;  // one bit per lane: the last warp of a block may have fewer than 32
  unsigned waiting;  // in a warp operation
  unsigned exited;
};

struct FreeMemory {
  void operator()(void* memory) const;
};

struct Block {
  unsigned index;
  Cluster* cluster;
  Thread* threads;
  unsigned at_barrier;  // how many threads wait there
  unsigned exited;
  Site barrier;  // where the first of them waits
  std::unique_ptr<unsigned char, FreeMemory> shared;

  // Others of the cluster use the shared memory: so many barriers of the cluster a thread must have
  // waited for when it exits, and the fewest that one had when it did.
  unsigned barriers_before_exit;
  unsigned barriers_at_exit;

#if defined(ROTCELL_EMULATOR_RACES)
  // Addresses by which ThreadSanitizer learns who waited for whom: two for the block barrier, two
  // for every thread's warp barriers. They alternate, so that the next barrier does not mix with
  // this one.
  std::unique_ptr<char[]> tokens;
  char* block_token(unsigned turn) { return &tokens[turn % 2]; }
  char* thread_token(unsigned thread, unsigned turn) { return &tokens[2 + 2 * thread + turn % 2]; }
#endif
};

// Blocks with common barriers that write into each other's shared memory.
struct Cluster {
  Block* blocks;       // the first of them
  unsigned arrived;    // threads, at the barrier that is not complete yet
  unsigned completed;  // barriers
  unsigned exited;     // threads
  Site barrier;        // where the first of them arrived
#if defined(ROTCELL_EMULATOR_RACES)
  char tokens[2];  // as in Block
  char* token(unsigned barrier_number) { return &tokens[barrier_number % 2]; }
#endif
};

}  // namespace rotcell::emulator
