#include "simt/recording.h"

#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

namespace rotcell::simt {
namespace {

struct Capture {
  cuda::Stream stream;
  Recording recording;
};

std::mutex lock;
std::optional<Capture> under_way;

}  // namespace

void begin_recording(cuda::Stream stream) {
  const std::lock_guard guard(lock);
  if (under_way) throw std::runtime_error("rotcell: a stream is captured already");
  under_way = Capture{stream, {}};
}

Recording end_recording(cuda::Stream stream) {
  const std::lock_guard guard(lock);
  if (!under_way || under_way->stream != stream) {
    throw std::runtime_error("rotcell: the stream is not captured");
  }
  Recording recording = std::move(under_way->recording);
  under_way.reset();
  return recording;
}

bool is_recording(cuda::Stream stream) {
  const std::lock_guard guard(lock);
  return under_way && under_way->stream == stream;
}

void run_in_order(cuda::Stream stream, const std::function<void()>& work) {
  {
    const std::lock_guard guard(lock);
    if (under_way && under_way->stream == stream) {
      under_way->recording.push_back(work);
      return;
    }
  }
  work();
}

}  // namespace rotcell::simt
