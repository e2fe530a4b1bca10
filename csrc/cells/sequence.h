// The steps of a padded or packed sequence, and the chunks that it is processed in.
#pragma once

#include <vector>

#include "cells/steps.h"

namespace rotcell {

class Sequence {
 public:
  // Every row of the batch has as many steps.
  static Sequence padded(int64_t steps, int64_t batch, bool reverse);
  // batch_sizes as in PackedSequence: positive, never increasing.
  static Sequence packed(std::vector<int64_t> batch_sizes, bool reverse);

  Sequence(Sequence&&) = default;  // what steps() points to stays where it is
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  const Steps& steps() const { return steps_; }
  int64_t tokens() const { return tokens_; }

  static constexpr int64_t kNoLimit = INT64_MAX;

  // In the order of processing, of at most max_tokens tokens each, but of at least one step.
  std::vector<Chunk> chunks(int64_t max_tokens) const;

 private:
  Sequence() = default;

  std::vector<int64_t> batch_sizes_, offsets_;  // if steps_.lengths is kTabled
  int64_t tokens_ = 0;
  Steps steps_ = {};
};

}  // namespace rotcell
