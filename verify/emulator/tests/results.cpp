// Kernels without fault: their results must be right in every order.
#include <cmath>
#include <cstring>

#include "emulator/tests/check.h"

namespace rotcell::tests {
namespace {

constexpr unsigned all_lanes = 0xffffffff;

// Every step each thread takes over its neighbor's value; in the end each has gone `size` places.
ROTCELL_GLOBAL void ROTCELL_LAUNCH_BOUNDS(256) go_round(Output p) {
  ROTCELL_SHARED(float, values);
  values[threadIdx.x] = static_cast<float>(blockIdx.x * blockDim.x + threadIdx.x);
  cuda::block_barrier();
  for (int step = 0; step < p.size; ++step) {
    const float neighbor = values[(threadIdx.x + 1) % blockDim.x];
    cuda::block_barrier();
    values[threadIdx.x] = neighbor;
    cuda::block_barrier();
  }
  p.out[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x];
}

void test_block_barrier(const std::string& order) {
  for (const unsigned threads : {1u, 31u, 100u, 256u}) {
    constexpr unsigned blocks = 3;
    constexpr int steps = 5;
    Buffer<float> out(blocks * threads);
    cuda::launch("go_round", go_round, {blocks, threads, threads * sizeof(float)}, nullptr,
                 {out.data(), steps});
    bool right = true;
    for (unsigned i = 0; i < out.size(); ++i)
      right &=
          out[i] == static_cast<float>(i / threads * threads + (i % threads + steps) % threads);
    check(right, "block barrier with " + std::to_string(threads) + " threads, " + order);
  }
}

ROTCELL_GLOBAL void read_uninitialized(Output p) {
  ROTCELL_SHARED(float, values);
  p.out[blockIdx.x] = values[0];
  values[0] = 1;
}

void test_shared_memory_is_nan(const std::string& order) {
  Buffer<float> out(3);
  for (size_t i = 0; i < out.size(); ++i) out[i] = 0;
  cuda::launch("read_uninitialized", read_uninitialized, {3, 1, sizeof(float)}, nullptr,
               {out.data(), 0});
  check(std::isnan(out[0]) && std::isnan(out[1]) && std::isnan(out[2]),
        "shared memory is NaN at first in every block, " + order);
}

template <class T>
struct ShuffleParams {
  T* sums;        // [blocks * threads]: of the warp, by exchange
  T* first_sums;  // the same by shifts, right in lane 0
  T* broadcast;   // lane 3 of each group of 8
};

template <class T>
ROTCELL_GLOBAL void shuffle_all_ways(ShuffleParams<T> p) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const T value = static_cast<T>(i * i);
  T sum = value, shifted = value;
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(all_lanes, sum, distance);
    shifted += __shfl_down_sync(all_lanes, shifted, distance);
  }
  p.sums[i] = sum;
  p.first_sums[i] = shifted;
  p.broadcast[i] = __shfl_sync(all_lanes, value, 3, 8);
}

template <class T>
void test_shuffles(const std::string& order) {
  constexpr unsigned blocks = 2, threads = 96;
  Buffer<T> sums(blocks * threads), first_sums(blocks * threads), broadcast(blocks * threads);
  cuda::launch("shuffle_all_ways", shuffle_all_ways<T>, {blocks, threads, 0}, nullptr,
               {sums.data(), first_sums.data(), broadcast.data()});
  bool right = true;
  for (unsigned i = 0; i < sums.size(); ++i) {
    T expected = 0;
    for (unsigned k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) expected += static_cast<T>(k * k);
    const unsigned source = i / 8 * 8 + 3;
    right &= sums[i] == expected && broadcast[i] == static_cast<T>(source * source);
    if (i % 32 == 0) right &= first_sums[i] == expected;
  }
  check(right, "shuffles, " + order);
}

// The halves of a warp diverge with separate masks, one synchronizing more often.
ROTCELL_GLOBAL void half_warps(Output p) {
  float value = static_cast<float>(threadIdx.x);
  if (threadIdx.x < 16) {
    for (int i = 0; i < 3; ++i) value = __shfl_xor_sync(0x0000ffff, value, 1);
  } else {
    value = __shfl_xor_sync(0xffff0000, value, 2);
  }
  p.out[threadIdx.x] = __shfl_xor_sync(all_lanes, value, 16);
}

void test_half_warps(const std::string& order) {
  Buffer<float> out(32);
  cuda::launch("half_warps", half_warps, {1, 32, 0}, nullptr, {out.data(), 0});
  bool right = true;
  for (int i = 0; i < 32; ++i)
    right &= out[i] == static_cast<float>(i < 16 ? (i + 16) ^ 2 : (i - 16) ^ 1);
  check(right, "half warps, " + order);
}

