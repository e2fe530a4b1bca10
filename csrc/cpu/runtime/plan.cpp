#include "cpu/runtime/plan.h"

#include <algorithm>

#include "cells/sequence.h"

namespace rotcell::cpu {
namespace {

constexpr int64_t kNearBytes = 1 << 20;     // weights up to this size stay in the L2 cache
constexpr int64_t kBlockBytes = 160 << 10;  // weights up to this size may be read per block of rows
constexpr int64_t kCachedBytes = 4 << 20;   // weights up to this size stay in the last-level cache

constexpr int64_t kManyTokens = 128;  // always worth packing the weights for

// Up to how many tokens weights are used as they are. Packing them takes as long as the matmuls of
// 8 tokens or, if they are not near, of 20 and more; unpacked, matmuls take a little longer, but
// much longer if a step has a few rows only.
int64_t tokens_not_worth_packing(int64_t batch, int64_t bytes) {
  if (bytes <= kNearBytes) return batch < kManyUnpackedRows ? 15 : 32;
  const bool cached = bytes <= kCachedBytes;
  if (batch == 1) return cached ? 64 : 96;
  if (batch < kManyUnpackedRows) return cached ? 40 : 80;
  return kManyTokens;
}

// Matmuls with x are of many rows, whatever the batch.
InputWeights input_weights(MatmulMode matmuls, int64_t tokens, int64_t bytes) {
  const bool few_tokens =
      matmuls == MatmulMode::kByChunk && bytes > kNearBytes && tokens <= kManyTokens;
  return few_tokens || matmuls == MatmulMode::kUnpacked ? InputWeights::kAsTheyAre
                                                        : InputWeights::kPacked;
}

// By step is best while all weights, which every step then reads, stay in the cache; by chunk for
// large weights, or few rows a step; unpacked for few tokens.
MatmulMode matmul_mode(const LayerSizes& sizes, int64_t bytes, const ThreadPlan& threads,
                       bool can_be_unpacked) {
  constexpr int64_t kFewRows = 8;
  if (can_be_unpacked && sizes.tokens <= tokens_not_worth_packing(sizes.batch, bytes)) {
    return MatmulMode::kUnpacked;
  }
  // Without a recurrent matmul nothing is left for a step. Kernels make the gradient of x only if
  // they have all units.
  const bool by_step = sizes.hidden_feeds != HiddenFeeds::kNothing && sizes.batch >= kFewRows &&
                       bytes <= kCachedBytes && !threads.units_are_shared();
  return by_step ? MatmulMode::kByStep : MatmulMode::kByChunk;
}

// The batch-vectorized loop is best for small weights, which every block of rows reads at every
// step, and for blocks that are nearly full. Rows that have ended would leave lanes empty, so
// sequences of different lengths are faster in the unit-vectorized loop.
bool suits_batch_vectorized(const LayerSizes& sizes, Lengths lengths, int64_t bytes,
                            int64_t block_rows) {
  if (lengths != Lengths::kEqual || sizes.hidden == 0) return false;
  if (sizes.tokens < 4 * sizes.batch || bytes > kBlockBytes) return false;
  const int64_t blocks = (sizes.batch + block_rows - 1) / block_rows;
  return 8 * sizes.batch >= 7 * blocks * block_rows;
}

// Multiplications that each token takes in the time loop: those of the recurrent matmul or, without
// one, as many as take as long as the math of its gates.
int64_t multiplications_per_token(const LayerSizes& sizes) {
  constexpr int64_t kPerGate = 32;
  return sizes.hidden_feeds == HiddenFeeds::kNothing ? kPerGate * sizes.gate_rows
                                                     : sizes.recurrent_weights();
}

}  // namespace

template <class T>
CallPlan plan_call(CellIndex cell, const LayerSizes& sizes, Lengths lengths, Projection projection,
                   Extras extras) {
  const Kernels<T>& kernels = cpu::kernels<T>();
  const CellKernels<T>& loops = kernels.cells[cell];
  const bool projected = projection == Projection::kPresent;
  const int64_t block_rows = loops.batch_vectorized.block_rows;
  const int64_t bytes = (sizes.input_weights() + sizes.recurrent_weights()) * int64_t{sizeof(T)};
  if (block_rows > 0 && !projected && extras == Extras::kNone &&
      sizes.hidden_feeds == HiddenFeeds::kAll && !sizes.sees_rows &&
      suits_batch_vectorized(sizes, lengths, bytes, block_rows)) {
    ThreadPlan threads({.tokens = sizes.tokens,
                        .batch = sizes.batch,
                        .hidden = sizes.hidden,
                        .weights = sizes.recurrent_weights(),
                        .weight_bytes = sizeof(T),
                        .row_tile = block_rows,
                        .unit_tile = loops.unit_tile,
                        .sharing = UnitSharing::kNever});
    if (threads.row_threads() * block_rows < sizes.batch + block_rows) {
      return {std::move(threads), MatmulMode::kByStep, InputWeights::kPacked, projection,
              Layout::kBatch};
    }
  }
  // The math of whole rows takes as long as this many multiplications; next to a recurrent matmul
  // that of groups takes little.
  const int64_t math = sizes.sees_rows ? 16 * sizes.gate_rows : 0;
  const bool shares_units = !projected && sizes.recurrent_weights() > 0;
  ThreadPlan threads({.tokens = sizes.tokens,
                      .batch = sizes.batch,
                      .hidden = sizes.hidden,
                      .weights = multiplications_per_token(sizes) + math,
                      .weight_bytes = sizeof(T),
                      .row_tile = kernels.row_tile,
                      .unit_tile = loops.unit_tile,
                      .sharing = shares_units ? UnitSharing::kAllowed : UnitSharing::kNever,
                      .waits = sizes.sees_rows ? 2 : 1});
  const bool can_be_unpacked = kernels.add_unpacked != nullptr;
  const MatmulMode matmuls = matmul_mode(sizes, bytes, threads, can_be_unpacked);
  const InputWeights of_x =
      can_be_unpacked ? input_weights(matmuls, sizes.tokens, bytes) : InputWeights::kPacked;
  return {std::move(threads), matmuls, of_x, projection, Layout::kUnits};
}
template CallPlan plan_call<float>(CellIndex, const LayerSizes&, Lengths, Projection, Extras);
template CallPlan plan_call<double>(CellIndex, const LayerSizes&, Lengths, Projection, Extras);
template CallPlan plan_call<BFloat16>(CellIndex, const LayerSizes&, Lengths, Projection, Extras);

int64_t forward_chunk_tokens(const CallPlan& plan, const LayerSizes& sizes, bool converts_x) {
  constexpr int64_t kElements = 1 << 18, kLeastTokens = 256;
  if (plan.by_step() && !converts_x) return Sequence::kNoLimit;
  const int64_t widest = converts_x ? std::max(sizes.gate_rows, sizes.inputs) : sizes.gate_rows;
  return std::max(kLeastTokens, kElements / std::max<int64_t>(1, widest));
}

int64_t backward_chunk_tokens(const CallPlan& plan, const LayerSizes& sizes) {
  if (plan.is_batch_vectorized()) return sizes.tokens;
  constexpr int64_t kElements = 1 << 17, kLeastTokens = 512;
  const int64_t tokens = std::max(kLeastTokens, kElements / std::max<int64_t>(1, sizes.gate_rows));
  return std::min(sizes.tokens, std::max(sizes.batch, tokens));
}

}  // namespace rotcell::cpu
