// The int8 kernels against plain loops that round where the kernels are to round. Results must be
// the same to the bit on every set of instructions, so nothing may be fused.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "cpu/matmul/int8.h"

namespace rotcell::tests {

struct Int8Case {
  int64_t count, rows, depth, first, columns;
  bool extreme;  // all numbers are 127 or -127
};

// Products and sums of floats, rounded once. In double a product is exact, and a sum rounded twice
// is the same as rounded once; the conversions keep compilers from fusing them.
inline float rounded_product(float a, float b) { return static_cast<float>(double{a} * b); }
inline float rounded_sum(float a, float b) { return static_cast<float>(double{a} + b); }

// Results that are not what they should be.
inline int64_t wrong_int8_results(const cpu::Int8Kernels& kernels, const Int8Case& c) {
  using namespace cpu;
  std::mt19937 generator(c.count + c.rows + c.depth);
  const auto number = [&] {
    const int value = std::uniform_int_distribution<int>(-127, 127)(generator);
    return !c.extreme ? value : value < 0 ? -127 : 127;
  };
  const auto real = [&] {
    return c.extreme ? std::copysign(0.7f, static_cast<float>(number()))
                     : std::uniform_real_distribution<float>(-1, 1)(generator);
  };
  const int64_t groups = int8_groups(c.depth), stride = c.depth + 3;
  std::vector<int> weights(c.rows * c.depth), values(c.count * c.depth);
  std::vector<int8_t> panels(int8_panels(c.rows) * groups * kInt8PanelRows * kInt8Group);
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t i = 0; i < c.depth; ++i) {
      const int64_t group = row / kInt8PanelRows * groups + i / kInt8Group;
      const int64_t place = (group * kInt8PanelRows + row % kInt8PanelRows) * kInt8Group;
      weights[row * c.depth + i] = number();
      panels[place + i % kInt8Group] = static_cast<int8_t>(weights[row * c.depth + i]);
    }
  }
  std::vector<float> x(c.count * stride, 1e9f), expected_scales(c.count);
  for (int64_t row = 0; row < c.count; ++row) {
    float* of_row = x.data() + row * stride;
    float largest = 0;
    for (int64_t i = 0; i < c.depth; ++i) {
      of_row[i] = real();
      largest = std::max(largest, std::abs(of_row[i]));
    }
    expected_scales[row] = largest / 127.0f;
    for (int64_t i = 0; i < c.depth; ++i) {
      const float exact = rounded_product(of_row[i], 127.0f / largest);
      values[row * c.depth + i] = static_cast<int>(std::nearbyint(exact));
    }
  }
  std::vector<float> scales(c.rows);
  for (float& scale : scales) scale = std::uniform_real_distribution<float>(0.01f, 1)(generator);
  std::vector<int8_t> quantized(c.count * groups * kInt8Group, 99);
  std::vector<float> row_scales(c.count);
  std::vector<int32_t> sums(c.count);
  const Int8Rows rows{quantized.data(), groups * kInt8Group, row_scales.data(), sums.data()};
  kernels.quantize(x.data(), stride, c.count, c.depth, rows);
  const int64_t width = c.columns + 2;
  const float addend = -0.3f;
  std::vector<float> result(c.count * width, addend);
  const Int8Weights packed{panels.data(), scales.data(), c.rows, c.depth};
  kernels.multiply(rows, c.count, packed, c.first, c.columns, {result.data() + 1, width},
                   result.data() + 1, width);
  int64_t wrong = 0;
  for (int64_t row = 0; row < c.count; ++row) {
    for (int64_t column = -1; column <= c.columns; ++column) {
      float expected = addend;
      if (column >= 0 && column < c.columns) {
        int32_t sum = 0;
        for (int64_t i = 0; i < c.depth; ++i) {
          sum += values[row * c.depth + i] * weights[(c.first + column) * c.depth + i];
        }
        const float scale = rounded_product(scales[c.first + column], expected_scales[row]);
        expected = rounded_sum(addend, rounded_product(static_cast<float>(sum), scale));
      }
      if (result[row * width + column + 1] != expected) ++wrong;
    }
  }
  return wrong;
}

// Checks all instructions that run here; returns how many cases failed.
inline int check_int8() {
  int failures = 0;
  const cpu::Int8KernelList list = cpu::usable_int8_kernels();
  for (int i = 0; i < list.count; ++i) {
    const auto check = [&](const Int8Case& c) {
      const int64_t wrong = wrong_int8_results(*list.kernels[i], c);
      if (wrong == 0) return;
      ++failures;
      std::printf("FAILED int8 %s: %lld rows, weights %lld x %lld from %lld on %lld: %lld wrong\n",
                  list.kernels[i]->instructions, static_cast<long long>(c.count),
                  static_cast<long long>(c.rows), static_cast<long long>(c.depth),
                  static_cast<long long>(c.first), static_cast<long long>(c.columns),
                  static_cast<long long>(wrong));
    };
    for (const int64_t count : {1, 2, 3, 4, 5, 7, 8, 9, 19}) {
      for (const int64_t depth : {1, 3, 4, 50, 129}) {
        for (const int64_t rows : {1, 15, 16, 33, 130, 300}) {
          check({count, rows, depth, 0, rows, count % 2 == 0});
          if (rows > 20) check({count, rows, depth, 5, rows - 9, false});
          if (rows > 20) check({count, rows, depth, 17, 2, false});
        }
      }
    }
    check({3, 40, 1024, 0, 40, true});
    check({2, 17, cpu::kInt8MostDepth, 0, 17, true});
  }
  return failures;
}

}  // namespace rotcell::tests
