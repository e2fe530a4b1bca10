// The instructions of PTX that the kernels are made of, by name.
#pragma once

#include <string>
#include <unordered_map>

#include "ptx/program.h"

namespace rotcell::ptx {

using Operations = std::unordered_map<std::string, Operation>;

// Null if it is not known.
const Operation* find_operation(const std::string& opcode);

void add_arithmetic(Operations& operations);
void add_conversions(Operations& operations);
void add_memory(Operations& operations);
void add_warp_operations(Operations& operations);
void add_control(Operations& operations);

}  // namespace rotcell::ptx
