// CUDA graphs of the stepwise path: some steps of a sequence as one launch.
//
// torch's products in a graph keep the addresses they were captured with. So what they read and
// write, and nothing else, lies in buffers that the graph owns: the weights, and what one step
// hands to the next. The kernels between them find the sequence's own tensors, and which steps of
// it are due, in a description that is placed in the device's memory before each launch
// (cuda/stepwise.h). So one graph serves sequences of every length, with whatever values, gate
// functions and gradients.
//
// The graphs of a device share torch's scratch for products, and run one after the other, whatever
// streams they are launched into.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ops/cuda/launch.h"
#include "ops/cuda/path.h"
#include "ops/cuda/stream_graph.h"

namespace rotcell::ops::gpu {

// The weights of one product of a step. Its rows of w_hh lie together, but that there may be rows
// of other products before the angles: those are zero here, so that one product is enough.
struct ProductWeights {
  int64_t first, rows;  // of w_hh, so columns of a matrix of gates
  Tensor weights;       // [rows, P]
};

// What steps hand to each other and products read or write.
struct StepBuffers {
  std::vector<ProductWeights> products;
  Tensor state;        // [B, P]: h; on the way back its gradient
  Tensor seen;         // [B, P]: what the first product sees of h; undefined: h itself
  Tensor operands;     // [B, H]: of the second product; on the way back their gradient
  Tensor gates;        // [B, G]: what products add to the gates; on the way back their gradient
  Tensor unprojected;  // [B, H]: the output, or its gradient, before its projection; not in graphs

  int64_t bytes() const;
};

struct StepGraph {
  StepBuffers buffers;
  Tensor description;  // where the sequence is placed
  int steps;
  std::unique_ptr<StreamGraph> graph;
};

// Everything that decides what is launched.
struct GraphKey {
  Device device;
  CellIndex cell;
  cuda::Pass pass;
  cuda::Number number;
  int64_t hidden, batch;
  bool enters;  // a kernel before the products
  bool masks;   // the first product does not see h itself
  int64_t product_settings;

  friend bool operator==(const GraphKey&, const GraphKey&) = default;
};

// What Python does for graphs.
struct GraphSupport {
  // All that torch's products depend on besides their operands, as a number. Negative: no graphs.
  int64_t (*product_settings)();
  // For such a call: calls run(context) while everything that torch allocates for this thread comes
  // from memory that nobody else is ever given; the answer of run is null, or what went wrong.
  // Throws, or has switched graphs off, if that cannot be.
  void (*capture)(const PathUse& use, const cuda::Request& request,
                  const char* (*run)(void* context), void* context);
};

// Nothing: no graphs. Those that are there go.
void set_graph_support(const GraphSupport* support);

struct GraphStatistics {
  int64_t graphs, bytes;        // now, on all devices
  int64_t captured, sequences;  // so far; the sequences that ran by a graph
};
GraphStatistics graph_statistics();

// The graph's key for such a call; product_settings are negative if there can be none.
GraphKey graph_key(const Launch& launch, Device device, const StateChanges& changes);

// Calls use(graph) if there is one, and keeps others from it until what that has put into the
// stream is done. False if there is none.
bool use_graph(const GraphKey& key, cuda::Stream stream,
               const std::function<void(const StepGraph&)>& use);

struct GraphMaker {
  std::function<StepBuffers()> buffers;
  int64_t weight_bytes, description_bytes;
  // Launches the steps into the stream.
  std::function<void(const StepBuffers&, void* description, cuda::Stream)> record;
  int steps;
};

// To be called when a sequence has run without a graph. The second time one is made. By then torch
// and CUDA have made and loaded whatever the first product of its kind needs.
void learn_graph(const GraphKey& key, const Launch& launch, const GraphMaker& maker);

}  // namespace rotcell::ops::gpu
