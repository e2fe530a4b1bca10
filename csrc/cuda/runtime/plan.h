// Which path a sequence takes on a GPU, as one pure function, and the shape of its launch.
#pragma once

#include <optional>
#include <string>

#include "cuda/kernels/numbers.h"
#include "cuda/kernels/shapes.h"
#include "cuda/platform/device.h"

namespace rotcell::cuda {

enum class Path {
  kStepwise,     // a matmul by torch and a fused kernel each step
  kResident,     // one launch; a block has all weights on chip and carries its rows of the batch
  kCooperative,  // one cooperative launch; a block has the weights of its units on chip
  kCluster,      // the same, and blocks exchange results within a cluster
};

struct Request {
  CellIndex cell;
  Pass pass;
  int64_t hidden, batch, steps;
  Number number;
  bool projection;
};

struct Plan {
  Path path;
  // Not used by the stepwise path. Clusters also use the fields of the cooperative path.
  int rows_per_block = 0;   // resident: rows of the batch
  int units_per_block = 0;  // cooperative
  int tile_groups = 0;      // cooperative: groups of blocks that share out the tiles of the batch
  int staged_bytes = 0;     // cooperative, but not in clusters: of a row, brought on chip at once
  int cluster = 1;          // blocks of one
  bool tensor_cores = false;
  int64_t blocks = 0;
  int threads = 0;
  int64_t shared_bytes = 0;
};

// What the path would be like, whether or not it is the fastest; nothing if it cannot run there.
std::optional<Plan> plan_path(Path path, const Request& request, const DeviceProperties& device);

// The path that is expected to be the fastest. Stepwise can always run.
Plan choose_plan(const Request& request, const DeviceProperties& device);

// The next best if that path cannot be used after all; stepwise in the end.
Plan plan_instead_of(Path path, const Request& request, const DeviceProperties& device);

SharedLayout<ChunkedMatrix> resident_layout(const Request& request, int rows_per_block);
SharedLayout<ChunkedMatrix> cooperative_layout(const Request& request, int units_per_block,
                                               int staged_bytes);
SharedLayout<TensorMatrix> tensor_layout(const Request& request, int units_per_block,
                                         int staged_bytes);

SharedLayout<TensorMatrix> cluster_layout(const Request& request, int units_per_block);

std::string path_name(Path path);
std::optional<Path> path_named(const std::string& name);

}  // namespace rotcell::cuda
