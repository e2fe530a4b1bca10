// What a launch executed. Counts are of warps: an instruction that a warp issues counts once,
// for however many lanes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/grid.h"
#include "ptx/program.h"

namespace rotcell::ptx {

struct WarpCounts {
  std::array<int64_t, kinds> instructions{};
  int64_t block_barriers = 0;
  int64_t cluster_barriers = 0;
  // Waits for a value in global memory that another block changes, however often it was asked for.
  int64_t waits = 0;
  // How many trips to global memory lie behind what the warp has done so far, one after the other.
  // Loads are one trip if none needs the result of another: ptxas moves them up, in front of what
  // uses them, but not out of a round of a loop, nor across barriers and waits. What others did
  // counts, too, if the warp waited for them at a barrier or for their signal.
  int64_t trips = 0;

  int64_t all() const {
    int64_t sum = 0;
    for (const int64_t count : instructions) sum += count;
    return sum;
  }
};

struct LaunchCounts {
  std::string name;
  cuda::Grid grid;
  std::vector<WarpCounts> warps;  // block after block
};

}  // namespace rotcell::ptx
