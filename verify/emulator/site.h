// A line of a kernel's source.
#pragma once

#include <cstring>

namespace rotcell::emulator {

struct Site {
  const char* file = "";
  int line = 0;

  bool operator==(const Site& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};

// As a default argument: the line of the call.
constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {file, line};
}

}  // namespace rotcell::emulator
