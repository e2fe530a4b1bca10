// Lends torch's threads to the CPU runtime.
#include "cpu/runtime/thread_pool.h"

#include "torch/registration.h"
#include "torch/tensor.h"

extern "C" {
// From the OpenMP runtime that torch loaded; rotcell links none.
__attribute__((weak)) int omp_in_parallel();
}

namespace rotcell::ops {
namespace {

int64_t torch_threads() {
  uint32_t threads;
  ROTCELL_SHIM(torch_get_num_threads, &threads);
  return threads;
}

int64_t torch_thread_index() {
  uint32_t thread;
  ROTCELL_SHIM(torch_get_thread_idx, &thread);
  return thread;
}

void torch_parallel_ranges(int64_t count, int64_t least, void (*body)(int64_t, int64_t, void*),
                           void* context) {
  ROTCELL_SHIM(torch_parallel_for, 0, count, /*grain_size=*/least, body, context);
}

const AtLoad registration([] {
  const bool openmp = omp_in_parallel != nullptr;
  cpu::use_thread_pool({
      .threads = torch_threads,
      .in_parallel = openmp ? [] { return omp_in_parallel() != 0; } : [] { return false; },
      .parallel_for = torch_parallel_ranges,
      // torch's own pool, without OpenMP, promises no thread to any item.
      .thread_index = openmp ? torch_thread_index : nullptr,
  });
});

}  // namespace
}  // namespace rotcell::ops
