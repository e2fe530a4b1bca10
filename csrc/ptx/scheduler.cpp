#include "ptx/scheduler.h"

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>

#include "ptx/operations.h"
#include "ptx/warp.h"

namespace rotcell::ptx {
namespace {

// The warps that are alive: those of one block, or of all.
class Scheduler {
 public:
  Scheduler(Launch& launch, unsigned blocks) : launch_(launch) {
    const size_t words = launch.kernel->words * size_t{blocks} * warps_of_block();
    // Kept from launch to launch: the system would clear it each time.
    static std::vector<uint32_t> registers;
    if (registers.size() < words) registers.resize(words);
    registers_ = registers.data();
  }

  void add_block(unsigned index, Cluster& cluster) {
    Block& block = blocks_.emplace_back(Block{&launch_, &cluster, index, {}, 0, 0, {}});
    // As registers are: NaNs.
    block.shared.assign(launch_.grid.shared_bytes, 0xff);
    cluster.blocks.push_back(&block);
    for (unsigned i = 0; i < warps_of_block(); ++i) {
      block.warps.push_back(&warps_.emplace_back(block, i, registers_));
      registers_ += launch_.kernel->words;
    }
  }

  // Warps take turns, each until it has to wait.
  void run() {
    for (bool progress = true; progress;) {
      progress = false;
      bool alive = false;
      for (Warp& warp : warps_) {
        if (warp.state == State::exited) continue;
        alive = true;
        progress |= take_turn(warp);
      }
      if (!alive) return;
    }
    fail_deadlocked();
  }

  const std::deque<Warp>& warps() const { return warps_; }

 private:
  unsigned warps_of_block() const { return (launch_.grid.threads + warp_size - 1) / warp_size; }

  // Whether the warp did anything new.
  bool take_turn(Warp& warp) {
    if (warp.state == State::at_block_barrier) return false;
    if (warp.state == State::at_cluster_barrier && !leave_cluster_barrier(warp)) return false;
    const bool polls = warp.state == State::polling;
    warp.state = State::ready;
    while (warp.state == State::ready) step(warp);
    return !(polls && warp.state == State::polling);
  }

  void step(Warp& warp) {
    Fragment& fragment = warp.fragments.back();
    const Instruction& instruction =
        launch_.kernel->instructions[static_cast<size_t>(fragment.instruction)];
    const Operation& operation = *instruction.operation;
    uint32_t active = fragment.lanes;
    if (instruction.is_guarded) {
      const uint32_t mask = warp.mask(instruction.guard);
      active &= instruction.guard_negated ? ~mask : mask;
    }
    ++warp.counts.instructions[static_cast<size_t>(operation.kind)];
    follow_loads(warp, instruction, active);
    if (operation.flow != Flow::next && operation.flow != Flow::branch) await_loads(warp);
    switch (operation.flow) {
      case Flow::next:
      case Flow::wait:
        operation.run(warp, instruction, active);
        ++fragment.instruction;
        break;
      case Flow::branch:
        return branch(warp, instruction, active);
      case Flow::exit:
        return exit(warp, active);
      case Flow::block_barrier:
        meet_block(warp, active);
        ++fragment.instruction;
        break;
      case Flow::cluster_arrive:
        arrive_at_cluster(warp, active);
        ++fragment.instruction;
        break;
      case Flow::cluster_wait:
        wait_for_cluster(warp, active);
        ++fragment.instruction;
        break;
      case Flow::acquire:
        acquire(warp, instruction, active);
        ++fragment.instruction;
        break;
    }
    if (warp.fragments.size() > 1) settle(warp);
  }

