#include "ptx/launch.h"

#include <deque>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "emulator/launch.h"
#include "ptx/module.h"
#include "ptx/scheduler.h"
#include "ptx/symbols.h"

namespace rotcell::ptx {
namespace {

struct Entry {
  Module* module;
  std::string symbol;  // as in the PTX
};

std::deque<Module> modules;
std::unordered_map<std::string, Entry> entries;  // by the symbol with plain namespaces

void launch(const char* name, emulator::Kind kind, const cuda::Grid& grid,
            const emulator::Call& call) {
  const std::string symbol = with_plain_namespaces(symbol_of(call.kernel));
  const auto entry = entries.find(symbol);
  if (entry == entries.end())
    throw std::runtime_error("rotcell: CUDA kernel " + std::string(name) + ": no PTX of " + symbol);
  const Kernel& kernel = entry->second.module->kernel(entry->second.symbol);
  run(kernel, name, kind, grid, call.params);
}

}  // namespace

int run_launches_from(const std::filesystem::path& folder) {
  int target = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".ptx") continue;
    std::ifstream stream(file.path(), std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(stream), {});
    Module& module = modules.emplace_back(file.path().filename().string(), std::move(text));
    target = module.target();
    for (const auto& [symbol, begin] : module.entries()) {
      const bool is_new =
          entries.try_emplace(with_plain_namespaces(symbol), &module, symbol).second;
      if (!is_new) throw std::runtime_error("two kernels are called " + symbol);
    }
  }
  if (entries.empty()) throw std::runtime_error("no kernels in " + folder.string());
  emulator::run_launches_by(launch);
  return target;
}

void write_coverage(const std::filesystem::path& file) {
  std::ofstream to(file);
  for (auto& [name, entry] : entries) {
    to << entry.symbol << ' ';
    for (const Instruction& instruction : entry.module->kernel(entry.symbol).instructions) {
      const bool is_mma = instruction.operation->kind == Kind::mma;
      to << (instruction.was_executed ? (is_mma ? 'm' : 'x') : (is_mma ? 'o' : '.'));
    }
    to << '\n';
  }
}

}  // namespace rotcell::ptx
