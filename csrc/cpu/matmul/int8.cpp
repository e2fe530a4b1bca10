#include "cpu/matmul/int8.h"

#include "cpu/runtime/instruction_set.h"

namespace rotcell::cpu {

Int8KernelList usable_int8_kernels() {
  Int8KernelList list{{&int8_generic}, 1};
#if defined(ROTCELL_X86)
  // ROTCELL_ISA names a width; the instructions for int8 come with it where the processor has them.
  const std::string& set = instruction_set_name();
  const auto add = [&](const Int8Kernels& kernels, bool runs) {
    if (runs) list.kernels[list.count++] = &kernels;
  };
  const bool wide = set.starts_with("avx");
  add(int8_avx2, wide);
  add(int8_avx_vnni, wide && __builtin_cpu_supports("avxvnni"));
  add(int8_avx512_vnni, wide && set != "avx2" && __builtin_cpu_supports("avx512vnni"));
#endif
  return list;
}

const Int8Kernels& int8_kernels() {
  static const Int8Kernels& chosen = [&]() -> const Int8Kernels& {
    const Int8KernelList list = usable_int8_kernels();
    return *list.kernels[list.count - 1];
  }();
  return chosen;
}

}  // namespace rotcell::cpu
