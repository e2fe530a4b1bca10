// Runs launches of the executor from PTX.
#pragma once

#include <filesystem>
#include <functional>

#include "ptx/counts.h"

namespace rotcell::ptx {

// From now on kernels run as the .ptx files of the folder have them. Returns what they were
// compiled for, such as 80.
int run_launches_from(const std::filesystem::path& folder);

// Is told of each launch that has come to its end.
void watch_launches(std::function<void(const LaunchCounts&)> watcher);

}  // namespace rotcell::ptx
