// What is decided once a call on the CPU: how x enters, who works on what.
#pragma once

#include "cpu/kernels.h"
#include "ops/arguments.h"
#include "ops/threads.h"

namespace rotcell::ops {

enum class InputWeights { kPacked, kAsTheyAre };

struct CallPlan {
  ThreadPlan threads;
  cpu::ProductMode products;
  InputWeights input_weights;
  cpu::Projection projection;
  cpu::Layout layout;

  // Of w_hh; and of w_ih, if products with x are not made by step.
  bool uses_packed_weights() const { return products != cpu::ProductMode::kUnpacked; }
  bool packs_input_weights() const { return input_weights == InputWeights::kPacked; }
  bool by_step() const { return products == cpu::ProductMode::kByStep; }
  bool rows_in_lanes() const { return layout == cpu::Layout::kRows; }
  bool projects() const { return projection == cpu::Projection::kPresent; }

  cpu::Call call(const LayerSizes& sizes, const Steps& steps, GateFunctions functions,
                 cpu::Keep keep, cpu::BiasOf bias_of) const {
    return {.steps = steps,
            .inputs = sizes.inputs,
            .hidden = sizes.hidden,
            .outputs = sizes.outputs,
            .products = products,
            .keep = keep,
            .projection = projection,
            .functions = functions,
            .bias_of = bias_of};
  }
};

// What a call asks for.
enum class Extras {
  kNone,
  kSome,  // what only kernels with units in the lanes do: changes of the state, the memory of every
          // step for its own sake, its gradient
};

// For kernels of type T.
template <class T>
CallPlan plan_call(const LayerSizes& sizes, Lengths lengths, cpu::Projection projection,
                   Extras extras);

// How many tokens a chunk of the forward pass may have, so that what is made for all of them (x in
// another type, its product) stays in the cache.
int64_t forward_chunk_tokens(const CallPlan& plan, const LayerSizes& sizes, bool converts_x);

// And of the backward pass: few enough that their grad_gates are still in the cache when the weight
// gradients read them, and enough for that product to run at full speed. Kernels that make the
// weight gradients themselves need no chunks.
int64_t backward_chunk_tokens(const CallPlan& plan, const LayerSizes& sizes);

}  // namespace rotcell::ops
