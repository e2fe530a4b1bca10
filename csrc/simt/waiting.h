// The operations in which a thread waits for others. All are called on the thread's own fiber.
#pragma once

#include <cstdint>

#include "simt/sanitizers.h"
#include "simt/site.h"
#include "simt/thread.h"

namespace rotcell::simt {

ROTCELL_SIMT_UNWATCHED void wait_for_block(Site site);

// Adds one to a counter in global memory, after everything the thread has done so far.
ROTCELL_SIMT_UNWATCHED void signal(uint64_t* counter, Site site);
// Returns when there have been so many; sees what was done before them.
ROTCELL_SIMT_UNWATCHED void wait_for_signals(const uint64_t* counter, uint64_t count, Site site);

// Asynchronous copies: begun, committed as a group, and taken one by one from the groups that must
// be finished when all but the last `groups_left` are.
inline constexpr unsigned copy_bytes = 16;
ROTCELL_SIMT_UNWATCHED void begin_copy(const Copy& copy, Site site);
ROTCELL_SIMT_UNWATCHED void commit_copies();
ROTCELL_SIMT_UNWATCHED bool next_finished_copy(unsigned groups_left, Copy& copy);

// Also orders memory, which the other warp operations do not.
ROTCELL_SIMT_UNWATCHED void wait_for_warp(unsigned mask, Site site);

// What the lane `source` sent.
ROTCELL_SIMT_UNWATCHED uint64_t shuffle(unsigned mask, uint64_t sent, unsigned source, Site site);

// A lane's share of the 16x16 tiles of a product, in rows: half a row each.
inline constexpr int tile_size = 16;
inline constexpr int tile_share = tile_size * tile_size / static_cast<int>(warp_size);
struct TileShares {
  float a[tile_share];
  float b[tile_share];
  float c[tile_share];
};

// c += a b, by all 32 lanes.
ROTCELL_SIMT_UNWATCHED void multiply_tiles(TileShares& shares, Site site);

// Ends the thread: checks that nobody waits for it.
ROTCELL_SIMT_UNWATCHED void leave(Thread& thread);

// Makes threadIdx and its like those of `thread`, which is about to run.
ROTCELL_SIMT_UNWATCHED void activate(Thread& thread);

ROTCELL_SIMT_UNWATCHED unsigned char* shared_memory();

// Waits until all 32 lanes are there, without ordering memory.
ROTCELL_SIMT_UNWATCHED void meet_full_warp(Site site);

// Throws on the running thread's behalf.
ROTCELL_SIMT_UNWATCHED void require(bool condition, const char* otherwise, Site site);

}  // namespace rotcell::simt
