// How many processors this process may use. No torch here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rotcell::cpu {

// The whole processors that the cgroups of a process leave it: its own and those around it, of
// version 1 or 2. `membership` is the text of /proc/self/cgroup, `root` where cgroups are mounted.
// nullopt without a quota.
std::optional<int64_t> cgroup_processors(const std::string& membership, const std::string& root);

// What the quota leaves, read once per process; INT64_MAX without a quota.
int64_t quota_processors();

// The smaller of what affinity and quota leave; at least 1.
int64_t processors();

// How many threads of other programs run, or wait for a processor, on the whole machine now; 0 if
// that cannot be seen. Takes some microseconds per thread of this process.
int64_t runnable_elsewhere();

// How many processors the machine has, available to this process or not.
int64_t processors_of_machine();

}  // namespace rotcell::cpu
