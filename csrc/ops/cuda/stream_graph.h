// Streams, events and graphs of CUDA, as far as the stepwise path has use for them. The executor of
// csrc/simt has them too.
#pragma once

#include <functional>

#include "cuda/stream.h"
#include "ops/tensor.h"

namespace rotcell::ops::gpu {

// A stream of its own on the current device. It is never destroyed.
cuda::Stream make_stream();

// While it lives, what torch does for this thread goes into that stream.
class StreamScope {
 public:
  StreamScope(Device device, cuda::Stream stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  void* guard_;
};

// A point in a stream that others can wait for. It is never destroyed.
class Event {
 public:
  Event();  // on the current device
  void record(cuda::Stream stream);
  // What goes into the stream from here on waits for the point last recorded, if there is one.
  void hold_back(cuda::Stream stream) const;

 private:
  void* event_;
};

// A CUDA graph that can be launched.
class StreamGraph {
 public:
  // Of what `body` puts into the stream, none of which runs. Throws what the body throws, and if
  // the device cannot do it. What torch allocates meanwhile must stay where it is.
  StreamGraph(cuda::Stream stream, const std::function<void()>& body);
  // It may still run: then it goes when it has ended.
  ~StreamGraph();
  StreamGraph(const StreamGraph&) = delete;
  StreamGraph& operator=(const StreamGraph&) = delete;

  void launch(cuda::Stream stream) const;

 private:
  void* graph_;
};

// out = a b by torch, in its current stream: a product that may be a part of a graph.
void step_product(const Tensor& out, const Tensor& a, const Tensor& b);

}  // namespace rotcell::ops::gpu
