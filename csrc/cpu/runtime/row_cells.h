// What the time loop of a cell whose math sees whole rows (cells/row_cell.h) needs of a call. For
// other cells these have no memory and do nothing.
#pragma once

#include "cpu/runtime/buffer.h"
#include "cpu/runtime/layer.h"

namespace rotcell::cpu {

// What is computed once per call, and scratch for so many threads.
template <class T>
class RowScratch {
 public:
  RowScratch(const Layer<T>& layer, int64_t threads);

  RowPointers<MathType<T>> pointers() const;

 private:
  RowParameters<MathType<T>> parameters_;
  int64_t width_ = 0;
  Buffer<MathType<T>> prepared_, scratch_;
};

// The gradients of the cell's own parameters: a sum for the rows of each tile, and at the end these
// in order. So the number of threads changes no bit.
template <class T>
class RowGradientSums {
 public:
  explicit RowGradientSums(const Layer<T>& layer);

  RowPointers<MathType<T>> added_to(RowPointers<MathType<T>> pointers) const;
  // Once all threads are done. Nothing if the gradients are not wanted.
  void sum_into(const RowGradients<MathType<T>>& gradients) const;

 private:
  const Layer<T>& layer_;
  int64_t width_ = 0, slots_ = 0;
  Buffer<MathType<T>> sums_;
};

}  // namespace rotcell::cpu
