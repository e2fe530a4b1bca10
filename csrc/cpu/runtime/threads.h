// How many threads work, and who does what.
#pragma once

#include <vector>

#include "cpu/loops/kernels.h"
#include "cpu/runtime/function_ref.h"

namespace rotcell::cpu {

// Runs body(slice) for all slices of a work on this many elements, on as many threads as it is
// worth.
void for_slices(int64_t elements, FunctionRef<void(Slice)> body);

// Runs body(begin, end) on ranges of rows, multiples of row_tile but for the last.
void for_row_tiles(int64_t rows, int64_t row_tile, int64_t multiplications_per_row,
                   FunctionRef<void(int64_t, int64_t)> body);

// Whether threads may have the same rows, and then different units, of a layer. If never, how many
// ranges of rows there are does not depend on the affinity mask: a kernel may sum over its rows.
enum class UnitSharing { kAllowed, kNever };

// What decides how many threads work on a layer, and on what.
struct LayerWork {
  int64_t tokens, batch, hidden;
  int64_t weights, weight_bytes;  // how many a step multiplies each row with; bytes of each
  int64_t row_tile, unit_tile;    // of the kernels
  UnitSharing sharing;
  int64_t waits = 1;  // how often threads that share units wait for each other at a step
};

// Every thread carries a range of rows through the sequence. With fewer rows than threads, or with
// few rows and large weights, several threads work on the same rows, each on a range of units.
class ThreadPlan {
 public:
  explicit ThreadPlan(const LayerWork& work);

  // The number of threads with separate rows.
  int64_t row_threads() const { return row_threads_; }
  // The number of all threads. A thread's slot is below it.
  int64_t slots() const { return row_threads_ * static_cast<int64_t>(units_.size()); }
  const std::vector<UnitRange>& units() const { return units_; }
  bool units_are_shared() const { return units_.size() > 1; }
  // Whether threads would share units, but other programs need the processors.
  bool machine_is_busy() const { return machine_is_busy_; }

  // Runs body for all work on this chunk.
  void run(const Steps& steps, const Chunk& chunk, FunctionRef<void(const Work&)> body) const;

 private:
  int64_t row_tile_, row_threads_;
  bool machine_is_busy_ = false;
  std::vector<UnitRange> units_;
};

// Keeps this thread's work single-threaded while it lives, if the machine is busy: the
// last of several threads gets its turn later than one thread finishes everything.
class SingleThreadedWhenBusy {
 public:
  explicit SingleThreadedWhenBusy(const ThreadPlan& plan);
  ~SingleThreadedWhenBusy();
  SingleThreadedWhenBusy(const SingleThreadedWhenBusy&) = delete;
  SingleThreadedWhenBusy& operator=(const SingleThreadedWhenBusy&) = delete;

 private:
  const bool before_;
};

}  // namespace rotcell::cpu