  // What is made is there when what it is made of is; a load, one trip later.
  static void follow_loads(Warp& warp, const Instruction& instruction, uint32_t active) {
    const Operation& operation = *instruction.operation;
    const size_t written = static_cast<size_t>(operation.written);
    int64_t last = warp.counts.trips;
    for (size_t i = written; i < instruction.operands.size(); ++i) {
      const Operand& operand = instruction.operands[i];
      if (!operand.is_constant) last = std::max(last, warp.arrives[operand.index]);
    }
    if (!operation.copies) warp.needed = std::max(warp.needed, last);
    const int64_t made = operation.fetches ? last + 1 : last;
    for (size_t i = 0; i < written; ++i) {
      int64_t& arrives = warp.arrives[instruction.operands[i].index];
      // Other lanes may still wait for what they loaded into the same register.
      arrives = active == warp.present ? made : std::max(arrives, made);
    }
  }

  // Whatever was needed so far has been waited for.
  static void await_loads(Warp& warp) {
    warp.counts.trips = std::max(warp.counts.trips, warp.needed);
  }

  // Those furthest behind run first, so that lanes come together where their ways do.
  static void settle(Warp& warp) {
    auto& fragments = warp.fragments;
    std::sort(fragments.begin(), fragments.end(),
              [](const Fragment& a, const Fragment& b) { return a.instruction > b.instruction; });
    size_t last = 0;
    for (size_t i = 1; i < fragments.size(); ++i) {
      if (fragments[i].instruction == fragments[last].instruction) {
        fragments[last].lanes |= fragments[i].lanes;
      } else {
        fragments[++last] = fragments[i];
      }
    }
    fragments.resize(last + 1);
  }

  static void branch(Warp& warp, const Instruction& instruction, uint32_t taken) {
    Fragment& fragment = warp.fragments.back();
    if (instruction.is_guarded)
      warp.counts.trips = std::max(warp.counts.trips, warp.arrives[instruction.guard.index]);
    if (taken != 0 && instruction.target <= fragment.instruction) await_loads(warp);
    const uint32_t others = fragment.lanes & ~taken;
    if (others == 0) {
      fragment.instruction = instruction.target;
    } else {
      fragment = {fragment.instruction + 1, others};
      if (taken != 0) warp.fragments.push_back({instruction.target, taken});
    }
    if (warp.fragments.size() > 1) settle(warp);
  }

  static void exit(Warp& warp, uint32_t active) {
    Fragment& fragment = warp.fragments.back();
    if (!warp.copies.empty()) warp.fail("a thread exits before its copies have arrived");
    fragment.lanes &= ~active;
    ++fragment.instruction;
    if (fragment.lanes == 0) warp.fragments.pop_back();
    if (warp.fragments.empty()) {
      warp.state = State::exited;
      ++warp.block.exited;
    } else {
      settle(warp);
    }
  }

  static void need_whole_warp(const Warp& warp, uint32_t active) {
    if (active != warp.present) warp.fail("a barrier that not all lanes of the warp come to");
  }

  void meet_block(Warp& warp, uint32_t active) {
    need_whole_warp(warp, active);
    Block& block = warp.block;
    ++warp.counts.block_barriers;
    warp.polled = nullptr;
    warp.state = State::at_block_barrier;
    if (++block.at_barrier < block.warps.size()) return;
    block.at_barrier = 0;
    int64_t trips = 0;
    for (const Warp* each : block.warps) trips = std::max(trips, each->counts.trips);
    for (Warp* each : block.warps) {
      each->state = State::ready;
      each->counts.trips = trips;
    }
  }

  static void arrive_at_cluster(Warp& warp, uint32_t active) {
    need_whole_warp(warp, active);
    Cluster& cluster = *warp.block.cluster;
    if (cluster.completed < warp.cluster_arrivals)
      warp.fail("arrives at a cluster barrier before it has waited for the last");
    ++warp.counts.cluster_barriers;
    ++warp.cluster_arrivals;
    cluster.trips_of_arrived = std::max(cluster.trips_of_arrived, warp.counts.trips);
    if (++cluster.arrived < warp.block.warps.size() * cluster.blocks.size()) return;
    cluster.arrived = 0;
    cluster.trips = cluster.trips_of_arrived;
    ++cluster.completed;
  }

