// Kernels with one fault each, which the emulator itself cannot see but a sanitizer can.
#include <cstring>

#include "emulator/tests/check.h"

namespace rotcell::tests {
namespace {

ROTCELL_GLOBAL void missing_barrier(Output p) {
  ROTCELL_SHARED(float, values);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  p.out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

ROTCELL_GLOBAL void missing_syncwarp(Output p) {
  ROTCELL_SHARED(float, values);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  // Brings the lanes together, but does not order their memory.
  const float one = __shfl_xor_sync(0xffffffff, 1.0f, 1);
  p.out[threadIdx.x] = one * values[threadIdx.x ^ 1];
}

uint64_t counter = 0;

// The other threads, which do not wait, do not know that the other block has written.
ROTCELL_GLOBAL void missing_wait(Output p) {
  p.out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
  cuda::block_barrier();
  if (threadIdx.x == 0) {
    cuda::signal(&counter);
    cuda::wait_for_signals(&counter, gridDim.x);
  }
  const unsigned next_block = (blockIdx.x + 1) % gridDim.x;
  p.out[threadIdx.x] = cuda::load_coherent(p.out + next_block * blockDim.x + threadIdx.x);
}

// What the other block of the cluster writes is read before it has arrived.
ROTCELL_GLOBAL void missing_cluster_barrier(Output p) {
  ROTCELL_SHARED(uint4, values);
  cuda::cluster_arrive();
  cuda::cluster_wait();
  cuda::store_in_cluster(values + threadIdx.x, 1 - blockIdx.x, {1, 2, 3, 4});
  p.out[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<float>(values[threadIdx.x].x);
  cuda::cluster_arrive();
  cuda::cluster_wait();
}

ROTCELL_GLOBAL void missing_barrier_after_copies(Output p) {
  ROTCELL_SHARED(float, values);
  cuda::copy_async(values + 4 * threadIdx.x, p.out, true);
  cuda::commit_copies();
  cuda::wait_for_copies<0>();
  p.out[threadIdx.x + 4] = values[4 * (threadIdx.x ^ 1)];
}

// A lane reads rows that others wrote.
ROTCELL_GLOBAL void missing_syncwarp_before_ldmatrix(Output p) {
  ROTCELL_SHARED(float, values);
  for (int i = 0; i < 4; ++i) values[4 * threadIdx.x + i] = 1;
  unsigned registers[4];
  cuda::ldmatrix_x4(registers, values + 4 * threadIdx.x);
  p.out[threadIdx.x] = static_cast<float>(registers[0]);
}

ROTCELL_GLOBAL void shared_overrun(Output p) {
  ROTCELL_SHARED(float, values);
  values[threadIdx.x + 1] = 1;
  p.out[threadIdx.x] = values[threadIdx.x + 1];
}

ROTCELL_GLOBAL void global_overrun(Output p) { p.out[threadIdx.x + 1] = 1; }

ROTCELL_GLOBAL void misaligned_load(Output p) {
  const float4 four = *reinterpret_cast<const float4*>(p.out + 1);
  p.out[0] = four.x;
}

}  // namespace

bool run_fault(const std::string& name) {
  constexpr unsigned threads = 32;
  constexpr size_t bytes = threads * sizeof(float);
  Buffer<float> out(2 * threads);
  Buffer<float> short_out(threads);
  if (name == "missing-barrier")
    cuda::launch("missing_barrier", missing_barrier, {1, threads, bytes}, nullptr, {out.data(), 0});
  else if (name == "missing-syncwarp")
    cuda::launch("missing_syncwarp", missing_syncwarp, {1, threads, bytes}, nullptr,
                 {out.data(), 0});
  else if (name == "missing-wait")
    cuda::launch_cooperative("missing_wait", missing_wait, {2, threads, 0}, nullptr,
                             {out.data(), 0});
  else if (name == "missing-cluster-barrier")
    cuda::launch_clusters("missing_cluster_barrier", missing_cluster_barrier,
                          {2, threads, 4 * bytes, 2}, nullptr, {out.data(), 0});
  else if (name == "missing-barrier-after-copies")
    cuda::launch("missing_barrier_after_copies", missing_barrier_after_copies,
                 {1, threads, 4 * bytes}, nullptr, {out.data(), 0});
  else if (name == "missing-syncwarp-before-ldmatrix")
    cuda::launch("missing_syncwarp_before_ldmatrix", missing_syncwarp_before_ldmatrix,
                 {1, threads, 4 * bytes}, nullptr, {out.data(), 0});
  else if (name == "shared-overrun")
    cuda::launch("shared_overrun", shared_overrun, {1, threads, bytes}, nullptr, {out.data(), 0});
  else if (name == "global-overrun")
    cuda::launch("global_overrun", global_overrun, {1, threads, 0}, nullptr, {short_out.data(), 0});
  else if (name == "misaligned-load")
    cuda::launch("misaligned_load", misaligned_load, {1, 1, 0}, nullptr, {out.data(), 0});
  else
    return false;
  return true;
}

}  // namespace rotcell::tests
