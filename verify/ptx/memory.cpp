// Loads, stores, asynchronous copies and signals. Pointers in parameters are those of the host, and
// so are global addresses; those of shared memory begin at 0.
#include <algorithm>
#include <cstring>

#include "ptx/each_lane.h"
#include "ptx/operations.h"

namespace rotcell::ptx {
namespace {

enum class Space { parameter, global, generic, shared, cluster };

template <Space space>
constexpr bool is_global = space == Space::global || space == Space::generic;

template <Space space>
constexpr Kind kind_of = is_global<space>            ? Kind::global
                         : space == Space::parameter ? Kind::integer
                                                     : Kind::shared;

template <Space space>
const unsigned char* place_to_read(const Warp& warp, uint64_t address, size_t bytes) {
  if constexpr (space == Space::parameter) return warp.parameter(address, bytes);
  if constexpr (space == Space::global) return warp.global(address, bytes, Access::read);
  if constexpr (space == Space::generic) return warp.generic(address, bytes, Access::read);
  return warp.shared(address, bytes, Access::read);
}

template <Space space>
unsigned char* place_to_write(const Warp& warp, uint64_t address, size_t bytes) {
  const Access write = Access::write;
  if constexpr (space == Space::global) return warp.global(address, bytes, write);
  if constexpr (space == Space::generic) return warp.generic(address, bytes, write);
  if constexpr (space == Space::cluster) return warp.shared_in_cluster(address, bytes, write);
  return warp.shared(address, bytes, write);
}

// Numbers shorter than their registers are extended, by their sign if they have one.
template <Space space, class T, int count>
void run_load(Warp& warp, const Instruction& instruction, uint32_t active) {
  const Operand& address = instruction.operands[count];
  for_lanes(active, [&](int lane) {
    const uint64_t at = warp.address(address, lane);
    const unsigned char* from = place_to_read<space>(warp, at, count * sizeof(T));
    for (int i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, from + static_cast<size_t>(i) * sizeof(T), sizeof(T));
      const Operand& to = instruction.operands[static_cast<size_t>(i)];
      if (to.width == Width::eight) {
        warp.to<uint64_t>(to)[lane] = static_cast<uint64_t>(value);
      } else {
        warp.to<uint32_t>(to)[lane] = static_cast<uint32_t>(value);
      }
    }
  });
}

template <Space space, class T, int count>
void run_store(Warp& warp, const Instruction& instruction, uint32_t active) {
  for_lanes(active, [&](int lane) {
    const uint64_t at = warp.address(instruction.operands[0], lane);
    unsigned char* to = place_to_write<space>(warp, at, count * sizeof(T));
    for (int i = 0; i < count; ++i) {
      const T value =
          static_cast<T>(warp.from<T>(instruction.operands[static_cast<size_t>(i) + 1])[lane]);
      std::memcpy(to + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
    }
  });
}

template <Space space, class T, int count>
void add_accesses(Operations& o, const std::string& load, const std::string& store,
                  const std::string& suffix) {
  std::vector<Width> loaded(count, sizeof(T) == 8 ? Width::eight : Width::either);
  loaded.push_back(Width::either);
  std::vector<Width> stored(count, width_of<T>());
  stored.insert(stored.begin(), Width::either);
  if (!load.empty()) {
    o[load + suffix] = {run_load<space, T, count>, kind_of<space>, loaded, count};
  }
  if constexpr (space != Space::parameter) {
    if (!store.empty()) o[store + suffix] = {run_store<space, T, count>, kind_of<space>, stored, 0};
  }
}

template <Space space, class T>
void add_numbers(Operations& o, const std::string& load, const std::string& store,
                 const std::string& type) {
  add_accesses<space, T, 1>(o, load, store, "." + type);
  add_accesses<space, T, 2>(o, load, store, ".v2." + type);
  if constexpr (sizeof(T) <= 4) add_accesses<space, T, 4>(o, load, store, ".v4." + type);
}

template <Space space>
void add_space(Operations& o, const std::string& load, const std::string& store) {
  add_numbers<space, uint8_t>(o, load, store, "u8");
  add_numbers<space, uint16_t>(o, load, store, "u16");
  add_numbers<space, int32_t>(o, load, store, "s32");
  for (const char* type : {"u32", "b32", "f32"}) add_numbers<space, uint32_t>(o, load, store, type);
  for (const char* type : {"u64", "b64", "f64"}) add_numbers<space, uint64_t>(o, load, store, type);
}

constexpr size_t copy_bytes = 16;

// No access is allowed until the copies have been waited for.
void run_copy(Warp& warp, const Instruction& instruction, uint32_t active) {
  for_lanes(active, [&](int lane) {
    const uint64_t to = warp.address(instruction.operands[0], lane);
    const bool exists = warp.from<uint32_t>(instruction.operands[3])[lane] != 0;
    const uint64_t from = warp.address(instruction.operands[1], lane);
    std::memset(warp.shared(to, copy_bytes, Access::write), 0xff, copy_bytes);
    warp.mark_copy(to, copy_bytes, true);
    if (exists) warp.global(from, copy_bytes, Access::read);
    warp.copies.push_back({lane, warp.groups[lane], to, from, exists});
  });
}

void run_commit(Warp& warp, const Instruction&, uint32_t active) {
  for_lanes(active, [&](int lane) { ++warp.groups[lane]; });
}

// The copy reads and writes its memory when it is waited for, which is as late as it may.
void run_wait(Warp& warp, const Instruction& instruction, uint32_t active) {
  const uint32_t groups_left = *warp.from<uint32_t>(instruction.operands[0]);
  std::erase_if(warp.copies, [&](const Copy& copy) {
    const bool waits = active >> copy.lane & 1;
    if (!waits || copy.group + groups_left >= warp.groups[copy.lane]) return false;
    warp.mark_copy(copy.to, copy_bytes, false);
    unsigned char* to = warp.shared(copy.to, copy_bytes, Access::write);
    if (copy.exists) {
      std::memcpy(to, warp.global(copy.from, copy_bytes, Access::read), copy_bytes);
    } else {
      std::memset(to, 0, copy_bytes);
    }
    return true;
  });
}

// Releases: a warp that sees the signal knows all that this warp knows.
void run_signal(Warp& warp, const Instruction& instruction, uint32_t active) {
  for_lanes(active, [&](int lane) {
    const uint64_t at = warp.address(instruction.operands[0], lane);
    uint64_t value;
    unsigned char* counter = warp.global(at, sizeof value);
    std::memcpy(&value, counter, sizeof value);
    Signals& signals = warp.block.launch->signals[at];
    if (signals.values.empty()) signals.before = value;
    value += warp.from<uint64_t>(instruction.operands[1])[lane];
    std::memcpy(counter, &value, sizeof value);
    Clock clock = warp.clock;
    if (!signals.clocks.empty()) join(clock, signals.clocks.back());
    signals.values.push_back(value);
    signals.clocks.push_back(std::move(clock));
    signals.moments.emplace_back(warp.id, warp.clock[warp.place]);
    warp.tick();
  });
}

// A GPU may show a signal late, so a warp that polls again sees one more signal than before, and
// learns only what came with that signal. It keeps what it already knows.
void run_acquire(Warp& warp, const Instruction& instruction, uint32_t active) {
  warp.saw_nothing_new = true;
  for_lanes(active, [&](int lane) {
    const uint64_t at = warp.address(instruction.operands[1], lane);
    uint64_t& value = warp.to<uint64_t>(instruction.operands[0])[lane];
    std::memcpy(&value, warp.global(at, sizeof value), sizeof value);
    const auto found = warp.block.launch->signals.find(at);
    if (found == warp.block.launch->signals.end()) return;
    const Signals& signals = found->second;
    const Accessor accessor{{}, warp.clock, warp.block.launch->first_warp};
    size_t& seen = warp.seen_signals[at];
    const size_t before = seen, all = signals.values.size();
    while (seen < all && accessor.is_after(signals.moments[seen])) ++seen;
    if (seen < all) {
      ++seen;
      join(warp.clock, signals.clocks[seen - 1]);
    }
    value = seen == 0 ? signals.before : signals.values[seen - 1];
    warp.saw_nothing_new &= seen == before;
  });
}

}  // namespace

void add_memory(Operations& o) {
  add_space<Space::parameter>(o, "ld.param", "");
  add_space<Space::global>(o, "ld.global", "st.global");
  add_space<Space::global>(o, "ld.global.cg", "");
  add_space<Space::generic>(o, "ld", "st");
  add_space<Space::shared>(o, "ld.shared", "st.shared");
  add_space<Space::cluster>(o, "", "st.shared::cluster");
  o["mapa.shared::cluster.u32"] = each_lane<uint32_t, uint32_t, uint32_t>(
      Kind::integer, [](uint32_t a, uint32_t rank) { return a | (rank + 1) << rank_shift; });

  const Width four = Width::four, eight = Width::eight, address = Width::either;
  o["cp.async.cg.shared.global"] = {run_copy, Kind::global, {address, address, four, four}, 0};
  o["cp.async.commit_group"] = {run_commit, Kind::barrier, {}, 0};
  o["cp.async.wait_group"] = {run_wait, Kind::barrier, {four}, 0};
  o["red.release.gpu.global.add.u64"] = {run_signal, Kind::global, {address, eight}, 0};
  o["ld.acquire.gpu.global.u64"] = {run_acquire, Kind::global, {eight, address}, 1, Flow::acquire};
}

}  // namespace rotcell::ptx
