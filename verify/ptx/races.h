// Notices accesses to the same memory, one of them a write, that nothing orders: neither the
// program of a warp, nor a barrier of the block or cluster, nor a signal that was waited for.
// Lanes of one warp count as one: verify/emulator looks at these.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace rotcell::ptx {

// How much of each warp that is alive has happened before (a vector clock).
using Clock = std::vector<uint32_t>;

void join(Clock& clock, const Clock& other);

// A point in the life of a warp: its number and clock. 0 is before the launch.
class Moment {
 public:
  Moment() = default;
  Moment(uint32_t warp, uint32_t clock) : bits_(uint64_t{warp} << 32 | clock) {}
  uint32_t warp() const { return static_cast<uint32_t>(bits_ >> 32); }
  uint32_t clock() const { return static_cast<uint32_t>(bits_); }
  bool is_set() const { return bits_ != 0; }
  bool operator==(const Moment&) const = default;

 private:
  uint64_t bits_ = 0;
};

// The last accesses to two bytes. Of reads, those of two warps: a writer is not both.
struct Accesses {
  Moment write, read, other_read;
  bool is_copied = false;  // an asynchronous copy to it is active
};

enum class Access : uint8_t { read, write };

// Who accesses: a warp that is alive, whose clock is of those from `first` on.
struct Accessor {
  Moment now;
  const Clock& clock;
  uint32_t first;

  bool is_after(Moment moment) const {
    if (!moment.is_set() || moment.warp() == now.warp()) return true;
    const uint32_t index = moment.warp() - first;
    return moment.warp() >= first && index < clock.size() && clock[index] >= moment.clock();
  }
};

// What an access must not meet; null if it meets nothing.
const char* conflict(Accesses* first, size_t count, Access access, const Accessor& accessor);

// The accesses to global memory, by address.
class GlobalAccesses {
 public:
  // Calls f(first, count) for the places of these bytes.
  template <class F>
  void each(uint64_t address, size_t bytes, F f) {
    for (uint64_t at = address / 2, end = (address + bytes + 1) / 2; at < end;) {
      const uint64_t page = at / page_size, offset = at % page_size;
      const uint64_t count = std::min(end - at, page_size - offset);
      f(page_at(page) + offset, static_cast<size_t>(count));
      at += count;
    }
  }

 private:
  static constexpr uint64_t page_size = 2048;

  Accesses* page_at(uint64_t page) {
    if (page != last_page_ || last_ == nullptr) {
      auto& found = pages_[page];
      if (found == nullptr) found = std::make_unique<Accesses[]>(page_size);
      last_page_ = page;
      last_ = found.get();
    }
    return last_;
  }

  std::unordered_map<uint64_t, std::unique_ptr<Accesses[]>> pages_;
  uint64_t last_page_ = 0;
  Accesses* last_ = nullptr;
};

// The signals that a counter has got, in order: what had happened before each, with those before.
struct Signals {
  uint64_t before = 0;  // its value at first
  std::vector<uint64_t> values;
  std::vector<Clock> clocks;
  std::vector<Moment> moments;
};

}  // namespace rotcell::ptx
