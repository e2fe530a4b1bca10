#include "cpu/runtime/threads.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "cpu/runtime/contention.h"
#include "cpu/runtime/partition.h"
#include "cpu/runtime/processors.h"
#include "cpu/runtime/thread_pool.h"

namespace rotcell::cpu {
namespace {

thread_local bool single_threaded = false;

// How many threads there are for us: as many as the pool offers, unless we are in a parallel region
// already, and no more than there are processors.
int64_t available_threads() {
  if (single_threaded || thread_pool().in_parallel()) return 1;
  const int64_t threads = thread_pool().threads();
  return threads > 1 ? std::min(threads, processors()) : 1;
}

// How many parts sums are cut into: one for each thread that the pool offers, and no more than the
// quota has processors. Unlike available_threads it depends neither on the affinity mask nor on who
// calls, because the number of parts changes the bits of a sum.
int64_t planned_threads() {
  const int64_t threads = thread_pool().threads();
  return threads > 1 ? std::min(threads, quota_processors()) : 1;
}

// How many of these threads a matmul is worth: waking one takes a few microseconds, as long as this
// many multiplications.
int64_t worthwhile_threads(int64_t rows, int64_t multiplications_per_row,
                           int64_t (*threads)() = available_threads) {
  constexpr double kWorthAThread = 2e5;
  const double work = static_cast<double>(rows) * static_cast<double>(multiplications_per_row);
  const int64_t worth = 1 + static_cast<int64_t>(work / kWorthAThread);
  return worth > 1 ? std::min(threads(), worth) : 1;
}

// body(i) for all i below count, on up to as many threads, but no more than there are.
void parallel(int64_t count, FunctionRef<void(int64_t)> body) {
  parallel(count, count > 1 ? available_threads() : 1, body);
}

// Shared by all calls: they run on the same processors.
Contention contention;

// Whether each of these threads can expect a processor while they wait for each other.
bool may_wait_for_each_other(int64_t threads) {
  switch (contention.advice()) {
    case Contention::Advice::kWaitForEachOther:
      return true;
    case Contention::Advice::kWorkAlone:
      return false;
    case Contention::Advice::kLookFirst:
      break;
  }
  if (runnable_elsewhere() + threads <= processors_of_machine()) return true;
  contention.put_off();
  return false;
}

}  // namespace

void for_slices(int64_t elements, FunctionRef<void(Slice)> body) {
  constexpr int64_t kWorthAThread = 1 << 17;
  int64_t slices = elements / kWorthAThread;
  if (slices > 1) slices = std::min(slices, available_threads());
  slices = std::max<int64_t>(1, slices);
  parallel(slices, [&](int64_t i) { body({i, slices}); });
}

void for_row_tiles(int64_t rows, int64_t row_tile, int64_t multiplications_per_row,
                   FunctionRef<void(int64_t, int64_t)> body) {
  const int64_t tiles = (rows + row_tile - 1) / row_tile;
  const int64_t slices = std::min(tiles, worthwhile_threads(rows, multiplications_per_row));
  const auto first_row = [&](int64_t slice) {
    return std::min(rows, tiles * slice / slices * row_tile);
  };
  parallel(slices, [&](int64_t i) { body(first_row(i), first_row(i + 1)); });
}

ThreadPlan::ThreadPlan(const LayerWork& work)
    : row_tile_(work.row_tile),
      row_threads_(worthwhile_threads(
          work.tokens, work.weights,
          work.sharing == UnitSharing::kNever ? planned_threads : available_threads)) {
  // Waiting for each other once takes threads as long as this many multiplications.
  constexpr int64_t kWorthWaiting = 30000;
  // Larger weights come from memory at every step, again for each thread, and take longer than the
  // matmuls of a few rows.
  constexpr int64_t kCachedBytes = 8 << 20, kFewRows = 32;
  const int64_t threads = row_threads_;
  const int64_t row_tiles = (work.batch + work.row_tile - 1) / work.row_tile;
  const int64_t unit_tiles =
      std::max<int64_t>(1, (work.hidden + work.unit_tile - 1) / work.unit_tile);
  const bool weights_are_cached = work.weights * work.weight_bytes <= kCachedBytes;
  int64_t shares = 1;
  if (work.sharing == UnitSharing::kAllowed && row_tiles > 0 && threads > 1) {
    shares = weights_are_cached || work.batch >= threads * kFewRows ? threads / row_tiles : threads;
    const int64_t worth = work.batch * work.weights / (kWorthWaiting * work.waits);
    shares = std::clamp<int64_t>(std::min(shares, worth), 1, unit_tiles);
    machine_is_busy_ = shares > 1 && !may_wait_for_each_other(threads);
    if (machine_is_busy_) shares = 1;
  }
  if (shares > 1) row_threads_ = threads / shares;
  units_.reserve(static_cast<size_t>(shares));
  for (int64_t i = 0; i < shares; ++i) {
    const auto first = [&](int64_t share) { return unit_tiles * share / shares * work.unit_tile; };
    units_.push_back({first(i), std::min(work.hidden, first(i + 1))});
  }
}

SingleThreadedWhenBusy::SingleThreadedWhenBusy(const ThreadPlan& plan)
    : before_(std::exchange(single_threaded, single_threaded || plan.machine_is_busy())) {}

SingleThreadedWhenBusy::~SingleThreadedWhenBusy() { single_threaded = before_; }

void ThreadPlan::run(const Steps& steps, const Chunk& chunk,
                     FunctionRef<void(const Work&)> body) const {
  if (row_threads_ == 1 && !units_are_shared()) {
    if (chunk.tokens > 0) body({{0, steps.batch}, units_[0], nullptr, /*slot=*/0});
    return;
  }
  const std::vector<RowRange> rows = partition_rows(steps, chunk, row_threads_, row_tile_);
  if (!units_are_shared()) {
    parallel(static_cast<int64_t>(rows.size()),
             [&](int64_t i) { body({rows[i], units_[0], nullptr, /*slot=*/i}); });
    return;
  }
  std::deque<Barrier> barriers;  // which cannot be moved
  std::vector<Work> works;
  for (const RowRange& range : rows) {
    barriers.emplace_back(static_cast<int64_t>(units_.size()));
    const int64_t tiles = (range.end - range.begin + row_tile_ - 1) / row_tile_;
    for (size_t i = 0; i < units_.size(); ++i) {
      const Slice share{static_cast<int64_t>(i), static_cast<int64_t>(units_.size())};
      const auto row = [&](int64_t tile) {
        return std::min(range.end, range.begin + tile * row_tile_);
      };
      works.push_back({.rows = range,
                       .units = units_[i],
                       .barrier = &barriers.back(),
                       .slot = static_cast<int64_t>(works.size()),
                       .math_rows = {row(share.begin(tiles)), row(share.end(tiles))}});
    }
  }
  const auto begin = Contention::Clock::now();
  run_together(static_cast<int64_t>(works.size()), [&](int64_t i) { body(works[i]); });
  Contention::Nanoseconds slept{0};
  for (const Barrier& barrier : barriers) slept += barrier.slept();
  contention.learn(Contention::Clock::now() - begin, slept);
}

}  // namespace rotcell::cpu
