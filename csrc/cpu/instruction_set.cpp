// Which instruction set runs: chosen once per process.
#include <cstdlib>
#include <stdexcept>

#include "cpu/kernels.h"

namespace rotcell::cpu {
namespace {

std::vector<const InstructionSet*> runnable_sets() {
  std::vector<const InstructionSet*> sets{&generic_set};
#if defined(ROTCELL_X86)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) sets.push_back(&avx2_set);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    sets.push_back(&avx512_set);
  }
#endif
  return sets;
}

const InstructionSet& choose() {
  const std::vector<const InstructionSet*> sets = runnable_sets();
  const char* wanted = std::getenv("ROTCELL_ISA");
  if (!wanted || !*wanted) return *sets.back();
  std::string names;
  for (const InstructionSet* set : sets) {
    const std::string name = set->float_kernels.instruction_set;
    if (name == wanted) return *set;
    names += (names.empty() ? "" : ", ") + name;
  }
  throw std::invalid_argument("ROTCELL_ISA is '" + std::string(wanted) +
                              "', but this machine and build can run only: " + names);
}

}  // namespace

const InstructionSet& instruction_set() {
  static const InstructionSet& chosen = choose();
  return chosen;
}

std::vector<std::string> instruction_set_names() {
  std::vector<std::string> names;
  for (const InstructionSet* set : runnable_sets()) {
    names.emplace_back(set->float_kernels.instruction_set);
  }
  return names;
}

}  // namespace rotcell::cpu
