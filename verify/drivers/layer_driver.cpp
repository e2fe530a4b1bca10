// Runs whole layer calls of the CPU runtime without torch, on the driver's threads, so that
// sanitizers see plans, buffers, packing, threads and the worker of forked processes as well as the
// kernels. float results are compared with double ones, and those of several threads with those of
// one.
//
//   layer_driver [--threads]
//     threads: compute in float on several threads and compare nothing, for a sanitizer that looks
//     for races
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cpu/runtime/fork_worker.h"
#include "cpu/runtime/layer.h"
#include "cpu/runtime/plan.h"
#include "cpu/runtime/processors.h"
#include "cpu/runtime/thread_pool.h"
#include "drivers/cpu_sequences.h"

namespace {

using namespace rotcell;
using namespace rotcell::cpu;
using tests::difference;
using tests::random_values;
using tests::Results;

// The thread pool: new threads at every call.
constexpr int64_t kSeveral = 3;
int64_t offered_threads = 1;
thread_local int64_t thread_index = 0;
thread_local bool in_parallel = false;

void parallel_for(int64_t count, int64_t least, void (*body)(int64_t, int64_t, void*),
                  void* context) {
  const int64_t ranges = std::min(offered_threads, (count + least - 1) / least);
  const auto run = [=](int64_t index) {
    thread_index = index;
    in_parallel = true;
    body(count * index / ranges, count * (index + 1) / ranges, context);
    in_parallel = false;
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < ranges; ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& other : others) other.join();
}

constexpr ThreadPool kPool{.threads = [] { return offered_threads; },
                           .in_parallel = [] { return in_parallel; },
                           .parallel_for = parallel_for,
                           .thread_index = [] { return thread_index; }};

enum class Hooks { kNone, kBeforeMatmuls, kAll };

struct Case {
  int64_t batch, steps, inputs, hidden;
  int64_t outputs = 0;  // 0: no projection
  bool packed = false, reverse = false, row_bias = false;
  Hooks hooks = Hooks::kNone;
  Storage x = Storage::kFloat32;  // of calls in float

  Sequence sequence() const {
    if (!packed) return Sequence::padded(steps, batch, reverse);
    std::vector<int64_t> sizes;
    for (int64_t t = 0; t < steps; ++t) sizes.push_back(batch - (batch - 1) * t / steps);
    return Sequence::packed(std::move(sizes), reverse);
  }
};

// These values have so few bits that no rounding is needed, and none is subnormal.
std::vector<uint16_t> in_half(const std::vector<float>& values, Storage storage) {
  std::vector<uint16_t> halves;
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    const uint32_t float16 = magnitude ? sign | ((magnitude >> 13) - (112u << 10)) : sign;
    halves.push_back(static_cast<uint16_t>(storage == Storage::kBFloat16 ? bits >> 16 : float16));
  }
  halves.shrink_to_fit();
  return halves;
}

struct Threads {
  int64_t forward, backward;
};

// Null for a vector that a call does not have.
template <class T>
T* pointer_if(bool present, std::vector<T>& values) {
  return present ? values.data() : nullptr;
}

// A layer with random weights and input, and what its calls give. Every result is a heap block of
// exact size, empty where the call has no such thing.
template <class T>
class LayerRun {
 public:
  LayerRun(CellIndex index, const Case& c)
      : index_(index),
        case_(c),
        sequence_(c.sequence()),
        sizes_(layer_sizes(cell_, sequence_.tokens(), c.inputs, c.batch, c.hidden,
                           c.outputs > 0 ? c.outputs : c.hidden)) {
    for (auto* keep : {&keep_h_, &keep_c_}) {
      for (T& probability : *keep) probability = (probability + 1) / 2;
    }
    for (int64_t i = 0; i < N; ++i) resets_[i] = i % 7 == 3;
    for (int i = 0; i < cell_.parameter_count; ++i) {
      const int64_t count = cell_.parameter(i).elements(H, sizes_.input_rows, kLayers);
      parameters_.push_back(random_values<T>(count, 20 + i));
    }
    if constexpr (sizeof(T) == 4) {
      if (c.x != Storage::kFloat32) halves_ = in_half(x_, c.x);
    }
  }

