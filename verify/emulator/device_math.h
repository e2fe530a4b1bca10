// Functions of CUDA's device library that the C library lacks.
#pragma once

#include <math.h>

// Both parts of reducing x to the nearest multiple of 1/2 are exact.
inline void sincospi(double x, double* sine, double* cosine) {
  const double turned = x - 2 * rint(x / 2);  // -1 to 1
  const double quarter = rint(2 * turned);    // -2 to 2
  const double angle = (turned - quarter / 2) * 3.14159265358979323846;
  const double s = sin(angle), c = cos(angle);
  const int turns = isfinite(x) ? static_cast<int>(quarter) & 3 : 0;
  *sine = turns == 0 ? s : turns == 1 ? c : turns == 2 ? -s : -c;
  *cosine = turns == 0 ? c : turns == 1 ? -s : turns == 2 ? -c : s;
}

inline void sincospif(float x, float* sine, float* cosine) {
  double s, c;
  sincospi(static_cast<double>(x), &s, &c);
  *sine = static_cast<float>(s);
  *cosine = static_cast<float>(c);
}

// As on a GPU: a power of two, of a product rounded to float.
inline float __expf(float x) noexcept { return exp2f(x * 1.4426950408889634f); }

inline float __fdividef(float x, float y) { return x / y; }
