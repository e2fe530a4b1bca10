// Captured streams: what is launched into one runs when its graph does, and not before.
#include <stdexcept>

#include "simt/recording.h"
#include "tests/executor/check.h"

namespace rotcell::tests {
namespace {

ROTCELL_GLOBAL void add(Output p) { p.out[threadIdx.x] += static_cast<float>(p.size); }

void launch_add(cuda::Stream stream, Buffer<float>& values, int number) {
  cuda::launch("add", add, {1, 2, 0}, stream, {values.data(), number});
}

bool throws(void (*body)(cuda::Stream), cuda::Stream stream) {
  try {
    body(stream);
    return false;
  } catch (const std::runtime_error&) {
    return true;
  }
}

}  // namespace

void test_captures() {
  char place[2];
  const auto stream = reinterpret_cast<cuda::Stream>(&place[0]);
  const auto other = reinterpret_cast<cuda::Stream>(&place[1]);
  Buffer<float> values(2);
  values[0] = values[1] = 1;
  const int64_t before = simt::launches();

  simt::begin_recording(stream);
  check(simt::is_recording(stream) && !simt::is_recording(other), "one stream is captured");
  launch_add(stream, values, 10);
  launch_add(stream, values, 20);
  check(values[0] == 1 && simt::launches() == before, "what is captured does not run");
  launch_add(other, values, 1);
  check(values[1] == 2, "what goes into another stream runs at once");
  check(throws(simt::begin_recording, other), "one capture at a time");
  const simt::Recording recording = simt::end_recording(stream);
  check(recording.size() == 2 && values[0] == 2, "the end of a capture runs nothing");

  values[0] = 100;
  for (const auto& work : recording) work();
  check(values[0] == 130, "a graph works on what is at its addresses when it runs");
  for (const auto& work : recording) work();
  check(values[1] == 62 && simt::launches() == before + 5, "a graph runs again");

  launch_add(stream, values, 1);
  check(values[1] == 63, "after the capture the stream runs again");
  check(throws([](cuda::Stream none) { simt::end_recording(none); }, stream),
        "the end of a capture that is none");
}

}  // namespace rotcell::tests
