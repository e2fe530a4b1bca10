// The table of kernels of the instruction set in use.
#include "cpu/loops/kernels.h"

#include "cpu/runtime/instruction_set.h"

namespace rotcell::cpu {
namespace {

InstructionSet set_named([[maybe_unused]] const std::string& name) {
#if defined(ROTCELL_AVX512_BF16)
  if (name == "avx512_bf16") {
    return {avx512_float_kernels, avx512_double_kernels, &avx512_bf16_bfloat16_kernels};
  }
#endif
#if defined(ROTCELL_X86)
  if (name == "avx512") return {avx512_float_kernels, avx512_double_kernels, nullptr};
  if (name == "avx2") return {avx2_float_kernels, avx2_double_kernels, nullptr};
#endif
  const bool emulates = name == "generic_bf16";
  return {generic_float_kernels, generic_double_kernels,
          emulates ? &generic_bfloat16_kernels : nullptr};
}

}  // namespace

const InstructionSet& instruction_set() {
  static const InstructionSet chosen = set_named(instruction_set_name());
  return chosen;
}

}  // namespace rotcell::cpu
