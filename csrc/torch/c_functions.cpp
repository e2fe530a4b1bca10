// C functions for Python, called by ctypes, which works with every Python.
#include <exception>
#include <string>

#include "cpu/matmul/int8.h"
#include "cpu/runtime/instruction_set.h"
#include "cpu/runtime/processors.h"

#define ROTCELL_EXPORTED extern "C" __attribute__((visibility("default")))

// The instruction set in use; null if ROTCELL_ISA names none that runs here.
ROTCELL_EXPORTED const char* rotcell_instruction_set() {
  try {
    return rotcell::cpu::instruction_set_name().c_str();
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Those that this machine runs, narrowest first, with commas between them; null without memory.
ROTCELL_EXPORTED const char* rotcell_instruction_sets() try {
  static const std::string names = [] {
    std::string all;
    for (const std::string& name : rotcell::cpu::instruction_set_names()) {
      all += (all.empty() ? "" : ",") + name;
    }
    return all;
  }();
  return names.c_str();
} catch (const std::exception&) {
  return nullptr;
}

// What matmuls with int8 weights use; null as rotcell_instruction_set.
ROTCELL_EXPORTED const char* rotcell_int8_instructions() {
  try {
    return rotcell::cpu::int8_kernels().instructions;
  } catch (const std::exception&) {
    return nullptr;
  }
}

// 1 if memory is missing to find out.
ROTCELL_EXPORTED int rotcell_processors() try {
  return static_cast<int>(rotcell::cpu::processors());
} catch (const std::exception&) {
  return 1;
}
