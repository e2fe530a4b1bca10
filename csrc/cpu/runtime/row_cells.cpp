#include "cpu/runtime/row_cells.h"

#include <algorithm>

namespace rotcell::cpu {
namespace {

template <class T>
const RowKernels<MathType<T>>& row_kernels(const Layer<T>& layer) {
  return kernels<T>().cells[layer.cell].row;
}

}  // namespace

template <class T>
RowScratch<T>::RowScratch(const Layer<T>& layer, int64_t threads) : parameters_(layer.parameters) {
  if (!layer.sizes.sees_rows) return;
  const RowKernels<MathType<T>>& kernels = row_kernels(layer);
  width_ = kernels.scratch(layer.sizes.hidden);
  prepared_ = Buffer<MathType<T>>(kernels.prepared(layer.sizes.hidden, parameters_.layers));
  scratch_ = Buffer<MathType<T>>(threads * width_);
  kernels.prepare(parameters_, prepared_.data());
}

template <class T>
RowPointers<MathType<T>> RowScratch<T>::pointers() const {
  return {.parameters = parameters_,
          .prepared = prepared_.data(),
          .scratch = scratch_.data(),
          .scratch_width = width_};
}

template <class T>
RowGradientSums<T>::RowGradientSums(const Layer<T>& layer) : layer_(layer) {
  if (!layer.sizes.sees_rows) return;
  const int64_t tile = kernels<T>().row_tile;
  width_ = row_kernels(layer).gradients(layer.sizes.hidden, layer.parameters.layers);
  slots_ = (layer.sizes.batch + tile - 1) / tile;
  sums_ = Buffer<MathType<T>>(slots_ * width_);
  std::fill_n(sums_.data(), slots_ * width_, MathType<T>{0});
}

template <class T>
RowPointers<MathType<T>> RowGradientSums<T>::added_to(RowPointers<MathType<T>> pointers) const {
  pointers.gradients = sums_.data();
  pointers.gradient_width = width_;
  return pointers;
}

template <class T>
void RowGradientSums<T>::sum_into(const RowGradients<MathType<T>>& gradients) const {
  if (width_ == 0) return;
  const CellDescription& cell = kCells[layer_.cell];
  const int64_t hidden = layer_.sizes.hidden, layers = layer_.parameters.layers;
  const auto sum = [&](const MathType<T>* first_slot, int64_t count, MathType<T>* target) {
    if (target == nullptr) return;
    std::fill_n(target, count, MathType<T>{0});
    for (int64_t slot = 0; slot < slots_; ++slot) {
      for (int64_t i = 0; i < count; ++i) target[i] += first_slot[slot * width_ + i];
    }
  };
  const RowGradients<MathType<T>> first =
      row_kernels(layer_).find_gradients(sums_.data(), hidden, layers);
  if (cell.adds_biases) sum(first.bias, layer_.sizes.input_rows, gradients.bias);
  for (int i = 0; i < cell.parameter_count; ++i) {
    const int64_t count = cell.parameter(i).elements(hidden, layer_.sizes.input_rows, layers);
    sum(first.of[i], count, gradients.of[i]);
  }
}

template class RowScratch<float>;
template class RowScratch<double>;
template class RowScratch<BFloat16>;
template class RowGradientSums<float>;
template class RowGradientSums<double>;
template class RowGradientSums<BFloat16>;

}  // namespace rotcell::cpu
