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
  Scheduler(Launch& launch, unsigned blocks)
      : launch_(launch), alive_(size_t{blocks} * warps_of_block()) {
    const size_t words = launch.kernel->words * size_t{blocks} * warps_of_block();
    // Kept from launch to launch: the system would clear it each time.
    static std::vector<uint32_t> registers;
    if (registers.size() < words) registers.resize(words);
    registers_ = registers.data();
  }

  void add_block(unsigned index, Cluster& cluster) {
    Block& block = blocks_.emplace_back(Block{&launch_, &cluster, index, {}, 0, 0, {}, {}});
    // As registers are: NaNs.
    block.shared.assign(launch_.grid.shared_bytes, 0xff);
    block.accesses.resize((block.shared.size() + 1) / 2);
    cluster.before_arrivals.resize(alive_);
    cluster.blocks.push_back(&block);
    for (unsigned i = 0; i < warps_of_block(); ++i) {
      const auto place = static_cast<uint32_t>(warps_.size());
      block.warps.push_back(&warps_.emplace_back(block, i, place, alive_, registers_));
      registers_ += launch_.kernel->words;
    }
  }

  uint32_t warps() const { return static_cast<uint32_t>(warps_.size()); }

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
    instruction.was_executed |= active != 0;
    switch (operation.flow) {
      case Flow::next:
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
    warp.state = State::at_block_barrier;
    if (++block.at_barrier < block.warps.size()) return;
    block.at_barrier = 0;
    Clock before = warp.clock;
    for (const Warp* each : block.warps) join(before, each->clock);
    for (Warp* each : block.warps) {
      each->state = State::ready;
      each->clock = before;
      each->tick();
    }
  }

  static void arrive_at_cluster(Warp& warp, uint32_t active) {
    need_whole_warp(warp, active);
    Cluster& cluster = *warp.block.cluster;
    if (cluster.completed < warp.cluster_arrivals)
      warp.fail("arrives at a cluster barrier before it has waited for the last");
    ++warp.cluster_arrivals;
    join(cluster.before_arrivals, warp.clock);
    warp.tick();
    if (++cluster.arrived < warp.block.warps.size() * cluster.blocks.size()) return;
    cluster.arrived = 0;
    cluster.before = cluster.before_arrivals;
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
    if (cluster.completed > 0) join(warp.clock, cluster.before);
    warp.state = State::ready;
    return true;
  }

  // Others get their turn when there was nothing new.
  static void acquire(Warp& warp, const Instruction& instruction, uint32_t active) {
    instruction.operation->run(warp, instruction, active);
    if (active != 0 && warp.saw_nothing_new) warp.state = State::polling;
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
  size_t alive_;         // warps
  uint32_t* registers_;  // of the next warp
  std::deque<Block> blocks_;
  std::deque<Warp> warps_;
};

void run_trap(Warp& warp, const Instruction&, uint32_t active) {
  if (active != 0) warp.fail("a trap");
}

}  // namespace

void run(const Kernel& kernel, const char* name, emulator::Kind kind, const cuda::Grid& grid,
         const void* parameters) {
  Launch launch{name, kind, &kernel, grid, static_cast<const unsigned char*>(parameters)};
  if (kernel.most_threads != 0 && grid.threads > kernel.most_threads)
    cuda::launch_failed(name, grid, "too many resources requested for launch");
  const unsigned at_once = kind == emulator::Kind::ordinary ? 1 : grid.blocks;
  for (unsigned first = 0; first < grid.blocks; first += at_once) {
    std::deque<Cluster> clusters(at_once / grid.cluster);
    Scheduler scheduler(launch, at_once);
    for (unsigned i = 0; i < at_once; ++i)
      scheduler.add_block(first + i, clusters[i / grid.cluster]);
    scheduler.run();
    launch.first_warp += scheduler.warps();
  }
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
