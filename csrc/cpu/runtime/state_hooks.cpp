#include "cpu/runtime/state_hooks.h"

namespace rotcell::cpu {
namespace {

template <class T>
HookPointers<T> with_masks(const HookMasks<T>& masks) {
  HookPointers<T> pointers{};
  pointers.what = masks.what();
  pointers.reset_mask = masks.resets;
  pointers.dropout = masks.recurrent_dropout;
  pointers.zoneout_h = masks.zoneout_h;
  pointers.zoneout_c = masks.zoneout_c;
  return pointers;
}

}  // namespace

template <class T>
ForwardHooks<T>::ForwardHooks(const Layer<T>& layer) : masks_(layer.hooks) {
  const StateHooks what = masks_.what();
  if (!what.any()) return;
  const LayerSizes& sizes = layer.sizes;
  h_ = Buffer<T>(sizes.batch * sizes.outputs);
  if (kCells[layer.cell].has_cell_state) c_ = Buffer<MathType<T>>(sizes.batch * sizes.hidden);
  if (what.recurrent_dropout) masked_h_ = Buffer<T>(sizes.batch * sizes.outputs);
}

template <class T>
HookPointers<T> ForwardHooks<T>::pointers() const {
  HookPointers<T> pointers = with_masks(masks_);
  pointers.h = h_.data();
  pointers.c = c_.data();
  pointers.masked_h = masked_h_ ? masked_h_.data() : h_.data();
  return pointers;
}

template <class T>
BackwardHooks<T>::BackwardHooks(const Layer<T>& layer, int64_t chunk_tokens) : masks_(layer.hooks) {
  const StateHooks what = masks_.what();
  if (!what.any()) return;
  const LayerSizes& sizes = layer.sizes;
  h_ = Buffer<T>(sizes.batch * sizes.outputs);
  masked_h_ = Buffer<T>(chunk_tokens * sizes.outputs);
  grad_masked_h_ = Buffer<MathType<T>>(sizes.batch * sizes.outputs);
  if (what.zoneout_h) grad_h_past_ = Buffer<MathType<T>>(sizes.batch * sizes.hidden);
  if (!kCells[layer.cell].has_cell_state) return;
  c_ = Buffer<T>(sizes.batch * sizes.hidden);
  if (what.zoneout_c) {
    grad_c_past_ = Buffer<MathType<T>>(sizes.batch * sizes.hidden);
    c_unmixed_ = Buffer<T>(sizes.batch * sizes.hidden);
  }
}

template <class T>
HookPointers<T> BackwardHooks<T>::pointers() const {
  HookPointers<T> pointers = with_masks(masks_);
  pointers.h = h_.data();
  pointers.stored_c = c_.data();
  pointers.masked_h = masked_h_.data();
  pointers.grad_masked_h = grad_masked_h_.data();
  pointers.grad_h_past = grad_h_past_.data();
  pointers.grad_c_past = grad_c_past_.data();
  pointers.c_unmixed = c_unmixed_.data();
  return pointers;
}

template class ForwardHooks<float>;
template class ForwardHooks<double>;
template class ForwardHooks<BFloat16>;
template class BackwardHooks<float>;
template class BackwardHooks<double>;
template class BackwardHooks<BFloat16>;

}  // namespace rotcell::cpu