  static void wait_for_cluster(Warp& warp, uint32_t active) {
    need_whole_warp(warp, active);
    warp.state = State::at_cluster_barrier;
    leave_cluster_barrier(warp);
  }

  // Whether all have come.
  static bool leave_cluster_barrier(Warp& warp) {
    const Cluster& cluster = *warp.block.cluster;
    if (cluster.completed < warp.cluster_arrivals) return false;
    warp.counts.trips = std::max(warp.counts.trips, cluster.trips);
    warp.state = State::ready;
    return true;
  }

  // Asking again counts for nothing: how often that happens is a matter of time.
  static void acquire(Warp& warp, const Instruction& instruction, uint32_t active) {
    if (warp.polled == &instruction) {
      warp.counts = warp.before_poll;
    } else {
      ++warp.counts.waits;
      warp.before_poll = warp.counts;
    }
    instruction.operation->run(warp, instruction, active);
    const int lane = std::countr_zero(active);
    const uint64_t found = lane < warp_size ? warp.number(instruction.operands[0], lane) : 0;
    if (warp.polled == &instruction && warp.found == found) warp.state = State::polling;
    warp.polled = &instruction;
    warp.found = found;
  }

  [[noreturn]] void fail_deadlocked() const {
    std::map<State, int> waiting;
    const Warp* stuck = nullptr;
    for (const Warp& warp : warps_) {
      if (warp.state == State::exited) continue;
      if (stuck == nullptr) stuck = &warp;
      ++waiting[warp.state];
    }
    stuck->fail(
        "deadlock (warps at a block barrier: " + std::to_string(waiting[State::at_block_barrier]) +
        ", at a cluster barrier: " + std::to_string(waiting[State::at_cluster_barrier]) +
        ", waiting for signals: " + std::to_string(waiting[State::polling]) + ")");
  }

  Launch& launch_;
  uint32_t* registers_;  // of the next warp
  std::deque<Block> blocks_;
  std::deque<Warp> warps_;
};

void run_trap(Warp& warp, const Instruction&, uint32_t active) {
  if (active != 0) warp.fail("a trap");
}

}  // namespace

LaunchCounts run(const Kernel& kernel, const char* name, simt::Kind kind, const cuda::Grid& grid,
                 const void* parameters) {
  Launch launch{name, kind, &kernel, grid, static_cast<const unsigned char*>(parameters), {}, {}};
  if (kernel.most_threads != 0 && grid.threads > kernel.most_threads)
    cuda::launch_failed(name, grid, "too many resources requested for launch");
  LaunchCounts counts{name, grid, {}};
  const unsigned at_once = kind == simt::Kind::ordinary ? 1 : grid.blocks;
  for (unsigned first = 0; first < grid.blocks; first += at_once) {
    std::deque<Cluster> clusters(at_once / grid.cluster);
    Scheduler scheduler(launch, at_once);
    for (unsigned i = 0; i < at_once; ++i)
      scheduler.add_block(first + i, clusters[i / grid.cluster]);
    scheduler.run();
    for (const Warp& warp : scheduler.warps()) counts.warps.push_back(warp.counts);
  }
  return counts;
}

void add_control(Operations& o) {
  o["bra"] = o["bra.uni"] = {nullptr, Kind::branch, {}, 0, Flow::branch};
  o["ret"] = {nullptr, Kind::branch, {}, 0, Flow::exit};
  o["bar.sync"] =
      o["barrier.sync"] = {nullptr, Kind::barrier, {Width::four}, 0, Flow::block_barrier};
  o["trap"] = {run_trap, Kind::branch, {}, 0};
  o["barrier.cluster.arrive.release"] = {nullptr, Kind::barrier, {}, 0, Flow::cluster_arrive};
  o["barrier.cluster.wait.acquire"] = {nullptr, Kind::barrier, {}, 0, Flow::cluster_wait};
}

}  // namespace rotcell::ptx
