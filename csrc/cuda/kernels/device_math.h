// Scalars on a GPU: how the dtypes are read and written, and the functions a cell needs.
#pragma once

#include <cmath>

#include "cells/pair.h"
#include "cuda/platform/platform.h"

namespace rotcell::cuda {

// The type computed in.
template <class T>
struct ComputeType {
  using Type = float;
};
template <>
struct ComputeType<double> {
  using Type = double;
};
template <class T>
using Compute = typename ComputeType<T>::Type;

ROTCELL_DEVICE float to_compute(float x) { return x; }
ROTCELL_DEVICE double to_compute(double x) { return x; }
ROTCELL_DEVICE float to_compute(__half x) { return __half2float(x); }
ROTCELL_DEVICE float to_compute(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
ROTCELL_DEVICE T to_storage(Compute<T> x) {
  return x;
}
template <>
ROTCELL_DEVICE __half to_storage<__half>(float x) {
  return __float2half(x);
}
template <>
ROTCELL_DEVICE __nv_bfloat16 to_storage<__nv_bfloat16>(float x) {
  return __float2bfloat16(x);
}

template <class V>
struct DeviceMath;

template <>
struct DeviceMath<float> {
  using Value = float;
  static ROTCELL_DEVICE float constant(double x) { return static_cast<float>(x); }
  static ROTCELL_DEVICE float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
  static ROTCELL_DEVICE float tanh(float x) { return tanhf(x); }
  // A NaN stays one.
  static ROTCELL_DEVICE float hard_sigmoid(float x) {
    const float line = 0.2f * x + 0.5f;
    return line < 0 ? 0 : line > 1 ? 1 : line;
  }
  static ROTCELL_DEVICE float hard_sigmoid_slope(float s) { return s <= 0 || s >= 1 ? 0 : 0.2f; }
  static ROTCELL_DEVICE void sincos_turns(float s, float& sin, float& cos) {
    sincospif(2.0f * s, &sin, &cos);
  }
};

template <>
struct DeviceMath<double> {
  using Value = double;
  static ROTCELL_DEVICE double constant(double x) { return x; }
  static ROTCELL_DEVICE double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
  static ROTCELL_DEVICE double tanh(double x) { return ::tanh(x); }
  // A NaN stays one.
  static ROTCELL_DEVICE double hard_sigmoid(double x) {
    const double line = 0.2 * x + 0.5;
    return line < 0 ? 0 : line > 1 ? 1 : line;
  }
  static ROTCELL_DEVICE double hard_sigmoid_slope(double s) { return s <= 0 || s >= 1 ? 0 : 0.2; }
  static ROTCELL_DEVICE void sincos_turns(double s, double& sin, double& cos) {
    sincospi(2.0 * s, &sin, &cos);
  }
};

}  // namespace rotcell::cuda
