#include "ptx/races.h"

#include "ptx/warp.h"

namespace rotcell::ptx {

void join(Clock& clock, const Clock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

const char* conflict(Accesses* first, size_t count, Access access, const Accessor& accessor) {
  const Moment now = accessor.now;
  for (Accesses* it = first; it != first + count; ++it) {
    if (it->is_copied) return "a place to which a copy is under way";
    if (it->write != now && !accessor.is_after(it->write)) {
      return access == Access::read ? "a race: read after a write of another warp"
                                    : "a race: write after a write of another warp";
    }
    if (access == Access::write) {
      if (!accessor.is_after(it->read) || !accessor.is_after(it->other_read))
        return "a race: write after a read of another warp";
      it->write = now;
    } else if (it->read != now) {
      if (it->read.warp() != now.warp()) it->other_read = it->read;
      it->read = now;
    }
  }
  return nullptr;
}

void Warp::check(Accesses* first, size_t count, Access access) const {
  const Accessor accessor{{id, clock[place]}, clock, block.launch->first_warp};
  if (const char* found = conflict(first, count, access, accessor)) fail(found);
}

unsigned char* Warp::shared(uint64_t address, size_t bytes, Access access) const {
  unsigned char* memory = shared(address, bytes);
  check(block.accesses.data() + address / 2, (bytes + 1) / 2, access);
  return memory;
}

unsigned char* Warp::shared_in_cluster(uint64_t address, size_t bytes, Access access) const {
  const uint64_t rank = (address >> rank_shift) - 1;
  if (rank >= block.cluster->blocks.size()) fail("no such block in the cluster");
  Block& other = *block.cluster->blocks[rank];
  if (other.exited > 0) fail("a write to a block that has exited");
  const uint64_t offset = address & ((uint64_t{1} << rank_shift) - 1);
  shared(offset, bytes);  // all blocks have as much
  check(other.accesses.data() + offset / 2, (bytes + 1) / 2, access);
  return other.shared.data() + offset;
}

unsigned char* Warp::global(uint64_t address, size_t bytes, Access access) const {
  unsigned char* memory = global(address, bytes);
  block.launch->accesses.each(address, bytes,
                              [&](Accesses* first, size_t count) { check(first, count, access); });
  return memory;
}

unsigned char* Warp::generic(uint64_t address, size_t bytes, Access access) const {
  return address & shared_window ? shared(address ^ shared_window, bytes, access)
                                 : global(address, bytes, access);
}

void Warp::mark_copy(uint64_t address, size_t bytes, bool is_under_way) const {
  Accesses* first = block.accesses.data() + address / 2;
  for (size_t i = 0; i < (bytes + 1) / 2; ++i) first[i].is_copied = is_under_way;
}

}  // namespace rotcell::ptx
