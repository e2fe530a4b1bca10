#include "ops/buffers.h"

#include <sys/mman.h>

namespace rotcell::ops {

Tensor empty_buffer(Sizes sizes, DType dtype) {
  Tensor buffer = Tensor::empty(sizes, dtype);
#if defined(MADV_HUGEPAGE)
  constexpr int64_t kLarge = 4 << 20;
  constexpr uintptr_t kPage = 4096;
  if (const int64_t bytes = buffer.bytes(); bytes >= kLarge) {
    const auto begin = reinterpret_cast<uintptr_t>(buffer.raw_data());
    const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
    // Where this is not granted, everything is as it was.
    madvise(reinterpret_cast<void*>(first), begin + bytes - first, MADV_HUGEPAGE);
  }
#endif
  return buffer;
}

}  // namespace rotcell::ops