ROTCELL_GLOBAL void exchange_in_warp(Output p) {
  ROTCELL_SHARED(float, values);
  for (int step = 0; step < p.size; ++step) {
    values[threadIdx.x] = static_cast<float>(threadIdx.x * step);
    __syncwarp();
    p.out[threadIdx.x] = values[threadIdx.x ^ 1];
    __syncwarp();
  }
}

void test_syncwarp(const std::string& order) {
  Buffer<float> out(80);
  cuda::launch("exchange_in_warp", exchange_in_warp, {1, 80, 80 * sizeof(float)}, nullptr,
               {out.data(), 4});
  bool right = true;
  for (int i = 0; i < 80; ++i) right &= out[i] == static_cast<float>((i ^ 1) * 3);
  check(right, "syncwarp, " + order);
}

struct SignalParams {
  float* out;
  uint64_t* counter;
  int size;
};

// out[step][i] is the sum of two neighbors of the step before, mostly made by other blocks.
ROTCELL_GLOBAL void add_neighbors(SignalParams p) {
  const unsigned width = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
  p.out[i] = static_cast<float>(i % 5);
  for (int step = 1; step < p.size; ++step) {
    cuda::block_barrier();
    if (threadIdx.x == 0) {
      cuda::signal(p.counter);
      cuda::wait_for_signals(p.counter, static_cast<uint64_t>(step) * gridDim.x);
    }
    cuda::block_barrier();
    const float* before = p.out + (step - 1) * width;
    p.out[step * width + i] =
        cuda::load_coherent(before + i) + cuda::load_coherent(before + (i + blockDim.x) % width);
  }
}

void test_signals(const std::string& order) {
  constexpr unsigned blocks = 5, threads = 48, width = blocks * threads;
  constexpr int steps = 6;
  Buffer<float> out(width * steps), expected(width * steps);
  uint64_t counter = 0;
  cuda::launch_cooperative("add_neighbors", add_neighbors, {blocks, threads, 0}, nullptr,
                           {out.data(), &counter, steps});
  for (unsigned i = 0; i < width; ++i) expected[i] = static_cast<float>(i % 5);
  for (unsigned i = width; i < expected.size(); ++i)
    expected[i] =
        expected[i - width] + expected[i / width * width - width + (i % width + threads) % width];
  check(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0,
        "signals, " + order);
}

// Rows of four numbers, mirrored by threads that read what others copied; the last is zeros.
ROTCELL_GLOBAL void mirror_rows(Output p) {
  ROTCELL_SHARED(float, values);
  const unsigned last = blockDim.x - 1;
  for (int stage = 0; stage < 2; ++stage) {
    const unsigned row = stage * blockDim.x + threadIdx.x;
    cuda::copy_async(values + 4 * row, p.out + 4 * row, row < 2 * blockDim.x - 1);
    cuda::commit_copies();
  }
  cuda::wait_for_copies<1>();
  cuda::block_barrier();
  const float first = values[4 * (last - threadIdx.x) + 1];
  cuda::wait_for_copies<0>();
  cuda::block_barrier();
  const float second = values[4 * (blockDim.x + last - threadIdx.x) + 1];
  p.out[4 * threadIdx.x] = first;
  p.out[4 * (blockDim.x + threadIdx.x)] = second;
}

void test_copies(const std::string& order) {
  constexpr unsigned threads = 40;
  Buffer<float> out(8 * threads);
  for (unsigned i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i);
  cuda::launch("mirror_rows", mirror_rows, {1, threads, 8 * threads * sizeof(float)}, nullptr,
               {out.data(), 0});
  bool right = true;
  for (unsigned i = 0; i < threads; ++i) {
    const unsigned mirrored = threads - 1 - i;
    right &= out[4 * i] == static_cast<float>(4 * mirrored + 1);
    right &=
        out[4 * (threads + i)] == (i == 0 ? 0 : static_cast<float>(4 * (threads + mirrored) + 1));
  }
  check(right, "asynchronous copies, " + order);
}

struct TileParams {
  const float* a;  // [16, 16]
  const float* b;  // [16, 8]
  const float* c;  // [16, 8]
  float* out;      // [16, 8]
};

// A lane's elements, in the words of the PTX ISA.
struct Isa {
  int group = static_cast<int>(threadIdx.x) >> 2;
  int thread_in_group = static_cast<int>(threadIdx.x) % 4;

