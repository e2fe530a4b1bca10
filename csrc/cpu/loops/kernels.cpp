// The table of kernels of the instruction set in use.
#include "cpu/loops/kernels.h"

#include "cpu/runtime/instruction_set.h"

namespace rotcell::cpu {
namespace {

const InstructionSet& set_named([[maybe_unused]] const std::string& name) {
#if defined(ROTCELL_X86)
  if (name == "avx512") return avx512_set;
  if (name == "avx2") return avx2_set;
#endif
  return generic_set;
}

}  // namespace

const InstructionSet& instruction_set() {
  static const InstructionSet& chosen = set_named(instruction_set_name());
  return chosen;
}

}  // namespace rotcell::cpu
