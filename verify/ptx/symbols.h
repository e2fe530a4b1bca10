// Names of the program's own functions.
#pragma once

#include <string>

namespace rotcell::ptx {

// The symbol of a function of this program, which must not be stripped; empty if it has none.
std::string symbol_of(const void* function);

// The same for all compilers: they name unnamed namespaces as they like.
std::string with_plain_namespaces(std::string symbol);

}  // namespace rotcell::ptx
