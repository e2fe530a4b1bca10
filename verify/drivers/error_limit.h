// How far results of the CUDA kernels may be from those of the CPU kernels in double.
#pragma once

#include "drivers/cuda_sequences.h"

namespace rotcell::tests {

// The rounding of each of a few steps to the tensors' type, and float32's functions.
template <class T>
constexpr double error_limit() {
  return 16 * NumberOf<T>::kEpsilon + (sizeof(T) == 8 ? 0 : 64 * 0x1p-23);
}

}  // namespace rotcell::tests
