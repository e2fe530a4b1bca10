// What Python asks the CPU library for besides ops, by ctypes: it works with every Python.
#include <exception>
#include <string>

#include "cpu/instruction_set.h"
#include "ops/processors.h"

#define ROTCELL_EXPORTED extern "C" __attribute__((visibility("default")))

// The instruction set in use; null if ROTCELL_ISA names none that runs here.
ROTCELL_EXPORTED const char* rotcell_instruction_set() {
  try {
    return rotcell::cpu::instruction_set_name().c_str();
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Those that this machine runs, narrowest first, with commas between them.
ROTCELL_EXPORTED const char* rotcell_instruction_sets() {
  static const std::string names = [] {
    std::string all;
    for (const std::string& name : rotcell::cpu::instruction_set_names()) {
      all += (all.empty() ? "" : ",") + name;
    }
    return all;
  }();
  return names.c_str();
}

ROTCELL_EXPORTED int rotcell_processors() { return static_cast<int>(rotcell::ops::processors()); }
