// Kernels and launches that CUDA leaves undefined or refuses: each must be an error that says
// where.
#include <cstring>

#include "cuda/runtime/known_devices.h"
#include "emulator/tests/check.h"

namespace rotcell::tests {
namespace {

constexpr unsigned all_lanes = 0xffffffff;

ROTCELL_GLOBAL void divergent_barrier(Output) {
  if (threadIdx.x < 40)
    cuda::block_barrier();
  else
    cuda::block_barrier();
}

ROTCELL_GLOBAL void gone_before_barrier(Output p) {
  if (threadIdx.x == static_cast<unsigned>(p.size)) return;
  cuda::block_barrier();
}

ROTCELL_GLOBAL void deadlock(Output) {
  if (threadIdx.x < 16)
    cuda::block_barrier();
  else
    __syncwarp();
}

uint64_t counter = 0;

ROTCELL_GLOBAL void wait_for_nothing(Output) { cuda::wait_for_signals(&counter, 0); }

ROTCELL_GLOBAL void gone_before_signal(Output) {
  if (blockIdx.x == 1) return;
  if (threadIdx.x == 0) {
    cuda::signal(&counter);
    cuda::wait_for_signals(&counter, counter + gridDim.x);
  }
}

ROTCELL_GLOBAL void misaligned_copy(Output) {
  ROTCELL_SHARED(float, values);
  cuda::copy_async(values + 1, values, true);
}

ROTCELL_GLOBAL void copy_left_under_way(Output) {
  ROTCELL_SHARED(float, values);
  cuda::copy_async(values, values, true);
  cuda::commit_copies();
}

ROTCELL_GLOBAL void left_out_of_mask(Output) { __shfl_xor_sync(0x0000ffff, 1, 1); }

ROTCELL_GLOBAL void different_masks(Output) {
  __shfl_xor_sync(threadIdx.x < 16 ? all_lanes : all_lanes & ~(1u << 5), 1, 1);
}

ROTCELL_GLOBAL void different_kinds(Output) {
  if (threadIdx.x < 16)
    __syncwarp();
  else
    __shfl_xor_sync(all_lanes, 1, 1);
}

ROTCELL_GLOBAL void lane_not_in_mask(Output) {
  if (threadIdx.x < 16) __shfl_sync(0x0000ffff, 1, 20);
}

ROTCELL_GLOBAL void lane_beyond_block(Output) { __shfl_xor_sync(all_lanes, 1, 16); }

ROTCELL_GLOBAL void gone_before_shuffle(Output p) {
  if (threadIdx.x == static_cast<unsigned>(p.size)) return;
  __shfl_xor_sync(all_lanes, 1, 1);
}

struct RowsParams {
  const void* global;
  int offset;  // of the rows, in bytes
};

ROTCELL_GLOBAL void load_rows(RowsParams p) {
  ROTCELL_SHARED(unsigned char, rows);
  unsigned registers[4];
  cuda::ldmatrix_x4(registers, rows + 16 * threadIdx.x + p.offset);
}

ROTCELL_GLOBAL void load_global_rows(RowsParams p) {
  unsigned registers[4];
  cuda::ldmatrix_x4(registers, p.global);
}

ROTCELL_GLOBAL void load_by_half(RowsParams) {
  ROTCELL_SHARED(unsigned char, rows);
  unsigned registers[4];
  if (threadIdx.x < 16) cuda::ldmatrix_x4(registers, rows);
}

ROTCELL_GLOBAL void multiply(RowsParams) {
  const unsigned a[4] = {};
  float sums[4] = {};
  cuda::mma_m16n8k16<__half>(sums, a, 0, 0);
}

ROTCELL_GLOBAL void multiply_by_half(RowsParams p) {
  if (threadIdx.x < 16) multiply(p);
}

// Half of the lanes load, the others multiply.
ROTCELL_GLOBAL void load_and_multiply(RowsParams p) {
  if (threadIdx.x < 16)
    load_rows(p);
  else
    multiply(p);
}

struct Case {
  const char* name;
  void (*kernel)(Output);
  cuda::Grid grid;
  int size;
  const char* complaint;
};

void test_kernels(const std::string& order) {
  const Case ordinary[] = {
      {"divergent_barrier", divergent_barrier, {2, 64, 0}, 0, "divergent block barrier"},
      {"gone_before_barrier", gone_before_barrier, {2, 64, 0}, 0, "exited"},
      {"gone_before_barrier", gone_before_barrier, {2, 64, 0}, 63, "exited"},
      {"deadlock", deadlock, {1, 32, 0}, 0, "deadlock (16 threads in a "},
      {"wait_for_nothing", wait_for_nothing, {2, 64, 0}, 0, "not launched cooperatively"},
      {"misaligned_copy", misaligned_copy, {1, 32, 128}, 0, "not aligned to 16 bytes"},
      {"copy_left_under_way", copy_left_under_way, {1, 32, 128}, 0, "exited"},
      {"left_out_of_mask", left_out_of_mask, {1, 32, 0}, 0, "its mask leaves out"},
      {"different_masks", different_masks, {1, 32, 0}, 0, "different masks"},
      {"different_kinds", different_kinds, {1, 32, 0}, 0, "different kinds"},
      {"lane_not_in_mask", lane_not_in_mask, {1, 32, 0}, 0, "reads lane 20"},
      {"lane_beyond_block", lane_beyond_block, {1, 48, 0}, 0, "absent lane"},
      {"gone_before_shuffle", gone_before_shuffle, {1, 32, 0}, 0, "exited"},
      {"gone_before_shuffle", gone_before_shuffle, {1, 32, 0}, 31, "exited"},
  };
  for (const Case& one : ordinary)
    expect_error(std::string(one.name) + ", " + order,
                 {one.name, one.complaint, "misuse.cpp:", ", block ", ", thread "}, [&] {
                   cuda::launch(one.name, one.kernel, one.grid, nullptr, {nullptr, one.size});
                 });
  const Case cooperative[] = {
      {"gone_before_signal", gone_before_signal, {3, 32, 0}, 0, "threads for signals"},
      {"gone_before_barrier", gone_before_barrier, {2, 64, 0}, 5, "exited"},
  };
  for (const Case& one : cooperative)
    expect_error(std::string(one.name) + ", cooperative, " + order,
                 {one.name, one.complaint, "misuse.cpp:", ", block ", ", thread "}, [&] {
                   cuda::launch_cooperative(one.name, one.kernel, one.grid, nullptr,
                                            {nullptr, one.size});
                 });
}

void test_tile_misuse() {
  Buffer<float> global(4);
  const auto run = [&](auto kernel, unsigned threads = 32, int offset = 0) {
    return [&global, kernel, threads, offset] {
      cuda::launch("tiles", +kernel, {1, threads, 16 * 32}, nullptr,
                   RowsParams{global.data(), offset});
    };
  };
  run(load_rows)();
  expect_error("misaligned row", {"16 bytes", "misuse.cpp:"}, run(load_rows, 32, 8));
  expect_error("row beyond", {"not in shared memory", "misuse.cpp:"}, run(load_rows, 32, 16));
  expect_error("global row", {"not in shared memory", "misuse.cpp:"}, run(load_global_rows));
  expect_error("small warp", {"fewer than 32", "misuse.cpp:"}, run(load_rows, 16));
  expect_error("half a warp loads", {"exited", "misuse.cpp:"}, run(load_by_half));
  expect_error("half a warp multiplies", {"exited", "misuse.cpp:"}, run(multiply_by_half));
  expect_error("different kinds", {"different kinds", "misuse.cpp:"}, run(load_and_multiply));
}

void test_place() {
  expect_error(
      "an error names its place",
      {"rotcell: CUDA kernel gone_before_shuffle: ", "misuse.cpp:", ", block 0, thread "}, [] {
        cuda::launch("gone_before_shuffle", gone_before_shuffle, {1, 32, 0}, nullptr, {nullptr, 3});
      });
}

void launch_with(const cuda::Grid& grid) {
  cuda::launch("deadlock", deadlock, grid, nullptr, {nullptr, 0});
}

void launch_cooperative_with(const cuda::Grid& grid) {
  cuda::launch_cooperative("wait_for_nothing", wait_for_nothing, grid, nullptr, {nullptr, 0});
}

void test_refused_launches() {
  expect_error("too much shared memory",
               {"rotcell: CUDA kernel deadlock (2 blocks of 32 threads, 232449 bytes of shared "
                "memory) failed to launch: invalid argument"},
               [] { launch_with({2, 32, 227 * 1024 + 1}); });
  expect_error("too many threads", {"failed to launch: invalid configuration argument"},
               [] { launch_with({1, 1025, 0}); });
  expect_error("no threads", {"failed to launch: invalid configuration argument"},
               [] { launch_with({1, 0, 0}); });

  cuda::DeviceProperties device = *cuda::find_known_device("T4");
  device.multiprocessors = 2;
  emulator::pose_as(device);
  launch_cooperative_with({4, 512, 0});
  expect_error("too many blocks at once",
               {"failed to launch: too many blocks in cooperative launch"},
               [] { launch_cooperative_with({5, 512, 0}); });
  expect_error("too much shared memory at once",
               {"failed to launch: too many blocks in cooperative launch"},
               [] { launch_cooperative_with({3, 32, 64 * 1024}); });
  device.cooperative_launch = false;
  emulator::pose_as(device);
  expect_error("no cooperative launch", {"failed to launch: operation not supported"},
               [] { launch_cooperative_with({1, 32, 0}); });
  emulator::pose_as(*cuda::find_known_device("H100"));
}

}  // namespace

void test_misuse() {
  in_every_order(test_kernels);
  test_tile_misuse();
  test_place();
  test_refused_launches();
}

}  // namespace rotcell::tests
