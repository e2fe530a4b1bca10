// Tests verify/ptx by small kernels that are written down here, without nvcc: instructions whose
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

#include "emulator/half.h"
#include "ptx/module.h"
#include "ptx/scheduler.h"

namespace {

using namespace rotcell;

int passed = 0, failed = 0;

void check(bool right, const std::string& what) {
  ++(right ? passed : failed);
  if (!right) std::printf("FAILED: %s\n", what.c_str());
}

using Results = std::array<uint32_t, 128>;  // of all threads

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
  mov.u32 %r7, %ctaid.x;
  mov.u32 %r6, %ntid.x;
  mul.lo.s32 %r7, %r7, %r6;
  add.s32 %r7, %r7, %r9;
  mul.wide.u32 %rd3, %r7, 4;
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
  Results out{};
  uint64_t counter = 0, behind_counter[2] = {};
};

void run(const std::string& body, Buffers& buffers, cuda::Grid grid = {1, 32, 1024},
         emulator::Kind kind = emulator::Kind::ordinary) {
  ptx::Module module("test.ptx", kernel_text(body));
  const struct {
    const void* in;
    void* out;
    uint64_t* counter;
  } parameters{buffers.in.data(), buffers.out.data(), &buffers.counter};
  ptx::run(module.kernel("kernel"), "kernel", kind, grid, &parameters);
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

// The same for floats in %f1 and %f2, with the result in %f3.
float float_result(const std::string& body, float first, float second = 0) {
  return std::bit_cast<float>(
      result("mov.b32 %f1, %r1; mov.b32 %f2, %r2;" + body + "mov.b32 %r3, %f3;", bits(first),
             bits(second)));
}

void expect_error(const std::string& body, const std::string& part, cuda::Grid grid = {1, 32, 1024},
                  emulator::Kind kind = emulator::Kind::ordinary) {
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

void test_vectors() {
  const std::string digits =
      "mad.lo.s32 %r3, %r10, 10, %r11; mad.lo.s32 %r3, %r3, 10, %r12; mad.lo.s32 %r3, %r3, 10, "
      "%r13;";
  check(result("ld.global.v4.u8 {%r10, %r11, %r12, %r13}, [%rd1];" + digits, 0x04030201) == 1234,
        "ld.global.v4.u8");
  check(result("ld.global.v2.u16 {%r10, %r11}, [%rd1]; mad.lo.s32 %r3, %r10, 10, %r11;",
               0x00020001) == 12,
        "ld.global.v2.u16");
  Buffers buffers;
  run("ld.param.v4.u8 {%r10, %r11, %r12, %r13}, [kernel_param_0];"
      "shl.b32 %r11, %r11, 8; shl.b32 %r12, %r12, 16; shl.b32 %r13, %r13, 24;"
      "add.s32 %r3, %r10, %r11; add.s32 %r3, %r3, %r12; add.s32 %r3, %r3, %r13;",
      buffers);
  check(buffers.out[0] == static_cast<uint32_t>(reinterpret_cast<uintptr_t>(buffers.in.data())),
        "ld.param.v4.u8");
  check(result("mov.u32 %r10, 1; mov.u32 %r11, 2; mov.u32 %r12, 3; mov.u32 %r13, 4;"
               "mov.u32 %r14, rotcell_shared; shl.b32 %r15, %r9, 2; add.s32 %r14, %r14, %r15;"
               "st.shared.v4.u8 [%r14], {%r10, %r11, %r12, %r13}; ld.shared.u32 %r3, [%r14];",
               0) == 0x04030201,
        "st.shared.v4.u8");
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
    return uint32_t{emulator::half_bits(low)} | uint32_t{emulator::half_bits(high)} << 16;
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

void test_lanes_that_part() {
  Buffers buffers;
  run(R"(
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
  run(body, buffers, {2, 32, 0}, emulator::Kind::cooperative);
  check(buffers.counter == 32, "signals");
}

void test_races() {
  const cuda::Grid two_warps{1, 64, 1024};
  const auto works = [](const std::string& body, cuda::Grid grid,
                        emulator::Kind kind = emulator::Kind::ordinary) {
    Buffers buffers;
    run(body, buffers, grid, kind);
    return true;
  };
  // The first warp writes 4 bytes, which the second reads.
  const std::string write =
      "setp.eq.s32 %p1, %r9, 0; setp.gt.s32 %p2, %r9, 31; mov.u32 %r3, 0;"
      "@%p1 st.shared.u32 [rotcell_shared], %r1;";
  const std::string read = "@%p2 ld.shared.u32 %r3, [rotcell_shared];";
  expect_error(write + read, "a race: read after a write", two_warps);
  check(works(write + "bar.sync 0;" + read, two_warps), "a barrier orders a write and a read");
  // Written by the first and read by the second, both after the same barrier.
  const std::string first = "setp.lt.u32 %p1, %r9, 32; @!%p1 bra $late;";
  expect_error(first +
                   "mov.u32 %r3, 0; bar.sync 0; st.shared.u16 [rotcell_shared+2], %s1;"
                   "bra $end; $late: bar.sync 0; ld.shared.u32 %r3, [rotcell_shared]; $end:",
               "a race", two_warps);
  // A copy is read by the warp that began it.
  const std::string copy =
      "shl.b32 %r4, %r9, 4; mov.u32 %r3, 0; ld.param.u64 %rd6,"
      "[kernel_param_0]; cp.async.cg.shared.global [%r4], [%rd6], 16, 16; cp.async.commit_group;";
  const std::string own = "ld.shared.u32 %r3, [%r4];";
  expect_error(copy + "cp.async.wait_group 1;" + own, "a copy is under way");
  check(works(copy + "cp.async.wait_group 0;" + own, {1, 32, 1024}), "a copy that is waited for");
  // Blocks 1 and 2 write and signal, block 0 waits and reads.
  const auto blocks = [](const std::string& waited_for) {
    return R"(
    mov.u32 %r3, 0;
    mov.u32 %r4, %ctaid.x;
    mul.wide.u32 %rd6, %r4, 8;
    add.s64 %rd6, %rd5, %rd6;
    setp.ne.s32 %p3, %r9, 0;
    @%p3 bra $end;
    setp.ne.s32 %p1, %r4, 0;
    @%p1 bra $signal;
$wait:
    ld.acquire.gpu.global.u64 %rd7, [%rd5];
    setp.lt.u64 %p2, %rd7, )" +
           waited_for + R"(;
    @%p2 bra $wait;
    ld.global.u32 %r3, [%rd5+8];
    ld.global.u32 %r3, [%rd5+16];
    bra $end;
$signal:
    st.global.u32 [%rd6], %r4;
    red.release.gpu.global.add.u64 [%rd5], 1;
$end:
  )";
  };
  const cuda::Grid three{3, 32, 0};
  check(works(blocks("2"), three, emulator::Kind::cooperative), "all signals are waited for");
  expect_error(blocks("1"), "a race: read after a write", three, emulator::Kind::cooperative);
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
      "deadlock", {2, 32, 0}, emulator::Kind::cooperative);
  expect_error("cp.async.cg.shared.global [rotcell_shared], [%rd1], 16, 0; ret;",
               "before its copies have arrived", {1, 1, 1024});
}

}  // namespace

int main() {
  test_integers();
  test_vectors();
  test_floats();
  test_shuffles();
  test_tensor_cores();
  test_lanes_that_part();
  test_signals();
  test_races();
  test_errors();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
