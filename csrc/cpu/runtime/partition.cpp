#include "cpu/runtime/partition.h"

#include <algorithm>

namespace rotcell::cpu {

std::vector<RowRange> partition_rows(const Steps& steps, const Chunk& chunk, int64_t threads,
                                     int64_t row_tile) {
  const int64_t batch = steps.batch;
  if (chunk.begin == chunk.end || batch == 0) return {};
  if (threads == 1) return {{0, batch}};
  const int64_t tiles = (batch + row_tile - 1) / row_tile;
  const auto tile_end = [&](int64_t tile) { return std::min(batch, (tile + 1) * row_tile); };

  std::vector<int64_t> tokens_until(tiles, 0);  // in tiles 0..i
  const auto count_step = [&](int64_t rows) {
    for (int64_t tile = 0; tile < tiles; ++tile)
      tokens_until[tile] += std::min(tile_end(tile), rows);
  };
  if (steps.lengths == Lengths::kEqual) {
    count_step(batch);
  } else {
    for (int64_t position = chunk.begin; position < chunk.end; ++position) {
      count_step(steps.rows(steps.step(position)));
    }
  }

  std::vector<RowRange> ranges;
  int64_t begin = 0;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t part = static_cast<int64_t>(ranges.size()) + 1;
    // The last thread takes all that is left, also rows of which no token is in the chunk.
    const bool enough =
        part < threads && tokens_until[tile] * threads >= tokens_until.back() * part;
    if (enough || tile + 1 == tiles) {
      ranges.push_back({begin, tile_end(tile)});
      begin = tile_end(tile);
    }
  }
  return ranges;
}

}  // namespace rotcell::cpu