  // Forward, keeping each of the things that can be kept, and backward.
  Results<T> run(Threads threads) {
    offered_threads = threads.forward;
    for (const Keep keep : {Keep::kNothing, Keep::kCellStates, Keep::kForBackward}) {
      run_forward(keep);
    }
    offered_threads = threads.backward;
    for (const bool of_cells : {false, true}) run_backward(of_cells);
    return std::move(results_);
  }

 private:
  static constexpr int64_t kLayers = 3;  // of constant rotations

  HookMasks<T> hooks() const {
    HookMasks<T> hooks;
    if (case_.hooks != Hooks::kNone) {
      hooks = {.resets = resets_.get(), .recurrent_dropout = dropout_.data()};
    }
    if (case_.hooks == Hooks::kAll) {
      hooks.zoneout_h = {keep_h_.data(), H};
      if (cell_.has_cell_state) hooks.zoneout_c = {keep_c_.data(), 0};
    }
    return hooks;
  }

  RowParameters<T> row_parameters() const {
    RowParameters<T> all{.hidden = H, .layers = kLayers, .norm = cell_.has_norm ? 1.5 : 0};
    for (size_t i = 0; i < parameters_.size(); ++i) all.of[i] = parameters_[i].data();
    if (cell_.adds_biases) all.b_ih = all.b_hh = bias_.data();
    return all;
  }

  Layer<T> layer() const {
    return {.cell = index_,
            .sizes = sizes_,
            .sequence = sequence_,
            .activations = {},
            .hooks = hooks(),
            .h0 = h0_.data(),
            .c0 = c0_.data(),
            .w_ih = w_ih_.data(),
            .w_hh = w_hh_.data(),
            .w_hr = case_.outputs > 0 ? w_hr_.data() : nullptr,
            .parameters = row_parameters()};
  }

  void run_forward(Keep keep) {
    std::vector<T> h_n(B * P), c_n(B * C);
    out_.assign(N * P, T{0});
    cells_.assign(keep == Keep::kNothing ? 0 : N * C, T{0});
    gates_.assign(keep == Keep::kForBackward ? N * G : 0, T{0});
    for (auto* exact : {&cells_, &gates_}) exact->shrink_to_fit();
    StoredRows x{x_.data(), storage_of<T>()};
    if (!halves_.empty()) x = {halves_.data(), case_.x};
    const T* matmul_bias = case_.row_bias || cell_.adds_biases ? nullptr : bias_.data();
    forward<T>({layer(), x, /*b_ih=*/matmul_bias, /*b_hh=*/matmul_bias,
                /*row_bias=*/case_.row_bias ? row_bias_.data() : nullptr, keep, out_.data(),
                h_n.data(), pointer_if(cell_.has_cell_state, c_n), gates_.data(), cells_.data()});
    results_.insert(results_.end(), {out_, h_n, c_n, gates_, cells_});
  }

  void run_backward(bool of_cells) {
    const bool projected = case_.outputs > 0, has_c = cell_.has_cell_state;
    auto grad_h = random_values<T>(B * P, 14), grad_c = random_values<T>(B * C, 15);
    std::vector<T> grad_x(N * I), grad_w_ih(G * I), grad_w_hh(G * P), grad_bias(G),
        grad_w_hr(projected ? P * H : 0), grad_row_bias(case_.row_bias ? B * G : 0);
    std::vector<std::vector<T>> grad_parameters;
    for (const auto& value : parameters_) grad_parameters.emplace_back(value.size());
    grad_parameters.emplace_back(cell_.adds_biases ? sizes_.input_rows : 0);
    RowGradients<T> of_parameters;
    for (int i = 0; i < cell_.parameter_count; ++i) of_parameters.of[i] = grad_parameters[i].data();
    of_parameters.bias = grad_parameters.back().data();
    backward<T>({layer(), x_.data(), out_.data(), gates_.data(), cells_.data(), grad_out_.data(),
                 of_cells && has_c ? grad_cells_.data() : nullptr, grad_h.data(),
                 pointer_if(has_c, grad_c), grad_x.data(), grad_w_ih.data(), grad_w_hh.data(),
                 grad_bias.data(), pointer_if(projected, grad_w_hr),
                 pointer_if(case_.row_bias, grad_row_bias), of_parameters});
    results_.insert(results_.end(), {grad_h, grad_c, grad_x, grad_w_ih, grad_w_hh, grad_bias,
                                     grad_w_hr, grad_row_bias});
    results_.insert(results_.end(), grad_parameters.begin(), grad_parameters.end());
  }

