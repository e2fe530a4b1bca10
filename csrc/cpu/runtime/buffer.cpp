#include "cpu/runtime/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace rotcell::cpu {

void* allocate(int64_t count, int64_t element_size) {
  constexpr int64_t kAlignment = 64;
  void* memory = nullptr;
  int64_t bytes = 0;
  if (count < 0 || __builtin_mul_overflow(count, element_size, &bytes) ||
      posix_memalign(&memory, kAlignment, std::max(bytes, kAlignment)) != 0) {
    throw std::runtime_error("rotcell: not enough memory for " + std::to_string(count) +
                             " numbers of " + std::to_string(element_size) + " bytes");
  }
  prefer_huge_pages(memory, bytes);
  return memory;
}

void prefer_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr int64_t kLarge = 4 << 20;
  constexpr uintptr_t kPage = 4096;
  if (bytes < kLarge) return;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  // If this is refused, small pages are used.
  madvise(reinterpret_cast<void*>(first), begin + bytes - first, MADV_HUGEPAGE);
#endif
}

}  // namespace rotcell::cpu
