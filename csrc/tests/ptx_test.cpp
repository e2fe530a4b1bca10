// Tests csrc/ptx by small kernels that are written down here, without nvcc: instructions whose
// meaning is subtle, lanes that part, what is counted, and errors.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "ptx/module.h"
#include "ptx/scheduler.h"
#include "simt/half.h"

namespace {

using namespace rotcell;

int passed = 0, failed = 0;

void check(bool right, const std::string& what) {
  ++(right ? passed : failed);
  if (!right) std::printf("FAILED: %s\n", what.c_str());
}

using Lanes = std::array<uint32_t, 32>;

// A kernel reads its lane's number from `in`, or its second one, into %r1 and %r2, and writes %r3
// to `out`. %f1, %f2 and %f3, and %s1, %s2 and %s3 of 16 bits, are free, as are others.
std::string kernel_text(const std::string& body) {
  return R"(
.version 8.0
.target sm_80
.extern .shared .align 128 .b8 rotcell_shared[];
.entry kernel(
  .param .align 8 .b8 kernel_param_0[24]
)
{
  .reg .pred %p<9>;
  .reg .b16 %s<9>;
  .reg .b32 %r<40>;
  .reg .f32 %f<40>;
  .reg .f64 %fd<9>;
  .reg .b64 %rd<20>;
  ld.param.u64 %rd1, [kernel_param_0];
  ld.param.u64 %rd2, [kernel_param_0+8];
  ld.param.u64 %rd5, [kernel_param_0+16];
  mov.u32 %r9, %tid.x;
  and.b32 %r8, %r9, 31;
  mul.wide.u32 %rd3, %r8, 4;
  add.s64 %rd1, %rd1, %rd3;
  add.s64 %rd2, %rd2, %rd3;
  ld.global.u32 %r1, [%rd1];
  ld.global.u32 %r2, [%rd1+128];
)" + body +
         R"(
  st.global.u32 [%rd2], %r3;
  ret;
}
)";
}

struct Buffers {
  std::vector<uint32_t> in = std::vector<uint32_t>(64);
  Lanes out{};
  uint64_t counter = 0;
};

ptx::LaunchCounts run(const std::string& body, Buffers& buffers, cuda::Grid grid = {1, 32, 1024},
                      simt::Kind kind = simt::Kind::ordinary) {
  ptx::Module module("test.ptx", kernel_text(body));
  const struct {
    const void* in;
    void* out;
    uint64_t* counter;
  } parameters{buffers.in.data(), buffers.out.data(), &buffers.counter};
  return ptx::run(module.kernel("kernel"), "kernel", kind, grid, &parameters);
}

// %r3 of a lane whose %r1 and %r2 are these.
uint32_t result(const std::string& body, uint32_t first, uint32_t second = 0) {
  Buffers buffers;
  for (size_t lane = 0; lane < 32; ++lane) {
    buffers.in[lane] = first;
    buffers.in[lane + 32] = second;
  }
  run(body, buffers);
  return buffers.out[5];
}

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// The same of floats in %f1 and %f2, with the result in %f3.
float float_result(const std::string& body, float first, float second = 0) {
  return std::bit_cast<float>(
      result("mov.b32 %f1, %r1; mov.b32 %f2, %r2;" + body + "mov.b32 %r3, %f3;", bits(first),
             bits(second)));
}

