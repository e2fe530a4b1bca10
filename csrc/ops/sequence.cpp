#include "ops/sequence.h"

#include <algorithm>

namespace rotcell::ops {

Sequence::Sequence(const Tensor& batch_sizes, int64_t tokens, int64_t batch, bool reverse)
    : tokens_(tokens) {
  steps_ = {.count = 0,
            .batch = batch,
            .lengths = Lengths::kEqual,
            .batch_sizes = nullptr,
            .offsets = nullptr,
            .reverse = reverse};
  if (!batch_sizes) {
    check(batch == 0 ? tokens == 0 : tokens % batch == 0, "expected x with a multiple of ", batch,
          " rows (one for each row of h0 and step), got ", tokens);
    steps_.count = batch == 0 ? 0 : tokens / batch;
    return;
  }
  check(batch_sizes.dim() == 1 && batch_sizes.dtype() == int64() && batch_sizes.device().is_cpu(),
        "expected batch_sizes to be a 1-dimensional int64 tensor on the CPU");
  const Tensor contiguous = batch_sizes.as_contiguous();
  const int64_t* sizes = contiguous.const_data<int64_t>();
  batch_sizes_.assign(sizes, sizes + contiguous.numel());
  offsets_.reserve(batch_sizes_.size());
  int64_t sum = 0;
  for (size_t step = 0; step < batch_sizes_.size(); ++step) {
    const int64_t rows = batch_sizes_[step];
    check(rows > 0 && (step == 0 || rows <= batch_sizes_[step - 1]),
          "expected batch_sizes to be positive and never increasing, got ", rows, " at step ",
          step);
    offsets_.push_back(sum);
    sum += rows;
  }
  check(batch_sizes_.empty() || batch_sizes_[0] == batch, "expected h0 with ",
        batch_sizes_.empty() ? 0 : batch_sizes_[0], " rows (batch_sizes[0]), got ", batch);
  check(sum == tokens, "expected x with ", sum, " rows (the sum of batch_sizes), got ", tokens);
  steps_.count = static_cast<int64_t>(batch_sizes_.size());
  steps_.lengths = Lengths::kTabled;
  steps_.batch_sizes = batch_sizes_.data();
  steps_.offsets = offsets_.data();
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

}  // namespace rotcell::ops
