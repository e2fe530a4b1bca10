// Weights as the kernels want them, packed on as many threads as it is worth.
#pragma once

#include <vector>

#include "cpu/loops/kernels.h"
#include "cpu/runtime/buffer.h"
#include "cpu/runtime/threads.h"

namespace rotcell::cpu {

// weights [rows, depth]; an empty buffer for null.
template <class T>
Buffer<T> packed(const Packing<T>& packing, const T* weights, int64_t rows, int64_t depth) {
  if (weights == nullptr) return {};
  const int64_t elements = packing.elements(rows, depth);
  Buffer<T> panels(elements);
  for_slices(elements,
             [&](Slice slice) { packing.pack(weights, rows, depth, panels.data(), slice); });
  return panels;
}

// For threads that share the units of a layer: their parts lie one after the other.
template <class T>
Buffer<T> packed(const RecurrentPacking<T>& packing, const RecurrentWeights<T>& weights,
                 const std::vector<UnitRange>& units) {
  std::vector<int64_t> begins{0};
  for (const UnitRange& range : units) {
    begins.push_back(begins.back() + packing.elements(weights, range));
  }
  Buffer<T> panels(begins.back());
  for_slices(begins.back(), [&](Slice slice) {
    for (size_t i = 0; i < units.size(); ++i) {
      packing.pack(weights, units[i], panels.data() + begins[i], slice);
    }
  });
  return panels;
}

// For the batch-vectorized loop: forward with the biases, and for the backward pass.
template <class T>
Buffer<T> packed_forward(const BatchVectorizedKernels<T>& kernels,
                         const RecurrentWeights<T>& weights, BiasOf bias_of,
                         const MathType<T>* bias) {
  Buffer<T> panels(kernels.forward_elements(weights, bias_of));
  kernels.pack_forward(weights, bias_of, bias, panels.data());
  return panels;
}
template <class T>
Buffer<T> packed_backward(const BatchVectorizedKernels<T>& kernels,
                          const RecurrentWeights<T>& weights) {
  Buffer<T> panels(kernels.backward_elements(weights));
  kernels.pack_backward(weights, panels.data());
  return panels;
}

}  // namespace rotcell::cpu