  const CellIndex index_;
  const Case& case_;
  const CellDescription& cell_ = kCells[index_];
  const Sequence sequence_;
  const LayerSizes sizes_;
  const int64_t N = sequence_.tokens(), I = case_.inputs, B = case_.batch, H = case_.hidden;
  const int64_t P = sizes_.outputs, G = cell_.rows(H), C = cell_.has_cell_state ? H : 0;
  const double scale_ = tests::weight_scale(H);
  const std::vector<T> x_ = random_values<T>(N * I, 1), h0_ = random_values<T>(B * P, 2),
                       c0_ = random_values<T>(B * C, 3),
                       w_ih_ = random_values<T>(sizes_.input_weights(), 4, scale_),
                       w_hh_ = random_values<T>(sizes_.recurrent_weights(), 5, scale_),
                       w_hr_ = random_values<T>(P * H, 6, scale_), bias_ = random_values<T>(G, 7),
                       row_bias_ = random_values<T>(B * G, 8),
                       dropout_ = random_values<T>(B * P, 9),
                       grad_out_ = random_values<T>(N * P, 10),
                       grad_cells_ = random_values<T>(N * C, 11);
  std::vector<T> keep_h_ = random_values<T>(N * H, 12), keep_c_ = random_values<T>(H, 13);
  const std::unique_ptr<bool[]> resets_{new bool[N]};
  std::vector<std::vector<T>> parameters_;  // of a row cell
  std::vector<uint16_t> halves_;            // x, if it is stored in 16 bits
  std::vector<T> out_, gates_, cells_;      // of the last forward pass
  Results<T> results_;
};

template <class T>
Results<T> run_layer(CellIndex index, const Case& c, Threads threads) {
  return LayerRun<T>(index, c).run(threads);
}

// How a call in float is planned, in words.
std::string plan_name(CellIndex index, const Case& c, int64_t threads) {
  offered_threads = threads;
  const Sequence sequence = c.sequence();
  const int64_t P = c.outputs ? c.outputs : c.hidden;
  const CallPlan plan = plan_call<float>(
      index, layer_sizes(kCells[index], sequence.tokens(), c.inputs, c.batch, c.hidden, P),
      sequence.steps().lengths, c.outputs ? Projection::kPresent : Projection::kNone,
      c.hooks == Hooks::kNone ? Extras::kNone : Extras::kSome);
  std::string name = plan.is_batch_vectorized()    ? "batch-vectorized"
                     : plan.by_step()              ? "by step"
                     : !plan.uses_packed_weights() ? "unpacked"
                     : plan.packs_input_weights()  ? "by chunk"
                                                   : "by chunk with unpacked w_ih";
  if (plan.threads.units_are_shared()) return name + ", shared units";
  return plan.threads.row_threads() > 1 ? name + ", shared rows" : name;
}

int failures = 0, calls = 0;
bool only_threads = false;

void check(CellIndex index, const Case& c, Threads threads) {
  const auto several = run_layer<float>(index, c, threads);
  ++calls;
  if (only_threads) return;
  const auto one = run_layer<float>(index, c, {1, 1});
  const double of_threads = difference(several, one);
  const double rounding = difference(one, run_layer<double>(index, c, threads));
  // The math of row cells uses signs of small numbers and nearly opposite vectors, which rounding
  // to float can flip.
  if (of_threads < 1e-5 && (rounding < 1e-5 || kCells[index].sees_rows)) return;
  ++failures;
  std::printf("FAILED %s B%d T%d I%d H%d P%d, %s: float against double %.2g, threads %.2g\n",
              kCells[index].name, int(c.batch), int(c.steps), int(c.inputs), int(c.hidden),
              int(c.outputs), plan_name(index, c, 1).c_str(), rounding, of_threads);
}

