#include "cells/sequence.h"

#include <algorithm>

namespace rotcell {

Sequence Sequence::padded(int64_t steps, int64_t batch, bool reverse) {
  Sequence sequence;
  sequence.tokens_ = steps * batch;
  sequence.steps_ = {.count = steps,
                     .batch = batch,
                     .lengths = Lengths::kEqual,
                     .batch_sizes = nullptr,
                     .offsets = nullptr,
                     .reverse = reverse};
  return sequence;
}

Sequence Sequence::packed(std::vector<int64_t> batch_sizes, bool reverse) {
  Sequence sequence;
  sequence.batch_sizes_ = std::move(batch_sizes);
  sequence.offsets_.reserve(sequence.batch_sizes_.size());
  for (const int64_t rows : sequence.batch_sizes_) {
    sequence.offsets_.push_back(sequence.tokens_);
    sequence.tokens_ += rows;
  }
  sequence.steps_ = {.count = static_cast<int64_t>(sequence.batch_sizes_.size()),
                     .batch = sequence.batch_sizes_.empty() ? 0 : sequence.batch_sizes_[0],
                     .lengths = Lengths::kTabled,
                     .batch_sizes = sequence.batch_sizes_.data(),
                     .offsets = sequence.offsets_.data(),
                     .reverse = reverse};
  return sequence;
}

std::vector<Chunk> Sequence::chunks(int64_t max_tokens) const {
  if (steps_.count == 0) return {};
  if (tokens_ <= max_tokens) return {{0, steps_.count, 0, tokens_}};
  std::vector<Chunk> chunks;
  for (int64_t position = 0; position < steps_.count; ++position) {
    const int64_t step = steps_.step(position), rows = steps_.rows(step);
    const int64_t token = steps_.token(step);
    if (chunks.empty() || chunks.back().tokens + rows > max_tokens) {
      chunks.push_back({position, position, token, 0});
    }
    Chunk& chunk = chunks.back();
    chunk.end = position + 1;
    chunk.first_token = std::min(chunk.first_token, token);
    chunk.tokens += rows;
  }
  return chunks;
}

}  // namespace rotcell
