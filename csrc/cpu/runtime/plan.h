// What is decided once per call on the CPU: how x enters, who works on what.
#pragma once

#include "cells/sizes.h"
#include "cpu/loops/kernels.h"
#include "cpu/runtime/threads.h"

namespace rotcell::cpu {

enum class InputWeights { kPacked, kAsTheyAre };

struct CallPlan {
  ThreadPlan threads;
  MatmulMode matmuls;
  InputWeights input_weights;
  Projection projection;
  Layout layout;

  // Whether the time loop's weights are packed: w_hh and, if its matmul is made by step, w_ih.
  bool uses_packed_weights() const { return matmuls != MatmulMode::kUnpacked; }
  bool packs_input_weights() const { return input_weights == InputWeights::kPacked; }
  bool by_step() const { return matmuls == MatmulMode::kByStep; }
  bool is_batch_vectorized() const { return layout == Layout::kBatch; }
  bool projects() const { return projection == Projection::kPresent; }

  Call call(const LayerSizes& sizes, const Steps& steps, Activations activations, Keep keep,
            BiasOf bias_of) const {
    return {.steps = steps,
            .inputs = sizes.inputs,
            .hidden = sizes.hidden,
            .outputs = sizes.outputs,
            .matmuls = matmuls,
            .keep = keep,
            .projection = projection,
            .activations = activations,
            .hidden_feeds = sizes.hidden_feeds,
            .bias_of = bias_of};
  }
};

// What a call asks for.
enum class Extras {
  kNone,
  kSome,  // what only the unit-vectorized loop does: state hooks, cell states of every step as
          // a result, their gradient
};

// For kernels of type T.
template <class T>
CallPlan plan_call(CellIndex cell, const LayerSizes& sizes, Lengths lengths, Projection projection,
                   Extras extras);

// How many tokens a chunk of the forward pass may have, so that what is made for all of them (x in
// another type, its matmul) stays in the cache.
int64_t forward_chunk_tokens(const CallPlan& plan, const LayerSizes& sizes, bool converts_x);

// And of the backward pass: few enough that their grad_gates are still in the cache when the weight
// gradients read them, and enough for that matmul to run at full speed. Kernels that make the
// weight gradients themselves need no chunks.
int64_t backward_chunk_tokens(const CallPlan& plan, const LayerSizes& sizes);

}  // namespace rotcell::cpu
