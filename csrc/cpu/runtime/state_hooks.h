// What happens to the state between steps, as the time loops want it: masks, and the scratch memory
// that they need.
#pragma once

#include "cpu/runtime/buffer.h"
#include "cpu/runtime/layer.h"

namespace rotcell::cpu {

// Without any hook these have no memory.
template <class T>
class ForwardHooks {
 public:
  explicit ForwardHooks(const Layer<T>& layer);

  HookPointers<T> pointers() const;

 private:
  HookMasks<T> masks_;
  Buffer<T> h_, masked_h_;
  Buffer<MathType<T>> c_;
};

template <class T>
class BackwardHooks {
 public:
  BackwardHooks(const Layer<T>& layer, int64_t chunk_tokens);

  HookPointers<T> pointers() const;
  // What the first matmul saw of the state, for the tokens of a chunk: [tokens, P]. Null without
  // hooks.
  const T* masked_h() const { return masked_h_.data(); }

 private:
  HookMasks<T> masks_;
  Buffer<T> h_, c_, masked_h_, c_unmixed_;
  Buffer<MathType<T>> grad_masked_h_, grad_h_past_, grad_c_past_;
};

}  // namespace rotcell::cpu
