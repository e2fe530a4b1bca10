// The steps of a padded or packed sequence, and the chunks that it is worked through in.
#pragma once

#include <vector>

#include "cells/steps.h"
#include "ops/tensor.h"

namespace rotcell::ops {

class Sequence {
 public:
  // batch_sizes as in PackedSequence; undefined if all rows have the same length. Throws unless
  // they fit a sequence of so many tokens and rows.
  Sequence(const Tensor& batch_sizes, int64_t tokens, int64_t batch, bool reverse);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  const Steps& steps() const { return steps_; }
  int64_t tokens() const { return tokens_; }

  static constexpr int64_t kNoLimit = INT64_MAX;

  // In the order of processing, of at most max_tokens tokens each, but of at least one step.
  std::vector<Chunk> chunks(int64_t max_tokens) const;

 private:
  std::vector<int64_t> batch_sizes_, offsets_;  // if steps_.lengths is kTabled
  int64_t tokens_;
  Steps steps_;
};

}  // namespace rotcell::ops
