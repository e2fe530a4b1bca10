// The number types of the tensors, for code that does not know CUDA's half types.
#pragma once

namespace rotcell::cuda {

enum class Number { kFloat32, kFloat64, kFloat16, kBFloat16 };

constexpr int storage_bytes(Number number) {
  return number == Number::kFloat64 ? 8 : number == Number::kFloat32 ? 4 : 2;
}
// Half types are computed in float32.
constexpr int compute_bytes(Number number) { return number == Number::kFloat64 ? 8 : 4; }
constexpr bool is_half(Number number) { return storage_bytes(number) == 2; }

}  // namespace rotcell::cuda