  int a_row(int i) const { return i < 2 || (4 <= i && i < 6) ? group : group + 8; }
  int a_column(int i) const { return thread_in_group * 2 + (i & 1) + (i < 4 ? 0 : 8); }
  int b_row(int i) const { return thread_in_group * 2 + (i & 1) + (i < 2 ? 0 : 8); }
  int b_column() const { return group; }
  int c_row(int i) const { return i < 2 ? group : group + 8; }
  int c_column(int i) const { return thread_in_group * 2 + (i & 1); }
};

template <class T>
unsigned two(float low, float high) {
  return static_cast<unsigned>(T(high).bits) << 16 | T(low).bits;
}

// out = a b + 2 c, with every element brought to its lane by hand.
template <class T>
ROTCELL_GLOBAL void multiply(TileParams p) {
  const Isa isa;
  unsigned a[4], b[2];
  float sums[4];
  for (int i = 0; i < 8; i += 2)
    a[i / 2] = two<T>(p.a[isa.a_row(i) * 16 + isa.a_column(i)],
                      p.a[isa.a_row(i + 1) * 16 + isa.a_column(i + 1)]);
  for (int i = 0; i < 4; i += 2)
    b[i / 2] =
        two<T>(p.b[isa.b_row(i) * 8 + isa.b_column()], p.b[isa.b_row(i + 1) * 8 + isa.b_column()]);
  for (int i = 0; i < 4; ++i) sums[i] = 2 * p.c[isa.c_row(i) * 8 + isa.c_column(i)];
  cuda::mma_m16n8k16<T>(sums, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i) p.out[isa.c_row(i) * 8 + isa.c_column(i)] = sums[i];
}

// Small whole numbers: exact in every type and order of summation.
float small_number(int i) { return static_cast<float>(i * 7 % 11 - 5); }

template <class T>
void test_matmul(const std::string& what) {
  Buffer<float> a(256), b(128), c(128), out(128);
  for (int i = 0; i < 256; ++i) a[i] = small_number(i);
  for (int i = 0; i < 128; ++i) {
    b[i] = small_number(i * i + 3);
    c[i] = small_number(5 * i + 1);
  }
  cuda::launch("multiply", multiply<T>, {1, 32, 0}, nullptr,
               {a.data(), b.data(), c.data(), out.data()});
  bool right = true;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      double sum = 2 * c[row * 8 + column];
      for (int k = 0; k < 16; ++k) sum += a[row * 16 + k] * b[k * 8 + column];
      right &= out[row * 8 + column] == sum;
    }
  check(right, "mma of " + what);
}

struct MatricesParams {
  unsigned* out;  // [4, lanes]
};

// Row r and column c of matrix m hold the number 256 m + 16 r + c.
ROTCELL_GLOBAL void load_four_matrices(MatricesParams p) {
  constexpr int stride = 24;  // more than 8: rows need not touch each other
  ROTCELL_SHARED(uint16_t, numbers);
  const unsigned matrix = threadIdx.x / 8, row = threadIdx.x % 8;
  uint16_t* own = numbers + threadIdx.x * stride;
  for (unsigned column = 0; column < 8; ++column)
    own[column] = static_cast<uint16_t>(256 * matrix + 16 * row + column);
  __syncwarp();
  unsigned registers[4];
  cuda::ldmatrix_x4(registers, own);
  for (int i = 0; i < 4; ++i) p.out[i * 32 + threadIdx.x] = registers[i];
}

void test_matrices(const std::string& order) {
  Buffer<unsigned> out(4 * 32);
  cuda::launch("load_four_matrices", load_four_matrices, {1, 32, 32 * 24 * sizeof(uint16_t)},
               nullptr, {out.data()});
  bool right = true;
  for (unsigned i = 0; i < out.size(); ++i) {
    const unsigned first = 256 * (i / 32) + 16 * (i % 32 / 4) + 2 * (i % 4);
    right &= out[i] == ((first + 1) << 16 | first);
  }
  check(right, "ldmatrix, " + order);
}

}  // namespace

void test_results(const std::string& order) {
  test_block_barrier(order);
  test_shared_memory_is_nan(order);
  test_shuffles<int>(order);
  test_shuffles<float>(order);
  test_shuffles<double>(order);
  test_half_warps(order);
  test_syncwarp(order);
  test_signals(order);
  test_copies(order);
  test_matrices(order);
  test_matmul<__half>("__half, " + order);
  test_matmul<__nv_bfloat16>("__nv_bfloat16, " + order);
}

}  // namespace rotcell::tests
