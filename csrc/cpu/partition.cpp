#include "cpu/partition.h"

#include <algorithm>

namespace rotcell::cpu {

std::vector<RowRange> partition_rows(const Steps& steps, int64_t threads, int64_t row_tile) {
  if (steps.count == 0 || steps.batch_sizes[0] == 0) return {};
  const int64_t batch = steps.batch_sizes[0];
  const int64_t tiles = (batch + row_tile - 1) / row_tile;
  const auto tile_end = [&](int64_t tile) { return std::min(batch, (tile + 1) * row_tile); };

  std::vector<int64_t> tokens_until(tiles, 0);  // in tiles 0..i
  for (int64_t step = 0; step < steps.count; ++step) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      tokens_until[tile] += std::min(tile_end(tile), steps.batch_sizes[step]);
    }
  }

  std::vector<RowRange> ranges;
  int64_t begin = 0;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t part = static_cast<int64_t>(ranges.size()) + 1;
    const bool enough = tokens_until[tile] * threads >= tokens_until.back() * part;
    if (enough || tile + 1 == tiles) {
      ranges.push_back({begin, tile_end(tile)});
      begin = tile_end(tile);
    }
  }
  return ranges;
}

}  // namespace rotcell::cpu
