// Memory of an op on the CPU, and weights as the kernels want them.
#pragma once

#include <vector>

#include "cpu/kernels.h"
#include "ops/tensor.h"
#include "ops/threads.h"

namespace rotcell::ops {

// An uninitialised tensor. A large one is fresh memory at every call, and asks the system for huge
// pages: thousands of small ones, each zeroed at its first touch, would take a tenth of the time.
Tensor empty_buffer(Sizes sizes, DType dtype);

template <class T>
Tensor empty_buffer(Sizes sizes) {
  return empty_buffer(sizes, dtype_of<T>());
}

// Undefined for undefined weights.
template <class T>
Tensor packed(const cpu::Packing<T>& packing, const Tensor& weights) {
  if (!weights) return {};
  const int64_t rows = weights.size(0), depth = weights.size(1);
  const int64_t elements = packing.elements(rows, depth);
  Tensor panels = empty_buffer<T>({elements});
  const T* from = weights.const_data<T>();
  T* to = panels.data<T>();
  for_slices(elements, [&](cpu::Slice slice) { packing.pack(from, rows, depth, to, slice); });
  return panels;
}

// For the threads that share a layer.
template <class T>
Tensor packed(const cpu::RecurrentPacking<T>& packing, const cpu::RecurrentWeights<T>& weights,
              const std::vector<cpu::UnitRange>& units) {
  std::vector<int64_t> begins{0};
  for (const cpu::UnitRange& range : units) {
    begins.push_back(begins.back() + packing.elements(weights, range));
  }
  Tensor panels = empty_buffer<T>({begins.back()});
  T* to = panels.data<T>();
  for_slices(begins.back(), [&](cpu::Slice slice) {
    for (size_t i = 0; i < units.size(); ++i) {
      packing.pack(weights, units[i], to + begins[i], slice);
    }
  });
  return panels;
}

// For kernels with rows in the lanes: forward with the biases, and for the way back.
template <class T>
Tensor packed_forward(const cpu::RowLayoutKernels<T>& kernels,
                      const cpu::RecurrentWeights<T>& weights, cpu::BiasOf bias_of, const T* bias) {
  Tensor panels = empty_buffer<T>({kernels.forward_elements(weights, bias_of)});
  kernels.pack_forward(weights, bias_of, bias, panels.data<T>());
  return panels;
}
template <class T>
Tensor packed_backward(const cpu::RowLayoutKernels<T>& kernels,
                       const cpu::RecurrentWeights<T>& weights) {
  Tensor panels = empty_buffer<T>({kernels.backward_elements(weights)});
  kernels.pack_backward(weights, panels.data<T>());
  return panels;
}

}  // namespace rotcell::ops
