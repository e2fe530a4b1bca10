#include "ops/cuda/stream_graph.h"

#include <cuda_runtime_api.h>

// Of libtorch_cuda, as in current_device.cpp.
extern "C" {
struct CUDAStreamGuardOpaque;
AOTITorchError aoti_torch_create_cuda_stream_guard(void* stream, int32_t device_index,
                                                   CUDAStreamGuardOpaque** guard);
AOTITorchError aoti_torch_delete_cuda_stream_guard(CUDAStreamGuardOpaque* guard);
}

namespace rotcell::ops::gpu {
namespace {

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // told here: the next one to ask shall not find it again
  fail("CUDA ", what, " failed: ", cudaGetErrorString(error));
}

// Neither forbids this thread what torch may do during a capture, such as allocating memory, nor
// disturbs what other threads capture.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Null if the capture did not come to a good end.
cudaGraph_t end_capture(cuda::Stream stream, cudaError_t& error) {
  cudaGraph_t graph = nullptr;
  error = cudaStreamEndCapture(stream, &graph);
  return graph;
}

}  // namespace

cuda::Stream make_stream() {
  cudaStream_t stream;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  return stream;
}

StreamScope::StreamScope(Device device, cuda::Stream stream) {
  CUDAStreamGuardOpaque* guard;
  ROTCELL_SHIM(aoti_torch_create_cuda_stream_guard, stream, device.index, &guard);
  guard_ = guard;
}

StreamScope::~StreamScope() {
  aoti_torch_delete_cuda_stream_guard(static_cast<CUDAStreamGuardOpaque*>(guard_));
}

Event::Event() {
  cudaEvent_t event;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  event_ = event;
}

void Event::record(cuda::Stream stream) {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(event_), stream), "event");
}

void Event::hold_back(cuda::Stream stream) const {
  check_cuda(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(event_), 0), "event");
}

StreamGraph::StreamGraph(cuda::Stream stream, const std::function<void()>& body) {
  const RelaxedCapture relaxed;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
  cudaError_t error;
  try {
    body();
  } catch (...) {
    if (const cudaGraph_t graph = end_capture(stream, error)) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  const cudaGraph_t graph = end_capture(stream, error);
  check_cuda(error, "capture");
  cudaGraphExec_t executable;
  error = cudaGraphInstantiateWithFlags(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(error, "graph");
  graph_ = executable;
}

StreamGraph::~StreamGraph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_)); }

void StreamGraph::launch(cuda::Stream stream) const {
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), stream), "graph launch");
}

void step_product(const Tensor& out, const Tensor& a, const Tensor& b) { mm_out(out, a, b); }

}  // namespace rotcell::ops::gpu
