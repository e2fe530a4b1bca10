// Which instruction sets this machine runs, and which one is in use. Knows no kernel.
#pragma once

#include <string>
#include <vector>

namespace rotcell::cpu {

// The set that every machine of this kind has: the compiler's vectors of 16 bytes, which on 64-bit
// ARM are those of NEON.
#if defined(__aarch64__)
inline constexpr const char* kBaselineSet = "neon";
#else
inline constexpr const char* kBaselineSet = "generic";
#endif

// The names of all sets built in that this machine runs, narrowest first. "generic_bf16" is
// "generic" that emulates what "avx512_bf16" does in bfloat16: for tests, and never chosen unasked.
std::vector<std::string> instruction_set_names();

// The widest of them, or the one that the environment variable ROTCELL_ISA names: chosen once per
// process. Throws std::invalid_argument if it names none of them.
const std::string& instruction_set_name();

}  // namespace rotcell::cpu
