// Numbers in the format that the caller stores them in.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cpu/bfloat16.h"

namespace rotcell::cpu {

enum class Storage { kFloat32, kFloat64, kFloat16, kBFloat16 };

// A contiguous matrix.
struct StoredRows {
  const void* data;
  Storage storage;
};

// The dtype T in memory.
template <class T>
constexpr Storage storage_of() {
  if (std::is_same_v<T, BFloat16>) return Storage::kBFloat16;
  return sizeof(T) == 8 ? Storage::kFloat64 : Storage::kFloat32;
}

// Exact: every float16 and bfloat16 is a float32. `storage` is one of these two.
void to_float(const void* from, Storage storage, int64_t first, int64_t count, float* to);

}  // namespace rotcell::cpu