void expect_error(const std::string& body, const std::string& part, cuda::Grid grid = {1, 32, 1024},
                  simt::Kind kind = simt::Kind::ordinary) {
  std::string message;
  try {
    Buffers buffers;
    run(body, buffers, grid, kind);
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  check(message.find(part) != std::string::npos && message.find("test.ptx:") != std::string::npos,
        "an error with '" + part + "', not '" + message + "'");
}

void test_integers() {
  check(result("add.s32 %r3, %r1, %r2;", 0xffffffff, 2) == 1, "add.s32 wraps");
  check(result("shl.b32 %r3, %r1, %r2;", 1, 32) == 0, "shl beyond the number");
  check(result("shr.s32 %r3, %r1, %r2;", 0x80000000, 99) == 0xffffffff,
        "shr.s32 fills by the sign");
  check(result("shr.u32 %r3, %r1, %r2;", 0x80000000, 99) == 0, "shr.u32 fills by zeros");
  check(result("div.s32 %r3, %r1, %r2;", uint32_t(-7), 2) == uint32_t(-3), "div.s32 goes to zero");
  check(result("rem.s32 %r3, %r1, %r2;", uint32_t(-7), 2) == uint32_t(-1), "rem.s32");
  check(result("setp.lt.s32 %p1, %r1, %r2; selp.b32 %r3, 1, 2, %p1;", uint32_t(-1), 0) == 1,
        "setp.lt.s32 has a sign");
  check(result("setp.lt.u32 %p1, %r1, %r2; selp.b32 %r3, 1, 2, %p1;", uint32_t(-1), 0) == 2,
        "setp.lt.u32 has none");
  check(result("mul.wide.s32 %rd4, %r1, %r2; shr.u64 %rd4, %rd4, 32; cvt.u32.u64 %r3, %rd4;",
               uint32_t(-1), 1) == 0xffffffff,
        "mul.wide.s32 extends the sign");
  check(result("ld.global.s32 %rd4, [%rd1]; shr.u64 %rd4, %rd4, 32; cvt.u32.u64 %r3, %rd4;",
               0x80000000) == 0xffffffff,
        "ld.s32 extends the sign");
  check(result("cvt.u64.u32 %rd4, %r1; cvt.s64.s32 %rd4, %rd4; shr.u64 %rd4, %rd4, 60;"
               "cvt.u32.u64 %r3, %rd4;",
               0x80000000) == 15,
        "cvt.s64.s32 of a register of 64 bits");
  check(result("mov.b32 {%s1, %s2}, %r1; mov.b32 %r3, {%s2, %s1};", 0x12345678) == 0x56781234,
        "halves of a register");
  check(result("cvt.u64.u32 %rd4, %r1; cvt.u64.u32 %rd6, %r2; bfi.b64 %rd4, %rd6, %rd4, 4, 8;"
               "cvt.u32.u64 %r3, %rd4;",
               0x12345678, 0xabcd) == 0x12345cd8,
        "bfi.b64 inserts the lowest bits");
  check(result("{ .reg .b32 %temp; mov.b64 %rd4, {%r1, %r2}; mov.b64 {%temp, %r3}, %rd4; }", 1,
               2) == 2,
        "the upper half of a register of 64 bits");
}

void test_floats() {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = INFINITY;
  check(float_result("copysign.f32 %f3, %f1, %f2;", -1, 3) == -3, "copysign: sign of the first");
  check(float_result("fma.rn.f32 %f3, %f1, %f1, %f2;", 1 + 0x1p-12f, -1 - 0x1p-11f) == 0x1p-24f,
        "fma rounds once");
  check(float_result("fma.rm.f32 %f3, %f1, %f2, 0f3F800000;", -1, 0x1p-60f) ==
            std::nextafter(1.0f, 0.0f),
        "fma.rm goes down");
  check(float_result("fma.rn.f32 %f3, %f1, %f2, 0f3F800000;", -1, 0x1p-60f) == 1,
        "fma.rn does not");
  check(float_result("div.approx.f32 %f3, %f1, %f2;", 3, 0x1.8p126f) == 0, "div.approx: too large");
  check(float_result("div.approx.f32 %f3, %f1, %f2;", 3, 2) == 1.5f, "div.approx");
  check(float_result("ex2.approx.ftz.f32 %f3, %f1;", -130) == 0, "ex2.approx.ftz flushes");
  check(float_result("cvt.sat.f32.f32 %f3, %f1;", nan) == 0, "cvt.sat of a NaN");
  check(float_result("cvt.sat.f32.f32 %f3, %f1;", 7) == 1, "cvt.sat of more than 1");
  check(float_result("cvt.rni.f32.f32 %f3, %f1;", 2.5f) == 2, "cvt.rni takes ties to even");
  check(result("mov.b32 %f1, %r1; cvt.rzi.s32.f32 %r3, %f1;", bits(-infinity)) == 0x80000000,
        "cvt.rzi of what does not fit");
  check(result("mov.b32 %f1, %r1; cvt.rzi.s32.f32 %r3, %f1;", bits(-2.9f)) == uint32_t(-2),
        "cvt.rzi goes to zero");
  const std::string as_half = "mov.b32 %f1, %r1; cvt.rn.f16.f32 %s1, %f1; mov.b32 %r3, {%s1, 0};";
  check(result(as_half, bits(1 + 0x1p-11f)) == 0x3c00, "cvt.rn.f16: a tie, to even, down");
  check(result(as_half, bits(1 + 3 * 0x1p-11f)) == 0x3c02, "cvt.rn.f16: a tie, to even, up");
  check(result(as_half, bits(0x1p-24f)) == 1, "cvt.rn.f16: a subnormal");
  check(result(as_half, bits(65520)) == 0x7c00, "cvt.rn.f16: infinity");
  const std::string as_bfloat16 =
      "mov.b32 %f1, %r1; cvt.rn.bf16.f32 %s1, %f1; mov.b32 %r3, {0, %s1};";
  check(result(as_bfloat16, 0x3f808000) == 0x3f800000, "cvt.rn.bf16: a tie, to even, down");
  check(result(as_bfloat16, 0x3f818000) == 0x3f820000, "cvt.rn.bf16: a tie, to even, up");
  const auto compared = [&](const std::string& name, float a, float b) {
    return float_result("setp." + name + ".f32 %p1, %f1, %f2; selp.f32 %f3, %f1, %f2, %p1;", a,
                        b) == a;
  };
  check(compared("lt", 1, 2) && !compared("gt", 1, 2), "setp.lt.f32");
  check(result("mov.b32 %f1, %r1; setp.ltu.f32 %p1, %f1, %f1; selp.b32 %r3, 1, 0, %p1;",
               bits(nan)) == 1,
        "setp.ltu is true of NaNs");
  check(result("mov.b32 %f1, %r1; setp.lt.f32 %p1, %f1, %f1; selp.b32 %r3, 1, 0, %p1;",
               bits(nan)) == 0,
        "setp.lt is not");
}

void test_shuffles() {
  Buffers buffers;
  for (uint32_t lane = 0; lane < 64; ++lane) buffers.in[lane] = 100 + lane;
  run("shfl.sync.bfly.b32 %r3|%p1, %r1, 5, 31, -1;", buffers);
  bool right = true;
  for (uint32_t lane = 0; lane < 32; ++lane) right &= buffers.out[lane] == 100 + (lane ^ 5);
  check(right, "shfl.bfly");
  // Groups of 8 lanes, which bit 3 of a distance would leave.
  run("shfl.sync.bfly.b32 %r3|%p1, %r1, 8, 0x181f, -1; @!%p1 add.s32 %r3, %r3, 1000;", buffers);
  right = true;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const bool upper = lane & 8;
    right &= buffers.out[lane] == (upper ? 100 + (lane ^ 8) : 1100 + lane);
  }
  check(right, "shfl.bfly within groups");
}

