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
  if constexpr (space == Space::global) return warp.global(address, bytes);
  if constexpr (space == Space::generic) return warp.generic(address, bytes);
  return warp.shared(address, bytes);
}

template <Space space>
unsigned char* place_to_write(const Warp& warp, uint64_t address, size_t bytes) {
  if constexpr (space == Space::global) return warp.global(address, bytes);
  if constexpr (space == Space::generic) return warp.generic(address, bytes);
  if constexpr (space == Space::cluster) return warp.shared_in_cluster(address, bytes);
  return warp.shared(address, bytes);
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
    o[load + suffix].fetches = is_global<space>;
  }
  if constexpr (space != Space::parameter) {
    if (!store.empty()) o[store + suffix] = {run_store<space, T, count>, kind_of<space>, stored, 0};
  }
}

template <Space space, class T>
void add_numbers(Operations& o, const std::string& load, const std::string& store,
                 const std::string& type) {
  add_accesses<space, T, 1>(o, load, store, "." + type);
  if constexpr (sizeof(T) >= 4) add_accesses<space, T, 2>(o, load, store, ".v2." + type);
  if constexpr (sizeof(T) == 4) add_accesses<space, T, 4>(o, load, store, ".v4." + type);
}

template <Space space>
void add_space(Operations& o, const std::string& load, const std::string& store) {
  add_numbers<space, uint8_t>(o, load, store, "u8");
  add_numbers<space, uint16_t>(o, load, store, "u16");
  add_numbers<space, int32_t>(o, load, store, "s32");
  for (const char* type : {"u32", "b32", "f32"}) add_numbers<space, uint32_t>(o, load, store, type);
  for (const char* type : {"u64", "b64", "f64"}) add_numbers<space, uint64_t>(o, load, store, type);
}

// The place holds NaNs until the copies are waited for.
void run_copy(Warp& warp, const Instruction& instruction, uint32_t active) {
  constexpr size_t bytes = 16;
  for_lanes(active, [&](int lane) {
    const uint64_t to = warp.address(instruction.operands[0], lane);
    const bool exists = warp.from<uint32_t>(instruction.operands[3])[lane] != 0;
    const uint64_t from = warp.address(instruction.operands[1], lane);
    std::memset(warp.shared(to, bytes), 0xff, bytes);
    warp.copies.push_back({lane, warp.groups[lane], to, exists ? warp.global(from, bytes) : nullptr,
                           exists, warp.counts.trips + 1});
  });
}

void run_commit(Warp& warp, const Instruction&, uint32_t active) {
  for_lanes(active, [&](int lane) { ++warp.groups[lane]; });
}

void run_wait(Warp& warp, const Instruction& instruction, uint32_t active) {
  const uint32_t groups_left = *warp.from<uint32_t>(instruction.operands[0]);
  std::erase_if(warp.copies, [&](const Copy& copy) {
    const bool waits = active >> copy.lane & 1;
    if (!waits || copy.group + groups_left >= warp.groups[copy.lane]) return false;
    unsigned char* to = warp.shared(copy.to, 16);
    if (copy.exists) {
      std::memcpy(to, copy.from, 16);
    } else {
      std::memset(to, 0, 16);
    }
    warp.counts.trips = std::max(warp.counts.trips, copy.arrives);
    return true;
  });
}

// With a register to be written, or without one: what was there before.
template <class T, int written>
void run_signal(Warp& warp, const Instruction& instruction, uint32_t active) {
  for_lanes(active, [&](int lane) {
    const uint64_t at = warp.address(instruction.operands[written], lane);
    T value;
    unsigned char* counter = warp.global(at, sizeof value);
    std::memcpy(&value, counter, sizeof value);
    const T sum = value + warp.from<T>(instruction.operands[written + 1])[lane];
    std::memcpy(counter, &sum, sizeof sum);
    if constexpr (written == 1) warp.to<T>(instruction.operands[0])[lane] = value;
    int64_t& trips = warp.block.launch->signalled[at];
    trips = std::max(trips, warp.counts.trips);
  });
}

// One trip after what was signalled. The scheduler sees to it that others get their turn.
template <class T>
void run_acquire(Warp& warp, const Instruction& instruction, uint32_t active) {
  for_lanes(active, [&](int lane) {
    const uint64_t at = warp.address(instruction.operands[1], lane);
    T& value = warp.to<T>(instruction.operands[0])[lane];
    std::memcpy(&value, warp.global(at, sizeof value), sizeof value);
    const int64_t signalled = warp.block.launch->signalled[at];
    warp.counts.trips = std::max(warp.counts.trips, signalled) + 1;
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
  o["cp.async.wait_group"] = {run_wait, Kind::barrier, {four}, 0, Flow::wait};
  o["red.release.gpu.global.add.u64"] = {
      run_signal<uint64_t, 0>, Kind::global, {address, eight}, 0};
  o["ld.acquire.gpu.global.u64"] = {
      run_acquire<uint64_t>, Kind::global, {eight, address}, 1, Flow::acquire};
  // Of barriers of the grid. Their counter has a generic address, but is not in shared memory.
  o["atom.add.release.gpu.u32"] = {run_signal<uint32_t, 1>, Kind::global, {four, address, four}};
  o["atom.add.release.gpu.u32"].fetches = true;
  o["ld.acquire.gpu.u32"] = {
      run_acquire<uint32_t>, Kind::global, {four, address}, 1, Flow::acquire};
}

}  // namespace rotcell::ptx
