// The operations in which a thread waits for others. All are called on the thread's own fiber.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/sanitizers.h"
#include "emulator/site.h"
#include "emulator/thread.h"
#include "emulator/tile_layout.h"

namespace rotcell::emulator {

ROTCELL_EMULATOR_UNWATCHED void wait_for_block(Site site);

// The two halves of a barrier of the cluster.
ROTCELL_EMULATOR_UNWATCHED void arrive_at_cluster(Site site);
ROTCELL_EMULATOR_UNWATCHED void wait_for_cluster(Site site);

// The same place as `own`, which is in this block's shared memory, in that of block `rank` of the
// cluster. That block must have begun, as a barrier of the cluster proves, and must not exit before
// another one.
ROTCELL_EMULATOR_UNWATCHED void* in_cluster(void* own, size_t bytes, unsigned rank, Site site);

// Adds one to a counter in global memory, after everything the thread has done so far.
ROTCELL_EMULATOR_UNWATCHED void signal(uint64_t* counter, Site site);
// Returns when there have been so many; sees what was done before them.
ROTCELL_EMULATOR_UNWATCHED void wait_for_signals(const uint64_t* counter, uint64_t count,
                                                 Site site);

// Asynchronous copies: begun, committed as a group, and taken one by one from the groups that must
// be finished when all but the last `groups_left` are.
inline constexpr unsigned copy_bytes = 16;
ROTCELL_EMULATOR_UNWATCHED void begin_copy(const Copy& copy, Site site);
ROTCELL_EMULATOR_UNWATCHED void commit_copies();
ROTCELL_EMULATOR_UNWATCHED bool next_finished_copy(unsigned groups_left, Copy& copy);

// Also orders memory, which the other warp operations do not.
ROTCELL_EMULATOR_UNWATCHED void wait_for_warp(unsigned mask, Site site);

// What the lane `source` sent.
ROTCELL_EMULATOR_UNWATCHED uint64_t shuffle(unsigned mask, uint64_t sent, unsigned source,
                                            Site site);

// A lane's part of the four matrices that a warp reads together: the row that it points at (lanes 0
// to 7 point at rows of the first matrix, and so on), and the rows that it reads.
struct MatrixRows {
  const void* given;
  const void* read[4];
};
ROTCELL_EMULATOR_UNWATCHED void exchange_rows(MatrixRows& rows, Site site);

// A lane's share of the tiles of a matmul; see tile_layout.h.
struct TileFragments {
  float a[elements_of_a];
  float b[elements_of_b];
  float c[elements_of_c];
};

// c += a b, by all 32 lanes.
ROTCELL_EMULATOR_UNWATCHED void multiply_tiles(TileFragments& fragments, Site site);

// Ends the thread: checks that no thread waits for it.
ROTCELL_EMULATOR_UNWATCHED void leave(Thread& thread);

// Makes threadIdx and its like those of `thread`, which is about to run.
ROTCELL_EMULATOR_UNWATCHED void activate(Thread& thread);

ROTCELL_EMULATOR_UNWATCHED unsigned char* shared_memory();

ROTCELL_EMULATOR_UNWATCHED bool in_shared_memory(const void* memory, size_t bytes);

// Throws on the running thread's behalf.
ROTCELL_EMULATOR_UNWATCHED void require(bool condition, const char* otherwise, Site site);

}  // namespace rotcell::emulator
