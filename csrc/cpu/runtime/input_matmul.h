// The matmuls with w_ih that no time loop makes: what x gives to the gates of a chunk, and the
// gradient of x.
#pragma once

#include "cpu/runtime/buffer.h"
#include "cpu/runtime/layer.h"
#include "cpu/runtime/plan.h"

namespace rotcell::cpu {

// What x and the biases give to the gates, chunk by chunk of the forward pass. Layer and plan must
// live on.
template <class T>
class InputMatmul {
 public:
  InputMatmul(const CallPlan& plan, const LayerForward<T>& layer);

  // x of a chunk, valid until the next call.
  const T* x(const Chunk& chunk);

  // The sum of the layer's biases [G], or those of the rows [B, G]. Without any it is zeros if the
  // time loop makes the matmul, otherwise null.
  const MathType<T>* bias() const { return bias_; }

  // Writes what x and the layer's biases give to gates [chunk.tokens, G], unless the time loop
  // does.
  void write(const Chunk& chunk, MathType<T>* gates);

 private:
  void write_unpacked(const Chunk& chunk, T* gates);

  const CallPlan& plan_;
  const LayerForward<T>& layer_;
  const MathType<T>* bias_ = nullptr;
  Buffer<MathType<T>> bias_sum_;
  Buffer<T> weights_;  // packed, if the matmul is made by chunk
  Buffer<T> x_chunk_;  // x converted to T
};

// The gradient of x, made by the time loop or, chunk by chunk, here.
template <class T>
class InputGradientMatmul {
 public:
  InputGradientMatmul(const CallPlan& plan, const LayerBackward<T>& layer);

  // For a time loop that computes the gradient of x itself.
  const T* packed_weights() const { return weights_.data(); }

  // Computes it from grad_gates [chunk.tokens, G], unless the time loop does.
  void write(const Chunk& chunk, const T* grad_gates);

 private:
  const CallPlan& plan_;
  const LayerBackward<T>& layer_;
  Buffer<T> weights_;  // packed, if they are
};

}  // namespace rotcell::cpu
