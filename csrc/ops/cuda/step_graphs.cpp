#include "ops/cuda/step_graphs.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace rotcell::ops::gpu {
namespace {

// Of one device. A graph is small but for its weights.
constexpr size_t kMostGraphs = 32;
constexpr int64_t kMostBytes = int64_t{128} << 20;
constexpr size_t kRemembered = 64;  // kinds of sequences that ran once
// A graph that was used among so many sequences does not go for another: with a few more than fit,
// all would be captured again and again.
constexpr int64_t kRecently = 256;

struct KnownGraph {
  GraphKey key;
  std::unique_ptr<StepGraph> graph;
  int64_t last_use;  // the number of the sequence
};

struct DeviceGraphs {
  std::mutex lock;
  cuda::Stream stream = make_stream();  // that captures, and owns the buffers; nothing runs there
  Event last_use;
  std::list<KnownGraph> graphs;  // the one used last is the first
  std::list<GraphKey> seen_once;
  int64_t uses = 0;

  int64_t bytes() const {
    int64_t sum = 0;
    for (const KnownGraph& known : graphs) sum += known.graph->buffers.bytes();
    return sum;
  }

  std::list<KnownGraph>::iterator find(const GraphKey& key) {
    return std::find_if(graphs.begin(), graphs.end(),
                        [&](const KnownGraph& known) { return known.key == key; });
  }

  // For one more graph, if need be in the place of others; false if there is none.
  bool make_room(int64_t more_bytes) {
    if (more_bytes > kMostBytes) return false;
    while (graphs.size() >= kMostGraphs || bytes() + more_bytes > kMostBytes) {
      if (uses - graphs.back().last_use < kRecently) return false;
      graphs.pop_back();
    }
    return true;
  }
};

std::atomic<const GraphSupport*> support{nullptr};
std::atomic<int64_t> captured{0}, sequences{0};

// Never destroyed: at the end of the process torch may be gone before.
std::mutex devices_lock;
std::map<int32_t, DeviceGraphs*>& devices() {
  static auto* all = new std::map<int32_t, DeviceGraphs*>;
  return *all;
}

DeviceGraphs& graphs_of(Device device) {
  const std::lock_guard guard(devices_lock);
  DeviceGraphs*& found = devices()[device.index];
  if (found == nullptr) found = new DeviceGraphs;
  return *found;
}

// Whether the sequence has run before; if not, it has now.
bool remember(DeviceGraphs& graphs, const GraphKey& key) {
  const auto found = std::find(graphs.seen_once.begin(), graphs.seen_once.end(), key);
  if (found != graphs.seen_once.end()) return true;
  graphs.seen_once.push_front(key);
  if (graphs.seen_once.size() > kRemembered) graphs.seen_once.pop_back();
  return false;
}

// What `run` of GraphSupport::capture is given.
struct CaptureJob {
  DeviceGraphs& graphs;
  const GraphKey& key;
  const GraphMaker& maker;
  StepBuffers buffers;
  Tensor description;
  std::string error;
};

const char* run_capture(void* context) {
  CaptureJob& job = *static_cast<CaptureJob*>(context);
  try {
    const std::lock_guard guard(job.graphs.lock);
    if (job.graphs.find(job.key) != job.graphs.graphs.end()) return nullptr;  // another thread's
    if (!job.graphs.make_room(job.buffers.bytes())) return nullptr;
    const StreamScope scope(job.key.device, job.graphs.stream);
    const auto body = [&] {
      job.maker.record(job.buffers, job.description.raw_data(), job.graphs.stream);
    };
    auto captured_graph = std::make_unique<StreamGraph>(job.graphs.stream, body);
    std::unique_ptr<StepGraph> graph(new StepGraph{std::move(job.buffers),
                                                   std::move(job.description), job.maker.steps,
                                                   std::move(captured_graph)});
    job.graphs.graphs.push_front({job.key, std::move(graph), job.graphs.uses});
    job.graphs.seen_once.remove(job.key);
    ++captured;
    return nullptr;
  } catch (const std::exception& error) {
    job.error = error.what();
    return job.error.c_str();
  }
}

}  // namespace

int64_t StepBuffers::bytes() const {
  int64_t sum = 0;
  for (const ProductWeights& product : products) sum += product.weights.bytes();
  for (const Tensor* tensor : {&state, &seen, &operands, &gates}) {
    if (*tensor) sum += tensor->bytes();
  }
  return sum;
}

void set_graph_support(const GraphSupport* given) {
  support.store(given);
  if (given != nullptr) return;
  const std::lock_guard guard(devices_lock);
  for (const auto& [index, device] : devices()) {
    const std::lock_guard device_guard(device->lock);
    device->graphs.clear();
    device->seen_once.clear();
  }
}

GraphStatistics graph_statistics() {
  GraphStatistics found{0, 0, captured.load(), sequences.load()};
  const std::lock_guard guard(devices_lock);
  for (const auto& [index, device] : devices()) {
    const std::lock_guard device_guard(device->lock);
    found.graphs += static_cast<int64_t>(device->graphs.size());
    found.bytes += device->bytes();
  }
  return found;
}

GraphKey graph_key(const Launch& launch, Device device, const StateChanges& changes) {
  const GraphSupport* helper = support.load();
  return {.device = device,
          .cell = launch.request.cell,
          .pass = launch.request.pass,
          .number = launch.request.number,
          .hidden = launch.request.hidden,
          .batch = launch.request.batch,
          .enters = changes.before_products(),
          .masks = changes.recurrent_dropout,
          .product_settings =
              helper == nullptr || launch.graph_steps == 0 ? -1 : helper->product_settings()};
}

bool use_graph(const GraphKey& key, cuda::Stream stream,
               const std::function<void(const StepGraph&)>& use) {
  if (key.product_settings < 0) return false;
  DeviceGraphs& graphs = graphs_of(key.device);
  const std::lock_guard guard(graphs.lock);
  const auto found = graphs.find(key);
  if (found == graphs.graphs.end()) return false;
  graphs.graphs.splice(graphs.graphs.begin(), graphs.graphs, found);
  found->last_use = ++graphs.uses;
  graphs.last_use.hold_back(stream);
  try {
    use(*found->graph);
  } catch (...) {
    graphs.last_use.record(stream);
    throw;
  }
  graphs.last_use.record(stream);
  ++sequences;
  return true;
}

void learn_graph(const GraphKey& key, const Launch& launch, const GraphMaker& maker) {
  const GraphSupport* helper = support.load();
  if (key.product_settings < 0 || helper == nullptr) return;
  DeviceGraphs& graphs = graphs_of(key.device);
  CaptureJob job{graphs, key, maker, {}, {}, {}};
  {
    const std::lock_guard guard(graphs.lock);  // while another thread captures, nobody allocates
    if (!remember(graphs, key) || !graphs.make_room(maker.weight_bytes)) return;
    // Freed memory goes back to the stream that it was allocated for. On this one nothing runs, and
    // whoever gets the memory again waits for the last use of any graph.
    const StreamScope scope(key.device, graphs.stream);
    job.buffers = maker.buffers();
    job.description = Tensor::empty({(maker.description_bytes + 7) / 8}, int64(), key.device);
  }
  const PathUse use{key.device.index, key.cell, key.pass, key.number, cuda::Path::kStepwise};
  helper->capture(use, launch.request, run_capture, &job);
}

}  // namespace rotcell::ops::gpu
