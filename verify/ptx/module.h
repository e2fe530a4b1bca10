// The PTX of one file.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "ptx/program.h"

namespace rotcell::ptx {

class Module {
 public:
  // `file` is what errors call it.
  Module(std::string file, std::string text);

  // The compute capability, such as 80.
  int target() const { return target_; }
  // Where the text of each kernel begins, by its symbol.
  const std::map<std::string, size_t>& entries() const { return entries_; }
  // Reads the kernel when it is first asked for. Throws std::runtime_error for what it does not
  // know.
  const Kernel& kernel(const std::string& symbol);

 private:
  std::string file_, text_;
  int target_ = 0;
  std::map<std::string, size_t> entries_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace rotcell::ptx
