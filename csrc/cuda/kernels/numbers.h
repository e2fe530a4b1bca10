// The dtypes of the tensors, for code that does not know CUDA's fp16 and bf16.
#pragma once

namespace rotcell::cuda {

enum class Number { kFloat32, kFloat64, kFloat16, kBFloat16 };

constexpr int storage_bytes(Number number) {
  return number == Number::kFloat64 ? 8 : number == Number::kFloat32 ? 4 : 2;
}
constexpr bool is_half(Number number) { return storage_bytes(number) == 2; }
// fp16 and bf16 are computed in float32.
constexpr Number computed_in(Number number) { return is_half(number) ? Number::kFloat32 : number; }
constexpr int compute_bytes(Number number) { return storage_bytes(computed_in(number)); }

}  // namespace rotcell::cuda
