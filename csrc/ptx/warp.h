// What the executor of PTX knows of every warp and block that is alive.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/grid.h"
#include "ptx/counts.h"
#include "ptx/program.h"
#include "simt/launch.h"

namespace rotcell::ptx {

// In which a number of a type lies in a register.
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
  const unsigned char* from;
  bool exists;      // or zeros are written
  int64_t arrives;  // after so many trips
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
};

struct Cluster {
  std::vector<Block*> blocks;
  unsigned arrived = 0;    // warps, at the barrier that is not complete yet
  unsigned completed = 0;  // barriers
  int64_t trips = 0;       // behind the last of these
  int64_t trips_of_arrived = 0;
};

struct Launch {
  const char* name;
  simt::Kind kind;
  const Kernel* kernel;
  cuda::Grid grid;
  const unsigned char* parameters;
  // Trips behind what was last written to a counter, by its address.
  std::map<uint64_t, int64_t> signalled;
  // What barriers of the grid count in. Only cooperative launches have it.
  alignas(8) uint32_t workspace[2];
};

class Warp {
 public:
  // The registers are as many words as the kernel says.
  Warp(Block& block, unsigned index, uint32_t* registers);

  Block& block;
  const unsigned index;  // in its block
  const uint32_t present;
  State state = State::ready;
  std::vector<Fragment> fragments;  // the one that runs, the furthest behind, is the last

  WarpCounts counts;
  std::vector<int64_t> arrives;  // after so many trips, for each register
  int64_t needed = 0;            // the last of those that were used

  // The last poll of a counter, and what had been counted before.
  const Instruction* polled = nullptr;
  uint64_t found = 0;
  WarpCounts before_poll;

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
  // Of a register of either width.
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
  unsigned char* shared_in_cluster(uint64_t address, size_t bytes) const;
  unsigned char* global(uint64_t address, size_t bytes) const;
  unsigned char* generic(uint64_t address, size_t bytes) const;
  const unsigned char* parameter(uint64_t address, size_t bytes) const;

 private:
  uint32_t value_of(Special special, unsigned lane) const;

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
