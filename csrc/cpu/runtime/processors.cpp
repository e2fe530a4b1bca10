#include "cpu/runtime/processors.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

extern "C" {
// From the OpenMP runtime that torch loaded; null without one. It remembers the affinity mask of
// the process, even if it has bound the calling thread to a single processor.
__attribute__((weak)) int omp_get_num_procs();
}

namespace rotcell::cpu {
namespace {

std::string file_text(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  std::string text;
  if (!file) return text;
  char part[512];
  while (const size_t count = std::fread(part, 1, sizeof part, file.get())) {
    text.append(part, count);
  }
  return text;
}

std::optional<double> ratio(double quota, double period) {
  if (quota <= 0 || period <= 0) return {};
  return quota / period;
}

// Version 2: "max 100000" or "150000 100000".
std::optional<double> quota_of_v2(const std::string& folder) {
  double quota = 0, period = 0;
  if (std::sscanf(file_text(folder + "/cpu.max").c_str(), "%lf %lf", &quota, &period) != 2) {
    return {};
  }
  return ratio(quota, period);
}

std::optional<double> quota_of_v1(const std::string& folder) {
  const auto number = [&](const char* name) {
    return std::atof(file_text(folder + "/" + name).c_str());  // 0 if there is no file
  };
  return ratio(number("cpu.cfs_quota_us"), number("cpu.cfs_period_us"));
}

using QuotaOf = std::optional<double> (*)(const std::string& folder);

// The least quota of a group and of those around it. Inside a container the mounted tree may begin
// at the container's own group, so that only its root is there.
std::optional<double> least_quota(const std::string& mount, std::string path, QuotaOf quota_of) {
  std::optional<double> least;
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    if (const std::optional<double> quota = quota_of(mount + path)) {
      least = std::min(*quota, least.value_or(*quota));
    }
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

bool names(const std::string& controllers, const std::string& wanted) {
  return ("," + controllers + ",").find("," + wanted + ",") != std::string::npos;
}

constexpr int64_t kNotRead = -1, kNoQuota = INT64_MAX;
std::atomic<int64_t> known_quota{kNotRead};

const int fork_handler [[maybe_unused]] = pthread_atfork(
    nullptr, nullptr, [] { known_quota.store(kNotRead, std::memory_order_relaxed); });

int64_t affinity_processors() {
  if (omp_get_num_procs != nullptr) return omp_get_num_procs();
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return static_cast<int64_t>(std::thread::hardware_concurrency());
}

// Whether a thread is runnable, from the text of its stat file, "7 (a name) R 1 ...".
bool is_runnable(const std::string& stat) {
  const size_t name_end = stat.rfind(')');  // a name may have any character
  return name_end != std::string::npos && stat.compare(name_end + 1, 2, " R") == 0;
}

// Threads of this process that run or wait for a processor: the one that asks, and those of a pool
// that still look out for work.
int64_t runnable_here() {
  const std::string folder = "/proc/self/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(opendir(folder.c_str()), closedir);
  int64_t count = 0;
  if (!threads) return count;
  while (const dirent* thread = readdir(threads.get())) {
    if (thread->d_name[0] == '.') continue;
    count += is_runnable(file_text(folder + "/" + thread->d_name + "/stat"));
  }
  return count;
}

}  // namespace

int64_t runnable_elsewhere() {
  const int64_t here = runnable_here();
  long long everywhere = 0;  // "0.20 0.18 0.12 1/80 11206": that 1
  if (std::sscanf(file_text("/proc/loadavg").c_str(), "%*f %*f %*f %lld/", &everywhere) != 1) {
    return 0;
  }
  return std::max<int64_t>(0, everywhere - here);
}

int64_t processors_of_machine() { return sysconf(_SC_NPROCESSORS_ONLN); }

std::optional<int64_t> cgroup_processors(const std::string& membership, const std::string& root) {
  std::optional<double> least;
  const auto limit = [&](std::optional<double> quota) {
    if (quota) least = std::min(*quota, least.value_or(*quota));
  };
  for (size_t begin = 0; begin < membership.size();) {
    const size_t end = std::min(membership.find('\n', begin), membership.size());
    const std::string line = membership.substr(begin, end - begin);  // "4:cpu,cpuacct:/path"
    begin = end + 1;
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      limit(least_quota(root, path, quota_of_v2));
    } else if (names(controllers, "cpu")) {
      limit(least_quota(root + "/" + controllers, path, quota_of_v1));
      limit(least_quota(root + "/cpu", path, quota_of_v1));
    }
  }
  if (!least) return {};
  return std::max<int64_t>(1, static_cast<int64_t>(*least));
}

int64_t quota_processors() {
  int64_t quota = known_quota.load(std::memory_order_relaxed);
  if (quota == kNotRead) {
    quota = cgroup_processors(file_text("/proc/self/cgroup"), "/sys/fs/cgroup").value_or(kNoQuota);
    known_quota.store(quota, std::memory_order_relaxed);
  }
  return quota;
}

int64_t processors() {
  return std::max<int64_t>(1, std::min(quota_processors(), affinity_processors()));
}

}  // namespace rotcell::cpu
