#include "ops/plan.h"

#include <algorithm>

#include "ops/sequence.h"

namespace rotcell::ops {
namespace {

// By step is best while all weights, which every step then reads, stay in the cache; by chunk for
// large weights, or few rows a step; unpacked for a handful of tokens.
cpu::ProductMode product_mode(const LayerSizes& sizes, int64_t weight_bytes,
                              const ThreadPlan& threads) {
  constexpr int64_t kFewRows = 8, kFewTokens = 16, kCachedBytes = 4 << 20;
  if (sizes.batch < kFewRows) {
    return sizes.tokens < kFewTokens ? cpu::ProductMode::kUnpacked : cpu::ProductMode::kByChunk;
  }
  const int64_t bytes = (sizes.input_weights() + sizes.recurrent_weights()) * weight_bytes;
  // Kernels make the gradient of x only if they have all units.
  const bool by_step = bytes <= kCachedBytes && !threads.units_are_shared();
  return by_step ? cpu::ProductMode::kByStep : cpu::ProductMode::kByChunk;
}

}  // namespace

template <class T>
CallPlan plan_call(const LayerSizes& sizes, cpu::Projection projection) {
  const cpu::Kernels<T>& kernels = cpu::kernels<T>();
  const bool projected = projection == cpu::Projection::kPresent;
  ThreadPlan threads({.tokens = sizes.tokens,
                      .batch = sizes.batch,
                      .hidden = sizes.hidden,
                      .weights = sizes.recurrent_weights(),
                      .weight_bytes = sizeof(T),
                      .row_tile = kernels.row_tile,
                      .unit_tile = kernels.unit_tile,
                      .sharing = projected ? UnitSharing::kNever : UnitSharing::kAllowed});
  const cpu::ProductMode products = product_mode(sizes, sizeof(T), threads);
  return {std::move(threads), products, projection};
}
template CallPlan plan_call<float>(const LayerSizes&, cpu::Projection);
template CallPlan plan_call<double>(const LayerSizes&, cpu::Projection);

int64_t forward_chunk_tokens(const CallPlan& plan, const LayerSizes& sizes, bool converts_x) {
  constexpr int64_t kElements = 1 << 18, kLeastTokens = 256;
  if (plan.by_step() && !converts_x) return Sequence::kNoLimit;
  return std::max(kLeastTokens, kElements / std::max<int64_t>(1, sizes.gate_rows));
}

int64_t backward_chunk_tokens(const LayerSizes& sizes) {
  constexpr int64_t kElements = 1 << 17, kLeastTokens = 256;
  const int64_t tokens = std::max(kLeastTokens, kElements / std::max<int64_t>(1, sizes.gate_rows));
  return std::min(sizes.tokens, std::max(sizes.batch, tokens));
}

}  // namespace rotcell::ops
