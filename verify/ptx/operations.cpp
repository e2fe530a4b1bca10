#include "ptx/operations.h"

namespace rotcell::ptx {

const Operation* find_operation(const std::string& opcode) {
  static const Operations operations = [] {
    Operations made;
    add_arithmetic(made);
    add_conversions(made);
    add_memory(made);
    add_warp_operations(made);
    add_control(made);
    return made;
  }();
  const auto found = operations.find(opcode);
  return found == operations.end() ? nullptr : &found->second;
}

}  // namespace rotcell::ptx
