#include "ptx/launch.h"

#include <deque>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "ptx/module.h"
#include "ptx/scheduler.h"
#include "ptx/symbols.h"
#include "simt/launch.h"

namespace rotcell::ptx {
namespace {

struct Entry {
  Module* module;
  std::string symbol;  // as it stands there
};

std::deque<Module> modules;
std::unordered_map<std::string, Entry> entries;  // by the symbol with plain namespaces
std::function<void(const LaunchCounts&)> tell;

void launch(const char* name, simt::Kind kind, const cuda::Grid& grid, const simt::Call& call) {
  const std::string symbol = with_plain_namespaces(symbol_of(call.kernel));
  const auto entry = entries.find(symbol);
  if (entry == entries.end())
    throw std::runtime_error("rotcell: CUDA kernel " + std::string(name) + ": no PTX of " + symbol);
  const Kernel& kernel = entry->second.module->kernel(entry->second.symbol);
  const LaunchCounts counts = run(kernel, name, kind, grid, call.params);
  if (tell) tell(counts);
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
  simt::run_launches_by(launch);
  return target;
}

void watch_launches(std::function<void(const LaunchCounts&)> watcher) { tell = std::move(watcher); }

}  // namespace rotcell::ptx