// A [16, 16] in shared memory by rows, through ldmatrix, times B [16, 8], in the registers that the
// PTX ISA says.
void test_tensor_cores() {
  const auto a = [](int row, int column) { return static_cast<float>((3 * row + column) % 7 - 3); };
  const auto b = [](int row, int column) { return static_cast<float>((row + 3 * column) % 5 - 2); };
  const auto two_halves = [](float low, float high) {
    return uint32_t{simt::half_bits(low)} | uint32_t{simt::half_bits(high)} << 16;
  };
  Buffers buffers;
  for (int lane = 0; lane < 32; ++lane) {
    const int row = lane % 4 * 2, column = lane / 4;
    buffers.in[size_t(lane)] = two_halves(b(row, column), b(row + 1, column));
    buffers.in[size_t(lane) + 32] = two_halves(b(row + 8, column), b(row + 9, column));
  }
  // Each lane writes half a row of A, and points at the half that ldmatrix wants of it.
  std::string text =
      "shl.b32 %r10, %r9, 4; mov.u32 %r11, rotcell_shared; add.s32 %r10, %r10, %r11;";
  for (int lane = 0; lane < 32; ++lane) {
    text += "setp.eq.s32 %p1, %r9, " + std::to_string(lane) + ";";
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 2, column = lane % 2 * 8 + 2 * i;
      text += "@%p1 mov.u32 %r" + std::to_string(12 + i) + ", " +
              std::to_string(two_halves(a(row, column), a(row, column + 1))) + ";";
    }
  }
  text += R"(
    st.shared.v4.u32 [%r10], {%r12, %r13, %r14, %r15};
    bar.sync 0;
    and.b32 %r16, %r9, 15;
    shl.b32 %r16, %r16, 5;
    shr.u32 %r17, %r9, 4;
    shl.b32 %r17, %r17, 4;
    add.s32 %r16, %r16, %r17;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r16];
    mov.f32 %f10, 0f3F000000; mov.f32 %f11, %f10; mov.f32 %f12, %f10; mov.f32 %f13, %f10;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f10, %f11, %f12, %f13},
      {%r20, %r21, %r22, %r23}, {%r1, %r2}, {%f10, %f11, %f12, %f13};
  )";
  bool right = true;
  for (int i = 0; i < 4; ++i) {
    run(text + "mov.b32 %r3, %f1" + std::to_string(i) + ";", buffers);
    for (int lane = 0; lane < 32; ++lane) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float sum = 0.5f;
      for (int k = 0; k < 16; ++k) sum += a(row, k) * b(k, column);
      right &= buffers.out[size_t(lane)] == bits(sum);
    }
  }
  check(right, "ldmatrix and mma");
}

