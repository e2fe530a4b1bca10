#include "emulator/planted.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

namespace rotcell::emulator {
namespace {

std::mutex lock;
std::condition_variable removed;
std::map<std::string, Fault> faults;  // by the beginning of the kernel's name

std::optional<Fault> fault_of(const std::string& kernel) {
  for (const auto& [beginning, fault] : faults) {
    if (kernel.starts_with(beginning)) return fault;
  }
  return {};
}

}  // namespace

void plant_fault(const std::string& kernel, Fault fault) {
  const std::lock_guard guard(lock);
  faults[kernel] = fault;
}

void remove_faults() {
  const std::lock_guard guard(lock);
  faults.clear();
  removed.notify_all();
}

Launch meet_planted_fault(const std::string& kernel) {
  std::unique_lock guard(lock);
  const std::optional<Fault> fault = fault_of(kernel);
  if (fault == Fault::fails_to_launch) return Launch::fails;
  if (fault == Fault::hangs) removed.wait(guard, [&] { return !fault_of(kernel); });
  return fault == Fault::does_nothing ? Launch::does_nothing : Launch::runs;
}

}  // namespace rotcell::emulator
