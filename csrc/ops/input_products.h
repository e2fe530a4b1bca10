// The products with w_ih that are not made by step: what x gives to the gates of a chunk, and the
// gradient of x.
#pragma once

#include "ops/arguments.h"
#include "ops/buffers.h"
#include "ops/plan.h"

namespace rotcell::ops {

// What x and the biases give to the gates, chunk by chunk of the forward pass.
template <class T>
class InputProducts {
 public:
  // The tensors must live on. All but x, which is converted chunk by chunk, are contiguous and of
  // type T.
  InputProducts(const CallPlan& plan, const LayerSizes& sizes, const Tensor& x, const Tensor& w_ih,
                const Tensor& b_ih, const Tensor& b_hh, const Tensor& row_bias);

  // x of a chunk; good until the next chunk is asked for.
  const T* x(const Chunk& chunk);

  // The sum of the layer's biases that there are, or those of the rows [B, G]; if products are made
  // by step, zeros without any.
  const T* bias() const { return bias_.template const_data<T>(); }

  // Writes what x and the layer's biases give to gates [chunk.tokens, G]. Not for products by step.
  void write(const Chunk& chunk, T* gates);

 private:
  void write_unpacked(const Chunk& chunk, T* gates);

  const CallPlan& plan_;
  const LayerSizes& sizes_;
  const Tensor &x_, &w_ih_, &b_ih_, &b_hh_;
  Tensor bias_;     // if weights are packed
  Tensor weights_;  // packed, if products are made by chunk
  Tensor x_chunk_;  // of type T
};

// The gradient of x, made by the kernel or, chunk by chunk, here.
template <class T>
class InputGradient {
 public:
  InputGradient(const CallPlan& plan, const LayerSizes& sizes, const Tensor& w_ih);

  // For a kernel that makes it.
  const T* packed_weights() const { return weights_.template const_data<T>(); }
  T* data() const { return gradient_.template data<T>(); }

  // Unless a kernel makes it: what grad_gates [chunk.tokens, G] give.
  void write(const Chunk& chunk, const T* grad_gates);

  Tensor take() { return std::move(gradient_); }

 private:
  const CallPlan& plan_;
  const LayerSizes& sizes_;
  const Tensor& w_ih_;
  Tensor weights_;   // packed, if they are
  Tensor gradient_;  // [N, I]
};

}  // namespace rotcell::ops