// A [16, 16] by rows that are 24 numbers apart, times B [16, 16] by columns, through memory.
void test_whole_matrices(const std::string& loads, const std::string& multiplication,
                         uint16_t (*half)(float)) {
  const auto a = [](int row, int column) { return static_cast<float>((3 * row + column) % 7 - 3); };
  const auto b = [](int row, int column) { return static_cast<float>((row + 3 * column) % 5 - 2); };
  constexpr int a_stride = 24, b_stride = 16, d_stride = 20, words_of_a = 16 * a_stride / 2;
  constexpr int words = words_of_a + 16 * b_stride / 2;
  Buffers buffers;
  buffers.in.resize(64 + words);
  for (int line = 0; line < 16; ++line) {
    for (int i = 0; i < 16; ++i) {
      const uint32_t of_a = half(a(line, i)), of_b = half(b(i, line));
      buffers.in[size_t(64 + (line * a_stride + i) / 2)] |= of_a << 16 * (i % 2);
      buffers.in[size_t(64 + words_of_a + (line * b_stride + i) / 2)] |= of_b << 16 * (i % 2);
    }
  }
  std::string text = "shl.b32 %r10, %r8, 2; mov.u32 %r11, 24; mov.u32 %r12, 16; mov.u32 %r13, 20;";
  for (int i = 0; i < words / 32; ++i) {
    const std::string at = std::to_string(128 * i);
    text += "ld.global.u32 %r4, [%rd1+" + std::to_string(256 + 128 * i) +
            "]; st.shared.u32 [%r10+" + at + "], %r4;";
  }
  for (int i = 20; i < 28; ++i) text += "mov.f32 %f" + std::to_string(i) + ", 0f3F000000;";
  const std::string d = "{%f20, %f21, %f22, %f23, %f24, %f25, %f26, %f27}";
  text += "bar.sync 0;" + loads + multiplication;
  text += "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [rotcell_shared+2048], " + d +
          ", %r13; bar.sync 0;";
  bool right = true;
  for (int i = 0; i < 16 * d_stride / 32; ++i) {
    run(text + "ld.shared.u32 %r3, [%r10+" + std::to_string(2048 + 128 * i) + "];", buffers,
        {1, 32, 4096});
    for (int lane = 0; lane < 32; ++lane) {
      const int row = (32 * i + lane) / d_stride, column = (32 * i + lane) % d_stride;
      float sum = 0.5f;
      for (int k = 0; k < 16; ++k) sum += a(row, k) * b(k, column);
      // What lies between the rows is not written.
      right &= buffers.out[size_t(lane)] == (column < 16 ? bits(sum) : 0xffffffff);
    }
  }
  check(right, multiplication.substr(0, multiplication.find(' ')));
}

