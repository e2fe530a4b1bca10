// Orders, counters, devices, several host threads: everything about a launch but its result.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cuda/runtime/known_devices.h"
#include "emulator/tests/check.h"

namespace rotcell::tests {
namespace {

ROTCELL_GLOBAL void write_index(Output p) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < static_cast<unsigned>(p.size)) p.out[i] = static_cast<float>(i);
}

bool write_index_works(unsigned blocks) {
  Buffer<float> out(blocks * 64);
  cuda::launch("write_index", write_index, {blocks, 64, 0}, nullptr,
               {out.data(), static_cast<int>(out.size())});
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] != static_cast<float>(i)) return false;
  return true;
}

#if !defined(ROTCELL_EMULATOR_RACES)  // the log is a race, on purpose

struct LogParams {
  std::vector<unsigned>* log;
};

ROTCELL_GLOBAL void write_log(LogParams p) {
  p.log->push_back(blockIdx.x * blockDim.x + threadIdx.x);
}

std::vector<unsigned> order_of_running(emulator::Order order, uint64_t seed, unsigned blocks) {
  std::vector<unsigned> log;
  emulator::set_order(order, seed);
  cuda::launch("write_log", write_log, {blocks, 120 / blocks, 0}, nullptr, {&log});
  emulator::set_order(emulator::Order::forward);
  return log;
}

// One block shows the order of threads, blocks of one thread the order of blocks.
void test_orders(unsigned blocks) {
  const auto run = [blocks](emulator::Order order, uint64_t seed) {
    return order_of_running(order, seed, blocks);
  };
  const std::string with = " with " + std::to_string(blocks) + " blocks";
  std::vector<unsigned> ascending(120);
  for (unsigned i = 0; i < ascending.size(); ++i) ascending[i] = i;
  const std::vector<unsigned> descending(ascending.rbegin(), ascending.rend());
  check(run(emulator::Order::forward, 0) == ascending, "forward order" + with);
  check(run(emulator::Order::reverse, 0) == descending, "reverse order" + with);
  std::vector<unsigned> random = run(emulator::Order::random, 7);
  check(random == run(emulator::Order::random, 7), "the same seed, the same order" + with);
  check(random != run(emulator::Order::random, 8), "another seed, another order" + with);
  check(random != ascending && random != descending, "random order" + with);
  std::sort(random.begin(), random.end());
  check(random == ascending, "in random order every thread runs once" + with);
}

#endif

void test_counters() {
  emulator::reset_launches();
  check(emulator::launches() == 0 && emulator::launches_by_kernel().empty(),
        "no launches after a reset");
  write_index_works(1);
  write_index_works(2);
  cuda::launch("nothing", write_index, {0, 64, 0}, nullptr, {nullptr, 64});
  cuda::launch("other", write_index, {1, 1, 0}, nullptr, {nullptr, 0});
  check(emulator::launches() == 3, "all launches are counted, but those of no blocks");
  check(emulator::launches_by_kernel() ==
            std::map<std::string, int64_t>{{"write_index", 2}, {"other", 1}},
        "launches are counted by name");
}

int blocks_on(const char* device, unsigned threads, size_t shared_bytes) {
  emulator::pose_as(*cuda::find_known_device(device));
  const int blocks = cuda::blocks_per_multiprocessor(write_index, threads, shared_bytes);
  emulator::pose_as(*cuda::find_known_device("H100"));
  return blocks;
}

void test_devices() {
  check(cuda::device_properties(0).multiprocessors == 132, "at first the device is an H100");
  emulator::pose_as(*cuda::find_known_device("T4"));
  check(cuda::device_properties(0).compute_capability == 75, "posing as a T4");
  emulator::pose_as(*cuda::find_known_device("H100"));
  check(cuda::find_known_device("unheard of") == nullptr, "an unknown device");
  check(blocks_on("T4", 1024, 0) == 1, "threads limit a T4");
  check(blocks_on("T4", 32, 0) == 16, "a T4 holds 16 blocks");
  check(blocks_on("T4", 64, 32 * 1024) == 2, "shared memory limits a T4");
  check(blocks_on("A100", 256, 81 * 1024) == 2, "two blocks fit an A100 exactly");
  check(blocks_on("A100", 256, 81 * 1024 + 1) == 1, "one byte more, one block less");
  check(blocks_on("RTX 4090", 1024, 0) == 1, "half a block does not fit");
  check(blocks_on("H100", 227, 0) == 8, "threads are counted in whole warps");
  check(blocks_on("H100", 64, 227 * 1024) == 1, "the largest block");
  check(blocks_on("H100", 64, 227 * 1024 + 1) == 0, "too much shared memory fits nowhere");
  check(blocks_on("H100", 1025, 0) == 0, "too many threads fit nowhere");
}

struct Unusual : std::runtime_error {
  using std::runtime_error::runtime_error;
};

ROTCELL_GLOBAL void throw_something(Output) {
  cuda::block_barrier();
  if (threadIdx.x == 5) throw Unusual("of its own kind");
  cuda::block_barrier();
}

void test_exception() {
  bool caught = false;
  try {
    cuda::launch("throw_something", throw_something, {2, 64, 256}, nullptr, {nullptr, 0});
  } catch (const Unusual& error) {
    caught = std::string(error.what()) == "of its own kind";
  }
  check(caught, "an exception of a kernel arrives as it is");
  check(write_index_works(3), "the emulator works after an exception");
}

void test_host_threads() {
  bool right[4] = {};
  std::vector<std::thread> hosts;
  for (bool& mine : right)
    hosts.emplace_back([&mine] {
      mine = true;
      for (int i = 0; i < 20; ++i) mine &= write_index_works(3);
    });
  for (std::thread& host : hosts) host.join();
  check(right[0] && right[1] && right[2] && right[3], "launches from several host threads");
}

}  // namespace

void test_scheduling() {
#if !defined(ROTCELL_EMULATOR_RACES)
  test_orders(1);
  test_orders(3);
  test_orders(120);
#endif
  test_counters();
  test_devices();
  test_exception();
  test_host_threads();
}

}  // namespace rotcell::tests
