// Runs launches of the emulator from PTX.
#pragma once

#include <filesystem>

namespace rotcell::ptx {

// From now on kernels run as the .ptx files of the folder have them. Returns what they were
// compiled for, such as 80.
int run_launches_from(const std::filesystem::path& folder);

// Writes a line for each kernel of the folder: its symbol, and a letter for each instruction. x was
// executed, m is an instruction of tensor cores that was; . and o are such that were not.
void write_coverage(const std::filesystem::path& file);

}  // namespace rotcell::ptx