void test_whole_matrices() {
  const std::string d = "{%f20, %f21, %f22, %f23, %f24, %f25, %f26, %f27}";
  const std::string a = "{%r14, %r15, %r16, %r17, %r18, %r19, %r20, %r21}";
  const std::string b = "{%r22, %r23, %r24, %r25, %r26, %r27, %r28, %r29}";
  test_whole_matrices(
      "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 " + a + ", [rotcell_shared], %r11;" +
          "wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 " + b +
          ", [rotcell_shared+768], %r12;",
      "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 " + d + ", " + a + ", " + b + ", " + d + ";",
      simt::half_bits);
  const std::string short_a = "{%r14, %r15, %r16, %r17}", short_b = "{%r22, %r23, %r24, %r25}";
  test_whole_matrices(
      "mov.u64 %rd6, rotcell_shared; cvta.shared.u64 %rd6, %rd6;"
      "wmma.load.a.sync.aligned.row.m16n16k16.bf16 " +
          short_a + ", [%rd6], %r11;" + "wmma.load.b.sync.aligned.col.m16n16k16.bf16 " + short_b +
          ", [%rd6+768], %r12;",
      "wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32 " + d + ", " + short_a + ", " +
          short_b + ", " + d + ";",
      simt::bfloat16_bits);
}

void test_lanes_that_part() {
  Buffers buffers;
  const auto counts = run(R"(
    mov.u32 %r3, 0;
    setp.lt.u32 %p1, %r9, 8;
    @%p1 bra $few;
    add.s32 %r3, %r3, 1;
    bra $together;
$few:
    add.s32 %r3, %r3, 2;
$together:
    add.s32 %r3, %r3, 4;
$again:
    add.s32 %r3, %r3, 16;
    sub.s32 %r9, %r9, 1;
    setp.gt.s32 %p1, %r9, 28;
    @%p1 bra $again;
  )",
                          buffers);
  bool right = true;
  for (int lane = 0; lane < 32; ++lane) {
    const int rounds = std::max(1, lane - 28);
    right &= buffers.out[size_t(lane)] == uint32_t((lane < 8 ? 6 : 5) + 16 * rounds);
  }
  check(right, "lanes that part");
  // Both ways once, what is common once, and as many rounds as any lane has: 10 before, 2 after.
  check(counts.warps[0].all() == 10 + 3 + 2 + 1 + 1 + 3 * 4 + 2,
        "issued once for all its lanes: " + std::to_string(counts.warps[0].all()));
}