const std::vector<Case> kCases{
    {.batch = 4, .steps = 3, .inputs = 9, .hidden = 81},
    {.batch = 4, .steps = 8, .inputs = 9, .hidden = 81},
    {.batch = 4, .steps = 8, .inputs = 9, .hidden = 81, .reverse = true, .row_bias = true},
    {.batch = 4, .steps = 8, .inputs = 9, .hidden = 81, .packed = true, .hooks = Hooks::kAll},
    {.batch = 64, .steps = 5, .inputs = 10, .hidden = 33},
    {.batch = 64, .steps = 5, .inputs = 1, .hidden = 7, .reverse = true, .row_bias = true},
    {.batch = 32, .steps = 4, .inputs = 5, .hidden = 1, .x = Storage::kFloat16},
    {.batch = 40, .steps = 6, .inputs = 10, .hidden = 33, .packed = true},
    {.batch = 40, .steps = 6, .inputs = 10, .hidden = 33, .reverse = true, .hooks = Hooks::kAll},
    {.batch = 13, .steps = 6, .inputs = 3, .hidden = 15, .packed = true, .row_bias = true},
    {.batch = 3, .steps = 4, .inputs = 3, .hidden = 5, .packed = true, .row_bias = true},
    {.batch = 40,
     .steps = 6,
     .inputs = 10,
     .hidden = 33,
     .outputs = 21,
     .packed = true,
     .reverse = true},
    {.batch = 3,
     .steps = 7,
     .inputs = 10,
     .hidden = 33,
     .outputs = 21,
     .hooks = Hooks::kBeforeMatmuls},
    {.batch = 3, .steps = 2, .inputs = 10, .hidden = 33, .outputs = 21},
    {.batch = 1, .steps = 80, .inputs = 3, .hidden = 280},
    // Several chunks.
    {.batch = 6, .steps = 180, .inputs = 3, .hidden = 60, .x = Storage::kBFloat16},
    {.batch = 40,
     .steps = 30,
     .inputs = 3,
     .hidden = 60,
     .packed = true,
     .reverse = true,
     .hooks = Hooks::kAll,
     .x = Storage::kFloat16},
    // Large weights: threads share units, and have several tiles of rows.
    {.batch = 20, .steps = 3, .inputs = 4, .hidden = 723, .packed = true, .hooks = Hooks::kAll},
    {.batch = 3, .steps = 0, .inputs = 4, .hidden = 5},
    {.batch = 3, .steps = 9, .inputs = 0, .hidden = 5},
    {.batch = 32, .steps = 4, .inputs = 0, .hidden = 5},
    {.batch = 3, .steps = 0, .inputs = 4, .hidden = 5, .outputs = 2},
};

// In a child made by fork(): the worker thread runs the call.
void check_after_fork() {
  const pid_t child = fork();
  if (child == 0) {
    offered_threads = kSeveral;
    run_safely_after_fork([] { check(0, kCases[0], {kSeveral, 1}); });
    _exit(failures ? EXIT_FAILURE : EXIT_SUCCESS);
  }
  int status = 0;
  if (child > 0 && waitpid(child, &status, 0) == child && status == 0) return;
  ++failures;
  std::printf("FAILED in a forked child: status %d\n", status);
}

}  // namespace

int main(int count, char** arguments) {
  only_threads = count == 2 && arguments[1] == std::string("--threads");
  use_thread_pool(kPool);
  // Until threads have met other programs' threads, they share units also on a busy machine. Hence
  // both passes of the first case come first, one of them in a separate process. That is forked
  // before there are threads, as ThreadSanitizer demands.
  std::set<std::string> plans{plan_name(0, kCases[0], kSeveral)};
  check_after_fork();
  check(0, kCases[0], {1, kSeveral});
  for (const Case& c : kCases) {
    for (CellIndex index = 0; index < AllCells::kCount; ++index) {
      if (c.outputs > 0 && !kCells[index].can_project) continue;
      if (c.row_bias && kCells[index].sees_rows) continue;
      plans.insert({plan_name(index, c, 1), plan_name(index, c, kSeveral)});
      check(index, c, {kSeveral, kSeveral});
    }
  }
  std::vector<std::string> expected{"batch-vectorized", "by step", "by chunk",
                                    "by chunk with unpacked w_ih", "unpacked"};
  if (processors() > 1) {
    expected.insert(expected.end(), {"batch-vectorized, shared rows", "by step, shared rows",
                                     "unpacked, shared units"});
  }
  for (const std::string& plan : expected) {
    if (plans.contains(plan)) continue;
    ++failures;
    std::printf("FAILED: no call is %s\n", plan.c_str());
  }
  std::printf("%s: %d layer calls by %zu plans, %d failures\n", kernels<float>().instruction_set,
              calls, plans.size(), failures);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
