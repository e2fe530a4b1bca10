#include "cpu/runtime/instruction_set.h"

#include <cstdlib>
#include <stdexcept>

namespace rotcell::cpu {
namespace {

std::string choose() {
  const std::vector<std::string> sets = instruction_set_names();
  const char* requested = std::getenv("ROTCELL_ISA");
  if (!requested || !*requested) return sets.back();
  std::string names;
  for (const std::string& name : sets) {
    if (name == requested) return name;
    names += (names.empty() ? "" : ", ") + name;
  }
  throw std::invalid_argument("ROTCELL_ISA is '" + std::string(requested) +
                              "', but this machine and build can run only: " + names);
}

}  // namespace

std::vector<std::string> instruction_set_names() {
  std::vector<std::string> names{"generic_bf16", kBaselineSet};
#if defined(ROTCELL_X86)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) names.emplace_back("avx2");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    names.emplace_back("avx512");
#if defined(ROTCELL_AVX512_BF16)
    if (__builtin_cpu_supports("avx512bf16")) names.emplace_back("avx512_bf16");
#endif
  }
#endif
  return names;
}

const std::string& instruction_set_name() {
  static const std::string chosen = choose();
  return chosen;
}

}  // namespace rotcell::cpu