void test_trips() {
  const auto trips = [](const std::string& body) {
    Buffers buffers;
    return run(body + "mov.u32 %r3, 0;", buffers).warps[0].trips;
  };
  const std::string two = "ld.global.u32 %r4, [%rd1]; ld.global.u32 %r5, [%rd1+128];";
  check(trips("") == 0, "what is loaded and not used is not waited for");
  check(trips("add.s32 %r6, %r1, 1; " + two + "add.s32 %r6, %r4, %r5; bar.sync 0;") == 1,
        "loads that do not need each other are one trip");
  check(trips("add.s32 %r6, %r1, 1; bar.sync 0;" + two + "add.s32 %r6, %r4, %r5; bar.sync 0;") == 2,
        "a barrier between them makes two");
  check(trips("cvt.u64.u32 %rd4, %r1; add.s64 %rd4, %rd4, %rd1; ld.global.u32 %r4, [%rd4];"
              "add.s32 %r4, %r4, 1; bar.sync 0;") == 2,
        "an address that was loaded makes two");
  check(trips("atom.add.release.gpu.u32 %r4, [%rd5], 1; add.s32 %r4, %r4, 1; bar.sync 0;") == 1,
        "what an addition in memory returns is a trip");
  check(trips("setp.lt.u32 %p1, %r9, 8; @%p1 ld.global.u32 %r4, [%rd1]; @!%p1 mov.u32 %r4, 0;"
              "add.s32 %r4, %r4, 1; bar.sync 0;") == 1,
        "some lanes load, the others do not");
}

// Block 1 signals, block 0 waits, however long that takes.
void test_signals() {
  const std::string body = R"(
    mov.u32 %r3, 7;
    mov.u32 %r4, %ctaid.x;
    setp.ne.s32 %p1, %r4, 0;
    @%p1 bra $signal;
$wait:
    ld.acquire.gpu.global.u64 %rd6, [%rd5];
    setp.lt.u64 %p2, %rd6, 1;
    @%p2 bra $wait;
    bra $end;
$signal:
    bar.sync 0;
    red.release.gpu.global.add.u64 [%rd5], 1;
$end:
  )";
  Buffers buffers;
  const auto counts = run(body, buffers, {2, 32, 0}, simt::Kind::cooperative);
  check(buffers.counter == 32, "signals");
  check(counts.warps[0].waits == 1 && counts.warps[0].all() == 10 + 4 + 3 + 1 + 2,
        "asking again counts for nothing: " + std::to_string(counts.warps[0].all()));
}

// The barrier of cooperative groups, as nvcc makes it. Each block adds 1 to the counter, and then
// must see what both have added, twice over.
void test_grid_barriers() {
  const auto barrier = [](const std::string& number) {
    return R"(
    mov.u32 %r20, %tid.y;
    add.s32 %r20, %r9, %r20;
    setp.ne.s32 %p1, %r20, 0;
    barrier.sync 0;
    @%p1 bra $behind)" +
           number + R"(;
    mov.u32 %r21, %ctaid.x;
    mov.u32 %r22, %ctaid.z;
    neg.s32 %r22, %r22;
    setp.eq.s32 %p2, %r21, %r22;
    mov.u32 %r23, %nctaid.x;
    mov.u32 %r24, %nctaid.y;
    mul.lo.s32 %r23, %r23, %r24;
    mov.u32 %r24, -2147483647;
    sub.s32 %r23, %r24, %r23;
    selp.b32 %r23, %r23, 1, %p2;
    atom.add.release.gpu.u32 %r25,[%rd6],%r23;
$wait)" + number +
           R"(:
    ld.acquire.gpu.u32 %r26,[%rd6];
    xor.b32 %r26, %r26, %r25;
    setp.gt.s32 %p2, %r26, -1;
    @%p2 bra $wait)" +
           number + R"(;
$behind)" + number +
           R"(:
    barrier.sync 0;
    )";
  };
  const std::string workspace = R"(
    mov.u32 %r10, %envreg2;
    mov.u32 %r11, %envreg1;
    cvt.u64.u32 %rd6, %r10;
    cvt.u64.u32 %rd7, %r11;
    bfi.b64 %rd6, %rd7, %rd6, 32, 32;
    setp.ne.s64 %p3, %rd6, 0;
    @%p3 bra $there;
    trap;
