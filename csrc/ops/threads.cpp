#include "ops/threads.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "cpu/partition.h"

namespace rotcell::ops {
namespace {

// How many threads a product is worth: waking one takes a few microseconds, as long as this many
// multiplications.
int64_t worthwhile_threads(int64_t rows, int64_t multiplications_per_row) {
  constexpr double kWorthAThread = 2e5;
  if (at::in_parallel_region()) return 1;
  const double work = static_cast<double>(rows) * static_cast<double>(multiplications_per_row);
  return std::min<int64_t>(at::get_num_threads(), 1 + static_cast<int64_t>(work / kWorthAThread));
}

// Runs body(i) for all i below count at the same time, each on a thread of its own.
void run_together(int64_t count, const std::function<void(int64_t)>& body) {
  bool all_there = false;
#pragma omp parallel num_threads(static_cast<int>(count))
  {
    if (omp_get_num_threads() == count) {
      if (omp_get_thread_num() == 0) all_there = true;
      body(omp_get_thread_num());
    }
  }
  if (all_there) return;
  // OpenMP gave fewer, at a limit that the user set; these would wait for the others for ever.
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < count; ++i) threads.emplace_back(body, i);
  body(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void for_shares(int64_t elements, const std::function<void(cpu::Share)>& body) {
  constexpr int64_t kWorthAThread = 1 << 17;
  const int64_t shares =
      std::clamp<int64_t>(elements / kWorthAThread, 1, int64_t{at::get_num_threads()});
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body({i, shares});
  });
}

void for_row_tiles(int64_t rows, int64_t row_tile, int64_t multiplications_per_row,
                   const std::function<void(int64_t, int64_t)>& body) {
  const int64_t tiles = (rows + row_tile - 1) / row_tile;
  const int64_t shares = std::min(tiles, worthwhile_threads(rows, multiplications_per_row));
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    const auto first_row = [&](int64_t share) {
      return std::min(rows, tiles * share / shares * row_tile);
    };
    for (int64_t i = begin; i < end; ++i) body(first_row(i), first_row(i + 1));
  });
}

Sharing::Sharing(const LayerSizes& sizes)
    : row_tile_(sizes.row_tile), row_threads_(worthwhile_threads(sizes.tokens, sizes.weights)) {
  // Waiting for each other at every step takes threads as long as this many multiplications.
  constexpr int64_t kWorthWaiting = 30000;
  // Larger weights come from memory at every step, for each thread anew, and take longer than the
  // products of a few rows.
  constexpr int64_t kCachedBytes = 8 << 20, kFewRows = 32;
  // Threads that wait for one that has no processor would wait at every step.
  int64_t threads = row_threads_;
  if (threads > 1) threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, threads);
  const int64_t row_tiles = (sizes.batch + sizes.row_tile - 1) / sizes.row_tile;
  const int64_t unit_tiles =
      std::max<int64_t>(1, (sizes.hidden + sizes.unit_tile - 1) / sizes.unit_tile);
  const bool weights_are_cached = sizes.weights * sizes.weight_bytes <= kCachedBytes;
  int64_t shares = 1;
  if (sizes.units_can_be_shared && row_tiles > 0) {
    shares =
        weights_are_cached || sizes.batch >= threads * kFewRows ? threads / row_tiles : threads;
    const int64_t worth = sizes.batch * sizes.weights / kWorthWaiting;
    shares = std::clamp<int64_t>(std::min(shares, worth), 1, unit_tiles);
  }
  if (shares > 1) row_threads_ = threads / shares;
  for (int64_t i = 0; i < shares; ++i) {
    const auto first = [&](int64_t share) { return unit_tiles * share / shares * sizes.unit_tile; };
    units_.push_back({first(i), std::min(sizes.hidden, first(i + 1))});
  }
}

void Sharing::run(const cpu::Steps& steps,
                  const std::function<void(const cpu::Work&)>& body) const {
  const std::vector<cpu::RowRange> rows = cpu::partition_rows(steps, row_threads_, row_tile_);
  if (!units_are_shared()) {
    at::parallel_for(0, static_cast<int64_t>(rows.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body({rows[i], units_[0], nullptr});
    });
    return;
  }
  std::deque<cpu::Barrier> barriers;  // which cannot be moved
  std::vector<cpu::Work> works;
  for (const cpu::RowRange& range : rows) {
    barriers.emplace_back(static_cast<int64_t>(units_.size()));
    for (const cpu::UnitRange& units : units_) works.push_back({range, units, &barriers.back()});
  }
  run_together(static_cast<int64_t>(works.size()), [&](int64_t i) { body(works[i]); });
}

}  // namespace rotcell::ops
