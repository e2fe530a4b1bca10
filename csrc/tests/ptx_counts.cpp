// What a step of the CUDA kernels executes, from the PTX that nvcc makes of them.
//
//   ptx_counts FOLDER SEQUENCE...
//     a line of JSON for each pass of each sequence, on the GPU that the PTX in the folder is for;
//     a sequence is CELL,PATH,NUMBER,BATCH,HIDDEN, such as rot_lstm,cooperative,float16,64,256
//
// build_tools/count_history.py compiles this file with the kernels and drivers of older commits.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/known_devices.h"
#include "ptx/launch.h"
#include "simt/control.h"
#include "tests/cuda_sequences.h"
#include "tests/error_limit.h"

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

struct Counted {
  std::string cell, path, number;
  int64_t batch, hidden;
};

Counted counted_in(const std::string& sequence) {
  std::istringstream parts(sequence);
  const auto next = [&] {
    std::string part;
    if (!std::getline(parts, part, ',')) throw std::runtime_error("what is " + sequence + "?");
    return part;
  };
  Counted counted{next(), next(), next(), 0, 0};
  counted.batch = std::stoll(next());
  counted.hidden = std::stoll(next());
  return counted;
}

void print(const cuda::KnownDevice& device, const Counted& row, const char* pass,
           const LaunchCounts& more, const LaunchCounts& few) {
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
      device.name.data(), row.cell.c_str(), row.path.c_str(), row.number.c_str(),
      static_cast<long long>(row.batch), static_cast<long long>(row.hidden), pass, few.grid.blocks,
      few.grid.threads, static_cast<long long>(all), static_cast<long long>(*busiest),
      static_cast<long long>(of_warp), static_cast<long long>(most.trips),
      static_cast<long long>(most.waits), static_cast<long long>(most.block_barriers),
      static_cast<long long>(most.cluster_barriers));
  for (size_t kind = 0; kind < ptx::kinds; ++kind)
    std::printf(R"(, "%s": %lld)", ptx::kind_names[kind],
                static_cast<long long>(kinds[static_cast<size_t>(busiest - blocks.begin())][kind]));
  std::printf("}\n");
}

// The results must be right, too.
template <class T>
void count(const cuda::KnownDevice& device, const Counted& counted) {
  const CellIndex cell = cell_named(counted.cell);
  const std::optional<Path> path = cuda::path_named(counted.path);
  if (cell < 0 || !path) throw std::runtime_error("no such cell, or no such path");
  const auto launches = [&](int64_t steps) {
    std::vector<LaunchCounts> found;
    ptx::watch_launches([&](const LaunchCounts& launch) { found.push_back(launch); });
    const Shape shape{counted.batch, steps, 0, counted.hidden, 0, false, false};
    const Results<double> results = CudaCell<T>(cell, shape, {*path, device.properties}).run();
    const double error = difference(results, run_cell<double>(cell, shape, Threads{1, 1}));
    if (!(error < error_limit<T>())) throw std::runtime_error("error " + std::to_string(error));
    return found;
  };
  const std::vector<LaunchCounts> few = launches(few_steps), more = launches(more_steps);
  // Forward in training, forward in inference, backward.
  print(device, counted, "forward", more.at(0), few.at(0));
  print(device, counted, "backward", more.at(2), few.at(2));
}

}  // namespace

int main(int count_of_arguments, char** arguments) {
  if (count_of_arguments < 3) {
    std::fprintf(stderr, "usage: ptx_counts FOLDER SEQUENCE...\n");
    return EXIT_FAILURE;
  }
  std::string sequence;
  try {
    const cuda::KnownDevice& device = device_for(ptx::run_launches_from(arguments[1]));
    simt::pose_as(device.properties);
    for (int i = 2; i < count_of_arguments; ++i) {
      sequence = arguments[i];
      const Counted counted = counted_in(sequence);
      if (counted.number == "float32") {
        count<float>(device, counted);
      } else if (counted.number == "float16") {
        count<__half>(device, counted);
      } else {
        throw std::runtime_error("no such type of numbers");
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", sequence.c_str(), error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
