// A kernel as PTX has it, read and ready to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rotcell::ptx {

inline constexpr int warp_size = 32;

class Warp;
struct Instruction;

// What an instruction does to the lanes of a warp that have their bit in `active`.
using Run = void (*)(Warp& warp, const Instruction& instruction, uint32_t active);

// How the scheduler continues after an instruction.
enum class Flow : uint8_t {
  next,
  branch,
  exit,
  block_barrier,
  cluster_arrive,
  cluster_wait,
  acquire,  // a load that other blocks may have to be waited for
};

enum class Kind : uint8_t { global, shared, mma, fma, floats, special, barrier, branch, integer };

// What an operand must be.
enum class Width : uint8_t {
  predicate,  // one bit a lane
  four,       // bytes per lane; 16-bit registers use as many
  eight,
  either,  // four or eight
};

struct Operation {
  Run run;
  Kind kind;
  std::vector<Width> operands;  // written operands come first
  int written = 1;
  Flow flow = Flow::next;
};

// A register of the warp, or a constant of the kernel, which looks the same: a number for each
// lane, or a mask.
struct Operand {
  uint32_t word;   // where it begins
  uint32_t index;  // of the register
  Width width;
  bool is_constant;
  int64_t offset = 0;  // of an address: [register + offset]
};

struct Instruction {
  const Operation* operation;
  std::vector<Operand> operands;
  Operand guard{};  // @%p or @!%p
  bool is_guarded = false, guard_negated = false;
  int target = 0;  // of a branch
  int line = 0;    // in the file
  mutable bool was_executed = false;
};

// Registers that hold a number from the beginning.
enum class Special {
  thread,   // %tid.x
  block,    // %ctaid.x
  threads,  // %ntid.x
  blocks,   // %nctaid.x
  zero,     // %tid and %ctaid in other dimensions
  one,      // %nctaid there
};

struct Kernel {
  std::string name, file;
  std::vector<Instruction> instructions;
  std::vector<uint32_t> constants;
  uint32_t words = 0;      // of all registers of a warp
  uint32_t registers = 0;  // how many they are
  std::map<Special, Operand> specials;
  size_t parameter_bytes = 0;
  unsigned most_threads = 0;  // per block; 0 without a limit
};

}  // namespace rotcell::ptx
