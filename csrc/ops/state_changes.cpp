#include "ops/state_changes.h"

namespace rotcell::ops {
namespace {

template <class T>
cpu::Shares<T> shares(const Tensor& tensor) {
  if (!tensor) return {};
  return {tensor.const_data<T>(), tensor.size(0) == 1 ? 0 : tensor.size(1)};
}

template <class T>
Tensor scratch(int64_t rows, int64_t columns) {
  return Tensor::empty({rows, columns}, dtype_of<T>());
}

}  // namespace

template <class T>
ChangeMasks<T>::ChangeMasks(const ChangeTensors& changes)
    : resets(changes.resets.as_contiguous(boolean())),
      recurrent_dropout(changes.recurrent_dropout.as_contiguous(dtype_of<T>())),
      zoneout_h(changes.zoneout_h.as_contiguous(dtype_of<T>())),
      zoneout_c(changes.zoneout_c.as_contiguous(dtype_of<T>())) {}

template <class T>
void ChangeMasks<T>::write(cpu::Changes<T>& pointers) const {
  pointers.marks = resets.const_data<bool>();
  pointers.dropout = recurrent_dropout.const_data<T>();
  pointers.zoneout_h = shares<T>(zoneout_h);
  pointers.zoneout_c = shares<T>(zoneout_c);
}

template <class T>
ForwardChanges<T>::ForwardChanges(const CellDescription& cell, const LayerSizes& sizes,
                                  const ChangeTensors& tensors)
    : what_(tensors.what()), masks_(tensors) {
  if (!what_.any()) return;
  h_ = scratch<T>(sizes.batch, sizes.outputs);
  if (cell.has_memory) c_ = scratch<T>(sizes.batch, sizes.hidden);
  if (what_.recurrent_dropout) seen_ = scratch<T>(sizes.batch, sizes.outputs);
}

template <class T>
cpu::Changes<T> ForwardChanges<T>::pointers() const {
  cpu::Changes<T> pointers{};
  if (!what_.any()) return pointers;
  pointers.what = what_;
  masks_.write(pointers);
  pointers.h = h_.data<T>();
  pointers.c = c_.data<T>();
  pointers.seen = (what_.recurrent_dropout ? seen_ : h_).template data<T>();
  return pointers;
}

template <class T>
BackwardChanges<T>::BackwardChanges(const CellDescription& cell, const LayerSizes& sizes,
                                    const ChangeTensors& tensors, int64_t chunk_tokens)
    : what_(tensors.what()), masks_(tensors) {
  if (!what_.any()) return;
  h_ = scratch<T>(sizes.batch, sizes.outputs);
  seen_ = scratch<T>(chunk_tokens, sizes.outputs);
  grad_seen_ = scratch<T>(sizes.batch, sizes.outputs);
  if (what_.zoneout_h) grad_h_past_ = scratch<T>(sizes.batch, sizes.hidden);
  if (!cell.has_memory) return;
  c_ = scratch<T>(sizes.batch, sizes.hidden);
  if (what_.zoneout_c) {
    grad_c_past_ = scratch<T>(sizes.batch, sizes.hidden);
    fresh_c_ = scratch<T>(sizes.batch, sizes.hidden);
  }
}

template <class T>
cpu::Changes<T> BackwardChanges<T>::pointers() const {
  cpu::Changes<T> pointers{};
  if (!what_.any()) return pointers;
  pointers.what = what_;
  masks_.write(pointers);
  pointers.h = h_.data<T>();
  pointers.c = c_.data<T>();
  pointers.seen = seen_.data<T>();
  pointers.grad_seen = grad_seen_.data<T>();
  pointers.grad_h_past = grad_h_past_.data<T>();
  pointers.grad_c_past = grad_c_past_.data<T>();
  pointers.fresh_c = fresh_c_.data<T>();
  return pointers;
}

template struct ChangeMasks<float>;
template struct ChangeMasks<double>;
template class ForwardChanges<float>;
template class ForwardChanges<double>;
template class BackwardChanges<float>;
template class BackwardChanges<double>;

}  // namespace rotcell::ops
