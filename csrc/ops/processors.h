// How many processors this process may use. No torch here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rotcell::ops {

// The whole processors that the cgroups of a process leave it: its own and those around it, of
// version 1 or 2. `membership` is the text of /proc/self/cgroup, `root` where cgroups are mounted.
// Nothing without a quota.
std::optional<int64_t> cgroup_processors(const std::string& membership, const std::string& root);

// The smaller of what affinity and quota leave; at least 1. The quota is read once a process.
int64_t processors();

}  // namespace rotcell::ops
