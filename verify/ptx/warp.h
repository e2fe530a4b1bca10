// What the emulator of PTX knows of every warp and block that is alive.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/platform/grid.h"
#include "emulator/launch.h"
#include "ptx/program.h"
#include "ptx/races.h"

namespace rotcell::ptx {

// The type in which a register holds a number.
template <class T>
using Slot = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// Lanes of a warp that are at the same instruction.
struct Fragment {
  int instruction;
  uint32_t lanes;
};

enum class State : uint8_t { ready, at_block_barrier, at_cluster_barrier, polling, exited };

// An asynchronous copy into shared memory that has begun.
struct Copy {
  int lane;
  unsigned group;
  uint64_t to;
  uint64_t from;
  bool exists;  // or zeros are written
};

struct Cluster;
struct Launch;
class Warp;

struct Block {
  Launch* launch;
  Cluster* cluster;
  unsigned index;
  std::vector<Warp*> warps;
  unsigned at_barrier, exited;  // of them
  std::vector<unsigned char> shared;
  std::vector<Accesses> accesses;  // to shared memory
};

struct Cluster {
  std::vector<Block*> blocks;
  unsigned arrived = 0;    // warps, at the barrier that is not complete yet
  unsigned completed = 0;  // barriers
  Clock before;            // what happened before the last of these
  Clock before_arrivals;   // and before those that have arrived since
};

struct Launch {
  const char* name;
  emulator::Kind kind;
  const Kernel* kernel;
  cuda::Grid grid;
  const unsigned char* parameters;
  uint32_t first_warp = 1;    // the number of the first warp that is alive; 0 is no warp
  GlobalAccesses accesses{};  // to global memory
  std::map<uint64_t, Signals> signals{};  // of each counter, by its address
};

class Warp {
 public:
  // The registers are as many words as the kernel says.
  Warp(Block& block, unsigned index, uint32_t place, size_t alive, uint32_t* registers);

  Block& block;
  const unsigned index;  // in its block
  const uint32_t present;
  State state = State::ready;
  std::vector<Fragment> fragments;  // the one that runs, the furthest behind, is the last

  Clock clock;     // of all warps that are alive
  uint32_t id;     // among the warps of the launch, from 1 on
  uint32_t place;  // among those that are alive
  // How many signals of each counter the warp has seen.
  std::map<uint64_t, size_t> seen_signals;
  bool saw_nothing_new = false;  // when it last asked for a counter

  unsigned cluster_arrivals = 0;  // and as many waits, or one fewer
  std::vector<Copy> copies;
  unsigned groups[warp_size] = {};  // of copies, committed by each lane

  template <class T>
  Slot<T>* to(const Operand& operand) {
    return reinterpret_cast<Slot<T>*>(registers_ + operand.word);
  }
  template <class T>
  const Slot<T>* from(const Operand& operand) const {
    const uint32_t* words =
        operand.is_constant ? block.launch->kernel->constants.data() : registers_;
    return reinterpret_cast<const Slot<T>*>(words + operand.word);
  }
  uint32_t& mask_to(const Operand& operand) { return registers_[operand.word]; }
  uint32_t mask(const Operand& operand) const { return *from<uint32_t>(operand); }
  // The number in a register of either width.
  uint64_t number(const Operand& operand, int lane) const {
    return operand.width == Width::eight ? from<uint64_t>(operand)[lane]
                                         : from<uint32_t>(operand)[lane];
  }
  uint64_t address(const Operand& operand, int lane) const {
    return number(operand, lane) + static_cast<uint64_t>(operand.offset);
  }

  // An error of the instruction that runs.
  [[noreturn]] void fail(const std::string& what) const;
  void need_all_lanes(uint32_t active) const;

  // Memory of the space, checked for bounds and alignment.
  unsigned char* shared(uint64_t address, size_t bytes) const;
  unsigned char* global(uint64_t address, size_t bytes) const;
  // The same, checked for races, too.
  unsigned char* shared(uint64_t address, size_t bytes, Access access) const;
  unsigned char* shared_in_cluster(uint64_t address, size_t bytes, Access access) const;
  unsigned char* global(uint64_t address, size_t bytes, Access access) const;
  unsigned char* generic(uint64_t address, size_t bytes, Access access) const;
  // Marks these bytes of shared memory as the target of an active copy, or removes the mark.
  void mark_copy(uint64_t address, size_t bytes, bool is_under_way) const;
  const unsigned char* parameter(uint64_t address, size_t bytes) const;

  // What follows is later than what other warps know of this one.
  void tick() { ++clock[place]; }

 private:
  uint32_t value_of(Special special, unsigned lane) const;
  void check(Accesses* first, size_t count, Access access) const;

  uint32_t* registers_;
};

// The rank of a block of the cluster is in the upper bits of an address in its shared memory.
inline constexpr int rank_shift = 24;
// In generic addresses of shared memory; no pointer of the host has it.
inline constexpr uint64_t shared_window = uint64_t{1} << 63;

template <class F>
inline __attribute__((always_inline)) void for_lanes(uint32_t active, F f) {
  if (active == 0xffffffff) {
#pragma GCC ivdep
    for (int lane = 0; lane < warp_size; ++lane) f(lane);
  } else {
    for (uint32_t left = active; left != 0; left &= left - 1) f(std::countr_zero(left));
  }
}

}  // namespace rotcell::ptx
