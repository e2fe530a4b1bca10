// Clusters: what their blocks write into each other's shared memory, and what they must not do.
#include <cstring>

#include "cuda/runtime/known_devices.h"
#include "emulator/tests/check.h"

namespace rotcell::tests {
namespace {

constexpr unsigned threads = 40;
constexpr size_t bytes = threads * sizeof(uint4);

unsigned rank_of_next_block(unsigned cluster) { return (blockIdx.x + 1) % cluster; }

// Every step each block gives its values, one more, to the next of its cluster: by turns in two
// places, so that no block writes what is still being read. p.size is the size of a cluster.
ROTCELL_GLOBAL void pass_on(Output p) {
  ROTCELL_SHARED(uint4, values);
  uint4* own = values + threadIdx.x;
  *own = {blockIdx.x, 0, 0, threadIdx.x};
  cuda::cluster_arrive();
  cuda::cluster_wait();
  for (unsigned step = 0; step < 5; ++step) {
    const unsigned from = step % 2 * threads, to = threads - from;
    // What another thread got, so that a barrier of the block alone would not do.
    const uint4 got = values[from + threads - 1 - threadIdx.x];
    cuda::store_in_cluster(own + to, rank_of_next_block(p.size), {got.x, got.y + 1, 0, got.w});
    cuda::cluster_arrive();
    cuda::cluster_wait();
  }
  const uint4 last = own[threads];
  float* out = p.out + 3 * (blockIdx.x * threads + threadIdx.x);
  out[0] = static_cast<float>(last.x);
  out[1] = static_cast<float>(last.y);
  out[2] = static_cast<float>(last.w);
}

void meet() {
  cuda::cluster_arrive();
  cuda::cluster_wait();
}

ROTCELL_GLOBAL void meet_once(Output) { meet(); }

ROTCELL_GLOBAL void write_without_meeting(Output p) {
  ROTCELL_SHARED(uint4, values);
  cuda::store_in_cluster(values + threadIdx.x, rank_of_next_block(p.size), {});
  meet();
}

// The block that is written to does not wait for the writers.
ROTCELL_GLOBAL void exit_while_written(Output p) {
  ROTCELL_SHARED(uint4, values);
  meet();
  cuda::store_in_cluster(values + threadIdx.x, rank_of_next_block(p.size), {});
}

// The same between the halves of the last barrier.
ROTCELL_GLOBAL void write_after_last_arrival(Output p) {
  ROTCELL_SHARED(uint4, values);
  meet();
  cuda::cluster_arrive();
  cuda::store_in_cluster(values + threadIdx.x, rank_of_next_block(p.size), {});
  cuda::cluster_wait();
}

ROTCELL_GLOBAL void write_beyond_cluster(Output p) {
  ROTCELL_SHARED(uint4, values);
  meet();
  cuda::store_in_cluster(values + threadIdx.x, p.size, {});
  meet();
}

ROTCELL_GLOBAL void write_beyond_shared_memory(Output p) {
  ROTCELL_SHARED(uint4, values);
  meet();
  cuda::store_in_cluster(values + 2 * threads, rank_of_next_block(p.size), {});
  meet();
}

ROTCELL_GLOBAL void arrive_twice(Output) {
  cuda::cluster_arrive();
  cuda::cluster_arrive();
  cuda::cluster_wait();
}

ROTCELL_GLOBAL void wait_without_arriving(Output) { cuda::cluster_wait(); }

ROTCELL_GLOBAL void exit_without_waiting(Output) { cuda::cluster_arrive(); }

ROTCELL_GLOBAL void one_block_is_missing(Output p) {
  if (blockIdx.x % p.size == 1) return;
  meet();
}

ROTCELL_GLOBAL void divergent(Output p) {
  if (blockIdx.x % p.size == 1)
    cuda::cluster_arrive();
  else
    cuda::cluster_arrive();
  cuda::cluster_wait();
}

ROTCELL_GLOBAL void deadlock(Output) {
  if (threadIdx.x > 0) cuda::cluster_arrive();
  cuda::block_barrier();
  if (threadIdx.x > 0) cuda::cluster_wait();
  __syncwarp();
}

struct Case {
  const char* name;
  void (*kernel)(Output);
  const char* complaint;
};

void test_kernels(const std::string& order) {
  const Case cases[] = {
      {"write_without_meeting", write_without_meeting, "it may not have begun"},
      {"exit_while_written", exit_while_written, "exited"},
      {"write_after_last_arrival", write_after_last_arrival, "exited"},
      {"write_beyond_cluster", write_beyond_cluster, "no such block"},
      {"write_beyond_shared_memory", write_beyond_shared_memory, "not in shared memory"},
      {"arrive_twice", arrive_twice, "before it has waited"},
      {"wait_without_arriving", wait_without_arriving, "it has not arrived"},
      {"exit_without_waiting", exit_without_waiting, "without waiting"},
      {"one_block_is_missing", one_block_is_missing, "exited"},
      {"divergent", divergent, "divergent cluster barrier"},
      {"deadlock", deadlock, "threads in a cluster barrier"},
  };
  for (const Case& one : cases)
    expect_error(std::string(one.name) + ", " + order, {one.name, one.complaint, "clusters.cpp:"},
                 [&] {
                   cuda::launch_clusters(one.name, one.kernel, {4, threads, 2 * bytes, 2}, nullptr,
                                         {nullptr, 2});
                 });
}

void test_refused_launches() {
  const auto launch = [](const cuda::Grid& grid) {
    return [grid] { cuda::launch_clusters("meet_once", meet_once, grid, nullptr, {nullptr, 0}); };
  };
  launch({128, 32, 0, 16})();
  expect_error("no whole clusters", {"failed to launch: invalid cluster size"},
               launch({6, 32, 0, 4}));
  expect_error("too large a cluster", {"must run at once, and the device holds 0"},
               launch({32, 32, 0, 32}));
  expect_error("too many clusters", {"must run at once, and the device holds 128"},
               launch({144, 32, 200 * 1024, 16}));
  expect_error("an ordinary launch", {"not launched in clusters"},
               [] { cuda::launch("meet_once", meet_once, {1, 32, 0}, nullptr, {nullptr, 0}); });
  emulator::pose_as(*cuda::find_known_device("A100"));
  expect_error("no clusters", {"must run at once, and the device holds 0"}, launch({2, 32, 0, 2}));
  emulator::pose_as(*cuda::find_known_device("H100"));
}

}  // namespace

void test_clusters(const std::string& order) {
  for (const unsigned cluster : {1u, 2u, 3u, 8u}) {
    const unsigned blocks = 2 * cluster;
    Buffer<float> out(3 * blocks * threads);
    cuda::launch_clusters("pass_on", pass_on, {blocks, threads, 2 * bytes, cluster}, nullptr,
                          {out.data(), static_cast<int>(cluster)});
    bool right = true;
    for (unsigned block = 0; block < blocks; ++block)
      for (unsigned thread = 0; thread < threads; ++thread) {
        float* found = &out[3 * (block * threads + thread)];
        const unsigned rank = block % cluster, from = (rank + 5 * cluster - 5) % cluster;
        right &= found[0] == static_cast<float>(block - rank + from) && found[1] == 5 &&
                 found[2] == static_cast<float>(threads - 1 - thread);
      }
    check(right, "clusters of " + std::to_string(cluster) + " blocks, " + order);
  }
}

void test_cluster_misuse() {
  in_every_order(test_kernels);
  test_refused_launches();
}

}  // namespace rotcell::tests