$there:
    add.s64 %rd6, %rd6, 4;
    setp.eq.s32 %p4, %r9, 0;
  )";
  const std::string add = "@%p4 red.release.gpu.global.add.u64 [%rd5], 1;";
  const std::string see = "ld.global.u64 %rd8, [%rd5]; cvt.u32.u64 %r3, %rd8;";
  for (const unsigned blocks : {1u, 3u}) {
    Buffers buffers;
    const auto counts =
        run(workspace + add + barrier("1") + see + barrier("2") + add + barrier("3") +
                "mul.lo.s32 %r4, %r3, 100;" + see + "add.s32 %r3, %r3, %r4;",
            buffers, {blocks, 64, 0}, simt::Kind::cooperative);
    check(buffers.out[0] == 100 * blocks + 2 * blocks && buffers.out[31] == buffers.out[0],
          "barriers of the grid: " + std::to_string(buffers.out[0]));
    check(counts.warps[0].waits == 3 && counts.warps[1].waits == 0 &&
              counts.warps[0].block_barriers == 6 && counts.warps[0].trips == 5,
          "each is one wait, two barriers of the block and a trip: " +
              std::to_string(counts.warps[0].trips));
  }
  expect_error(workspace, "a trap");
}

void test_errors() {
  expect_error("frobnicate.u32 %r3, %r1;", "unknown instruction frobnicate.u32");
  expect_error("add.s64 %r3, %r1, %r2;", "another size");
  expect_error("ld.global.u32 %r3, [%rd1+2];", "misaligned address in global memory");
  expect_error("ld.shared.u32 %r3, [rotcell_shared+1022];", "misaligned address in shared memory");
  expect_error("ld.shared.u32 %r3, [rotcell_shared+1024];", "beyond shared memory");
#if defined(__SANITIZE_ADDRESS__)
  expect_error("ld.global.u32 %r3, [%rd1+256];", "beyond global memory");
#endif
  expect_error("ld.param.u64 %rd4, [kernel_param_0+24];", "beyond the parameters");
  expect_error("setp.eq.s32 %p1, %r9, 0; @%p1 bra $end; bar.sync 0; $end:",
               "not all lanes of the warp come to");
  expect_error(
      "setp.eq.s32 %p1, %r9, 0; @%p1 bra $end; shfl.sync.bfly.b32 %r3|%p2, %r1, 1, 31, -1;"
      "$end:",
      "lanes that are not there");
  expect_error("setp.lt.u32 %p1, %r9, 32; @%p1 bar.sync 0; @%p1 ret; bar.sync 0;", "not all lanes",
               {1, 64, 0});
  expect_error("setp.lt.u32 %p1, %r9, 32; @%p1 bra $end; bar.sync 0; $end:", "deadlock",
               {1, 64, 0});
  expect_error(
      "$wait: ld.acquire.gpu.global.u64 %rd6, [%rd5]; setp.lt.u64 %p2, %rd6, 1;"
      "@%p2 bra $wait;",
      "deadlock", {2, 32, 0}, simt::Kind::cooperative);
  expect_error(
      "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r14, %r15, %r16, %r17, %r18, %r19,"
      "%r20, %r21}, [rotcell_shared+16], 16;",
      "a misaligned matrix");
  expect_error(
      "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r14, %r15, %r16, %r17, %r18, %r19,"
      "%r20, %r21}, [rotcell_shared], %r9;",
      "different matrices");
  expect_error("cp.async.cg.shared.global [rotcell_shared], [%rd1], 16, 0; ret;",
               "before its copies have arrived", {1, 1, 1024});
}

}  // namespace

int main() {
  test_integers();
  test_floats();
  test_shuffles();
  test_tensor_cores();
  test_whole_matrices();
  test_lanes_that_part();
  test_trips();
  test_signals();
  test_grid_barriers();
  test_errors();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
