// What a step of the CUDA kernels executes, from the PTX that nvcc makes of them.
//
//   ptx_counts FOLDER
//     a line of JSON for each kernel and size, for the GPU that the PTX in the folder is for
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/known_devices.h"
#include "ptx/launch.h"
#include "simt/control.h"
#include "tests/cuda_sequences.h"

namespace {

using namespace rotcell;
using namespace rotcell::tests;
using cuda::Path;
using ptx::LaunchCounts;
using ptx::WarpCounts;

const cuda::KnownDevice& device_for(int target) {
  for (const cuda::KnownDevice& device : cuda::known_devices)
    if (device.properties.compute_capability == target) return device;
  throw std::runtime_error("no known GPU has compute capability " + std::to_string(target));
}

// Two launches differ by so many steps. These are not all alike, as jumps depend on the numbers.
constexpr int64_t few_steps = 3, more_steps = 5;

int64_t of_step(int64_t more, int64_t few) {
  constexpr int64_t steps = more_steps - few_steps;
  return (more - few + steps / 2) / steps;
}

WarpCounts of_step(const WarpCounts& more, const WarpCounts& few) {
  WarpCounts step;
  for (size_t kind = 0; kind < ptx::kinds; ++kind)
    step.instructions[kind] = of_step(more.instructions[kind], few.instructions[kind]);
  step.block_barriers = of_step(more.block_barriers, few.block_barriers);
  step.cluster_barriers = of_step(more.cluster_barriers, few.cluster_barriers);
  step.waits = of_step(more.waits, few.waits);
  step.trips = of_step(more.trips, few.trips);
  return step;
}

struct Row {
  const char* device;
  const char* cell;
  Path path;
  const char* number;
  int64_t batch, hidden;
  const char* pass;
};

void print(const Row& row, const LaunchCounts& more, const LaunchCounts& few) {
  const size_t warps_of_block = few.warps.size() / few.grid.blocks;
  std::vector<int64_t> blocks(few.grid.blocks);
  std::vector<std::array<int64_t, ptx::kinds>> kinds(few.grid.blocks);
  WarpCounts most;
  int64_t all = 0, of_warp = 0;
  for (size_t w = 0; w < few.warps.size(); ++w) {
    const WarpCounts step = of_step(more.warps[w], few.warps[w]);
    all += step.all();
    of_warp = std::max(of_warp, step.all());
    blocks[w / warps_of_block] += step.all();
    for (size_t kind = 0; kind < ptx::kinds; ++kind)
      kinds[w / warps_of_block][kind] += step.instructions[kind];
    most.block_barriers = std::max(most.block_barriers, step.block_barriers);
    most.cluster_barriers = std::max(most.cluster_barriers, step.cluster_barriers);
    most.waits = std::max(most.waits, step.waits);
    most.trips = std::max(most.trips, step.trips);
  }
  const auto busiest = std::max_element(blocks.begin(), blocks.end());
  std::printf(
      R"({"device": "%s", "cell": "%s", "path": "%s", "number": "%s", "batch": %lld, )"
      R"("hidden": %lld, "pass": "%s", "blocks": %u, "threads": %u, "all": %lld, "block": %lld, )"
      R"("warp": %lld, "trips": %lld, "waits": %lld, "barriers": %lld, "cluster_barriers": %lld)",
      row.device, row.cell, cuda::path_name(row.path).c_str(), row.number,
      static_cast<long long>(row.batch), static_cast<long long>(row.hidden), row.pass,
      few.grid.blocks, few.grid.threads, static_cast<long long>(all),
      static_cast<long long>(*busiest), static_cast<long long>(of_warp),
      static_cast<long long>(most.trips), static_cast<long long>(most.waits),
      static_cast<long long>(most.block_barriers), static_cast<long long>(most.cluster_barriers));
  for (size_t kind = 0; kind < ptx::kinds; ++kind)
    std::printf(R"(, "%s": %lld)", ptx::kind_names[kind],
                static_cast<long long>(kinds[static_cast<size_t>(busiest - blocks.begin())][kind]));
  std::printf("}\n");
}

template <class T>
void count(const cuda::KnownDevice& device, const char* number, CellIndex cell, Path path,
           int64_t batch, int64_t hidden) {
  const auto launches = [&](int64_t steps) {
    std::vector<LaunchCounts> found;
    ptx::watch_launches([&](const LaunchCounts& launch) { found.push_back(launch); });
    const Shape shape{batch, steps, 0, hidden, 0, false, false};
    CudaCell<T>(cell, shape, {path, device.properties}).run();
    return found;
  };
  const std::vector<LaunchCounts> few = launches(few_steps), more = launches(more_steps);
  // Forward in training, forward in inference, backward.
  const char* const passes[] = {"forward", nullptr, "backward"};
  for (size_t i = 0; i < few.size(); ++i) {
    if (passes[i] == nullptr) continue;
    print({device.name.data(), kCells[cell].name, path, number, batch, hidden, passes[i]}, more[i],
          few[i]);
  }
}

}  // namespace

int main(int arguments, char** argument) {
  if (arguments != 2) {
    std::fprintf(stderr, "usage: ptx_counts FOLDER\n");
    return EXIT_FAILURE;
  }
  try {
    const cuda::KnownDevice& device = device_for(ptx::run_launches_from(argument[1]));
    simt::pose_as(device.properties);
    for (const CellIndex cell : {0, 1}) {  // those with a rotation
      count<float>(device, "float32", cell, Path::kResident, 32, 50);
      count<__half>(device, "float16", cell, Path::kResident, 32, 50);
      for (const int64_t hidden : {256, 512}) {
        count<__half>(device, "float16", cell, Path::kCooperative, 64, hidden);
        if (device.properties.largest_cluster > 1)
          count<__half>(device, "float16", cell, Path::kCluster, 64, hidden);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
