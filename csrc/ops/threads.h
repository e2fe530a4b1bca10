// How many threads work, and who does what.
#pragma once

#include <type_traits>
#include <vector>

#include "cpu/kernels.h"

namespace rotcell::ops {

// A function that is called before the caller returns: no copy of it is made.
template <class Signature>
class FunctionRef;
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class Body>
    requires(!std::is_same_v<std::remove_cvref_t<Body>, FunctionRef>)
  FunctionRef(const Body& body)  // NOLINT: a conversion is what this is for
      : body_(&body), call_([](const void* known, Arguments... arguments) -> Result {
          return (*static_cast<const Body*>(known))(arguments...);
        }) {}

  Result operator()(Arguments... arguments) const { return call_(body_, arguments...); }

 private:
  const void* body_;
  Result (*call_)(const void*, Arguments...);
};

// Runs an op. In a child made by fork(), the thread that called fork() still believes in OpenMP's
// threads, which are gone, and would wait for them for ever: there another thread runs it.
void run_op(FunctionRef<void()> body);

// Runs body(slice) for all slices of a work on this many elements, on as many threads as it is
// worth.
void for_slices(int64_t elements, FunctionRef<void(cpu::Slice)> body);

// Runs body(begin, end) on ranges of rows, multiples of row_tile but for the last, likewise.
void for_row_tiles(int64_t rows, int64_t row_tile, int64_t multiplications_per_row,
                   FunctionRef<void(int64_t, int64_t)> body);

// Whether threads may have the same rows, and then different units, of a layer.
enum class UnitSharing { kAllowed, kNever };

// What decides how many threads work on a layer, and on what.
struct LayerWork {
  int64_t tokens, batch, hidden;
  int64_t weights, weight_bytes;  // how many a step multiplies each row with; bytes of each
  int64_t row_tile, unit_tile;    // of the kernels
  UnitSharing sharing;
};

// Every thread carries a range of rows through the sequence. With fewer rows than threads, or with
// few rows and large weights, several threads work on the same rows, each on a range of units.
class ThreadPlan {
 public:
  explicit ThreadPlan(const LayerWork& work);

  // At most so many threads have rows of their own; a thread's slot is below.
  int64_t row_threads() const { return row_threads_; }
  const std::vector<cpu::UnitRange>& units() const { return units_; }
  bool units_are_shared() const { return units_.size() > 1; }
  // Whether threads would share units, but other programs need the processors.
  bool is_crowded_out() const { return crowded_out_; }

  // Runs body for all that there is to do on this chunk.
  void run(const Steps& steps, const Chunk& chunk, FunctionRef<void(const cpu::Work&)> body) const;

 private:
  int64_t row_tile_, row_threads_;
  bool crowded_out_ = false;
  std::vector<cpu::UnitRange> units_;
};

// While it lives, what this thread does is done by it alone, if the plan is crowded out: the last
// of several threads gets its turn later than one has done it all.
class AloneWhereCrowded {
 public:
  explicit AloneWhereCrowded(const ThreadPlan& plan);
  ~AloneWhereCrowded();
  AloneWhereCrowded(const AloneWhereCrowded&) = delete;
  AloneWhereCrowded& operator=(const AloneWhereCrowded&) = delete;

 private:
  const bool before_;
};

}  // namespace rotcell::ops
