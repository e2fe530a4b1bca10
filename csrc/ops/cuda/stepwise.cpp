#include "ops/cuda/stepwise.h"

#include <vector>

#include "cuda/stepwise.h"
#include "ops/cuda/current_device.h"
#include "ops/cuda/step_graphs.h"
#include "ops/cuda/tensors.h"

namespace rotcell::ops::gpu {
namespace {

// ---- The weights of products

// Where the weights of a step's products are.
enum class Weights {
  kThoseOfTheCall,
  kOwn,  // read at each use: buffers are made where nothing may run
};

// Rows of other products among those of this one are zero.
void read_weights(const CellDescription& cell, const Tensor& w_hh, int64_t hidden,
                  const ProductWeights& product, int number) {
  product.weights.copy_(w_hh.narrow(0, product.first, product.rows));
  if (product.rows == cell.rows_of_product(number, hidden)) return;
  for (int other = number + 1; other < cell.stages; ++other) {
    product.weights
        .narrow(0, cell.first_row_of_product(other, hidden) - product.first,
                cell.rows_of_product(other, hidden))
        .zero_();
  }
}

std::vector<ProductWeights> product_weights(const CellDescription& cell, const Tensor& w_hh,
                                            int64_t hidden, Weights whose) {
  std::vector<ProductWeights> products;
  for (int number = 0; number < cell.stages; ++number) {
    const int64_t first = cell.first_row_of_product(number, hidden);
    const int64_t own = cell.rows_of_product(number, hidden);
    const bool to_the_end = number == 0 && cell.has_angles;
    const int64_t rows = to_the_end ? w_hh.size(0) - first : own;
    const bool as_they_are = whose == Weights::kThoseOfTheCall && rows == own;
    products.push_back({first, rows,
                        as_they_are ? w_hh.narrow(0, first, rows)
                                    : empty({rows, w_hh.size(1)}, w_hh.dtype(), w_hh.device())});
    if (whose == Weights::kThoseOfTheCall && !as_they_are) {
      read_weights(cell, w_hh, hidden, products.back(), number);
    }
  }
  return products;
}

// The columns of the gates of some tokens that a product makes.
Tensor columns(const ProductWeights& product, const Tensor& gates, int64_t token, int64_t tokens) {
  const int64_t width = gates.size(1);
  return gates.view({tokens, product.rows}, {width, 1}, token * width + product.first);
}

// ---- What steps need besides

StepBuffers make_buffers(const Launch& launch, const Tensor& w_hh, const GraphKey& key,
                         Weights whose, Tensor state) {
  const CellDescription& cell = launch.cell();
  const int64_t hidden = key.hidden, batch = key.batch;
  const DType type = w_hh.dtype();
  const Device device = w_hh.device();
  const bool backward = key.pass == cuda::Pass::kBackward;
  const auto scratch = [&](bool needed, int64_t width) {
    return needed ? empty({batch, width}, type, device) : Tensor();
  };
  // On the way back a product reads the gates of its tokens, unless it is in a graph.
  return {.products = product_weights(cell, w_hh, hidden, whose),
          .state = std::move(state),
          .seen = scratch(key.masks && !backward, w_hh.size(1)),
          .operands = scratch(cell.stages > 1, hidden),
          .gates = scratch(!backward || whose == Weights::kOwn, w_hh.size(0)),
          .unprojected = scratch(launch.request.projection, hidden)};
}

cuda::SharesOfTokens shares_of(const Tensor& shares) {
  if (!shares) return {};
  return {row(shares), shares.size(0) == 1 ? 0 : shares.size(1)};
}

void describe(cuda::StepwiseSequence& s, const Launch& launch, const Sequence& sequence,
              const ChangeTensors& changes, const GateFunctions& functions, const Tensor& w_hh,
              const Tensor& h0) {
  const CellDescription& cell = launch.cell();
  s = {.steps = launch.graph_steps > 0 ? launch.steps : sequence.steps(),
       .first = 0,
       .hidden = launch.hidden(),
       .outputs = static_cast<int>(w_hh.size(1)),
       .gate_rows = w_hh.size(0),
       .number_bytes = cuda::storage_bytes(launch.request.number),
       .compute_bytes = cuda::compute_bytes(launch.request.number),
       .last_stage = cell.stages - 1,
       .has_memory = cell.has_memory,
       .functions = functions,
       .changes = changes.what(),
       .resets = changes.resets.const_data<bool>(),
       .dropout = row(changes.recurrent_dropout),
       .zoneout_h = shares_of(changes.zoneout_h),
       .zoneout_c = shares_of(changes.zoneout_c),
       .h0 = row(h0)};
}

// The sequence works on these buffers.
void point_at(const StepBuffers& buffers, cuda::StepwiseForward& s) {
  s.h = row(buffers.state);
  s.seen = row(buffers.seen ? buffers.seen : buffers.state);
  s.products = row(buffers.gates);
  s.operands = row(buffers.operands);
  s.result = row(buffers.unprojected ? buffers.unprojected : buffers.state);
}

void point_at(const StepBuffers& buffers, cuda::StepwiseBackward& s) {
  s.grad_h = row(buffers.state);
  s.grad_operands = row(buffers.operands);
  s.grad_result = row(buffers.unprojected ? buffers.unprojected : buffers.state);
  s.gates_again = buffers.gates ? cuda::Again::kYes : cuda::Again::kNo;
  s.grad_gates_of_step = row(buffers.gates);
}

// The buffers as the products of a step take them. Views are made anew only when the number of rows
// changes.
class StepViews {
 public:
  explicit StepViews(const StepBuffers& buffers)
      : buffers_(buffers),
        state(buffers.state),
        seen(buffers.seen ? buffers.seen : buffers.state),
        operands(buffers.operands),
        unprojected(buffers.unprojected) {
    for (const ProductWeights& product : buffers.products) {
      transposed.push_back(product.weights.transposed());
      gates_.emplace_back();
    }
  }

  // What product `number` makes, or its gradient.
  const Tensor& gates(size_t number, int64_t rows) {
    if (!gates_[number] || gates_[number].size(0) != rows) {
      gates_[number] = columns(buffers_.products[number], buffers_.gates, 0, rows);
    }
    return gates_[number];
  }

 private:
  const StepBuffers& buffers_;
  std::vector<Tensor> gates_;

 public:
  FirstRows state, seen, operands, unprojected;
  std::vector<Tensor> transposed;  // the weights
};

// ---- One step: its kernels are launched now, or ahead, by `enter` or `leave` and `stage(number)`

template <class Enter, class Stage>
void forward_step(StepViews& views, bool enters, int64_t rows, Enter enter, Stage stage) {
  if (enters) enter();
  for (size_t number = 0; number < views.transposed.size(); ++number) {
    step_product(views.gates(number, rows), number == 0 ? views.seen(rows) : views.operands(rows),
                 views.transposed[number]);
    stage(static_cast<int>(number));
  }
}

// gates(number): the gradient of what that product made.
template <class Leave, class Stage, class Gates>
void backward_step(const StepBuffers& buffers, StepViews& views, bool leaves, int64_t rows,
                   Leave leave, Stage stage, Gates gates) {
  for (size_t number = buffers.products.size(); number-- > 0;) {
    stage(static_cast<int>(number));
    step_product(number == 0 ? views.state(rows) : views.operands(rows), gates(number),
                 buffers.products[number].weights);
  }
  if (leaves) leave();
}

// ---- Steps by a graph

template <class Described>
GraphMaker graph_maker(const Launch& launch, const Tensor& w_hh, const GraphKey& key) {
  const auto record = [&launch, key](const StepBuffers& buffers, void* description,
                                     cuda::Stream stream) {
    cuda::Ahead<Described> p{.sequence = static_cast<const Described*>(description),
                             .ahead = 0,
                             .rows = key.batch,
                             .hidden = launch.hidden(),
                             .outputs = launch.hidden(),
                             .has_memory = launch.cell().has_memory};
    const auto stage = [&](int number) {
      cuda::stage_ahead(key.cell, key.number, number, p, stream);
    };
    StepViews views(buffers);
    for (; p.ahead < launch.graph_steps; ++p.ahead) {
      if constexpr (std::is_same_v<Described, cuda::StepwiseForward>) {
        const auto enter = [&] { cuda::enter_ahead(key.number, p, stream); };
        forward_step(views, key.enters, key.batch, enter, stage);
      } else {
        const auto leave = [&] { cuda::leave_ahead(key.number, p, stream); };
        const auto gates = [&](size_t number) { return views.gates(number, key.batch).borrow(); };
        backward_step(buffers, views, key.enters, key.batch, leave, stage, gates);
      }
    }
  };
  const auto buffers = [&launch, &w_hh, key] {
    Tensor state = empty({key.batch, key.hidden}, w_hh.dtype(), w_hh.device());
    return make_buffers(launch, w_hh, key, Weights::kOwn, std::move(state));
  };
  return {.buffers = buffers,
          .weight_bytes = w_hh.bytes(),
          .description_bytes = sizeof(Described),
          .record = record,
          .steps = launch.graph_steps};
}

// Runs as many of the steps as are a multiple of the graph's, and returns how many those were.
// first(done): the position of the first step of those that are left.
template <class Described, class First>
int64_t run_graph(const StepGraph& graph, Described s, cuda::Stream stream, First first) {
  auto* there = static_cast<Described*>(graph.description.raw_data());
  int64_t done = 0;
  for (; done + graph.steps <= s.steps.count; done += graph.steps) {
    s.first = first(done);
    cuda::place(s, there, stream);
    graph.graph->launch(stream);
  }
  return done;
}

// What the call brings into a graph's buffers.
void bring(const StepGraph& graph, const Launch& launch, const Tensor& w_hh, const Tensor& state) {
  for (size_t number = 0; number < graph.buffers.products.size(); ++number) {
    read_weights(launch.cell(), w_hh, launch.request.hidden, graph.buffers.products[number],
                 static_cast<int>(number));
  }
  graph.buffers.state.copy_(state);
}

// ---- Steps one by one

void forward_steps(const Launch& launch, const Sequence& sequence, const ForwardTensors& t,
                   const StepBuffers& buffers, const cuda::StepwiseForward& s, int64_t begin) {
  const Tensor w_hr_t = t.w_hr ? t.w_hr.transposed() : Tensor();
  StepViews views(buffers);
  for (int64_t position = begin; position < s.steps.count; ++position) {
    const Step step = step_at(sequence.steps(), position);
    const auto enter = [&] {
      cuda::enter(launch.request.number, entry_of(s, step), launch.stream);
    };
    const auto stage = [&](int number) {
      cuda::stage(launch.request.cell, launch.request.number, stage_of(s, number, step),
                  launch.stream);
    };
    forward_step(views, s.changes.before_products(), step.rows, enter, stage);
    if (t.w_hr) {
      mm_out(views.state(step.rows), views.unprojected(step.rows), w_hr_t);
      t.out.narrow(0, step.token, step.rows).copy_(views.state(step.rows));
    }
  }
}

void backward_steps(const Launch& launch, const Sequence& sequence, const BackwardTensors& t,
                    const StepBuffers& buffers, const cuda::StepwiseBackward& s, int64_t begin) {
  StepViews views(buffers);
  for (int64_t position = begin; position >= 0; --position) {
    const Step step = step_at(sequence.steps(), position);
    if (t.w_hr) {
      const Tensor grad_projected = t.grad_projected.narrow(0, step.token, step.rows);
      const Tensor& grad_h = views.state(step.rows);
      if (t.grad_out) {
        grad_projected.copy_(add(grad_h, t.grad_out.narrow(0, step.token, step.rows)));
      } else {
        grad_projected.copy_(grad_h);
      }
      mm_out(views.unprojected(step.rows), grad_projected, t.w_hr);
    }
    const auto leave = [&] { cuda::leave(launch.request.number, exit_of(s, step), launch.stream); };
    const auto stage = [&](int number) {
      cuda::stage(launch.request.cell, launch.request.number, stage_of(s, number, step),
                  launch.stream);
    };
    const auto gates = [&](size_t number) {
      return columns(buffers.products[number], t.grad_gates, step.token, step.rows);
    };
    backward_step(buffers, views, s.changes.before_products(), step.rows, leave, stage, gates);
  }
}

}  // namespace

void forward_stepwise(const Launch& launch, const Sequence& sequence, const ForwardTensors& t) {
  cuda::StepwiseForward s{};
  describe(s, launch, sequence, t.changes, t.functions, t.w_hh, t.h0);
  s.keep = t.keep;
  s.result_is = t.w_hr ? cuda::ResultIs::kUnprojected : cuda::ResultIs::kOutput;
  s.from_input = row(t.from_input);
  s.out = row(t.out);
  s.gates = row(t.gates);
  s.cells = row(t.cells);
  s.c = row(t.c);
  const GraphKey key = graph_key(launch, t.h.device(), t.changes.what());
  const bool done = use_graph(key, launch.stream, [&](const StepGraph& graph) {
    bring(graph, launch, t.w_hh, t.h);
    point_at(graph.buffers, s);
    const int64_t first = run_graph(graph, s, launch.stream, [](int64_t steps) { return steps; });
    forward_steps(launch, sequence, t, graph.buffers, s, first);
    t.h.copy_(graph.buffers.state);
  });
  if (done) return;
  const StepBuffers buffers =
      make_buffers(launch, t.w_hh, key, Weights::kThoseOfTheCall, t.h.borrow());
  point_at(buffers, s);
  forward_steps(launch, sequence, t, buffers, s, 0);
  learn_graph(key, launch, graph_maker<cuda::StepwiseForward>(launch, t.w_hh, key));
}

Tensor backward_stepwise(const Launch& launch, const Sequence& sequence, const BackwardTensors& t,
                         Tensor grad_h) {
  const CellDescription& cell = launch.cell();
  const StateChanges changes = t.changes.what();
  const auto again = [](const Tensor& wanted) {
    return wanted ? cuda::Again::kYes : cuda::Again::kNo;
  };
  // Of h, what passes no product.
  const bool has_direct = cell.reads_output || changes.zoneout_h;
  const Tensor grad_direct = has_direct
                                 ? Tensor::zeros({launch.request.batch, launch.request.hidden},
                                                 compute_type(grad_h.dtype()), grad_h.device())
                                 : Tensor();
  cuda::StepwiseBackward s{};
  describe(s, launch, sequence, t.changes, t.functions, t.w_hh, t.h0);
  s.output_gradient =
      t.grad_out && !t.w_hr ? cuda::OutputGradient::kGiven : cuda::OutputGradient::kZero;
  s.memory_gradient =
      t.grad_cells ? cuda::MemoryGradient::kOfEveryStep : cuda::MemoryGradient::kOfLast;
  s.operands_again = again(t.operands);
  s.result_again = again(t.unprojected);
  s.has_direct = has_direct;
  s.gates = row(t.gates);
  s.cells = row(t.cells);
  s.out = row(t.out);
  s.grad_out = row(t.grad_out);
  s.grad_cells = row(t.grad_cells);
  s.grad_gates = row(t.grad_gates);
  s.seen = row(t.seen);
  s.operands = row(t.operands);
  s.results = row(t.unprojected);
  s.c0 = row(t.c0);
  s.grad_c = row(t.grad_c);
  s.grad_direct = row(grad_direct);
  const int64_t last = s.steps.count - 1;
  const GraphKey key = graph_key(launch, grad_h.device(), changes);
  const bool done = use_graph(key, launch.stream, [&](const StepGraph& graph) {
    bring(graph, launch, t.w_hh, grad_h);
    point_at(graph.buffers, s);
    const auto position = [&](int64_t steps) { return last - steps; };
    const int64_t steps = run_graph(graph, s, launch.stream, position);
    backward_steps(launch, sequence, t, graph.buffers, s, position(steps));
    grad_h.copy_(graph.buffers.state);
  });
  if (!done) {
    const StepBuffers buffers =
        make_buffers(launch, t.w_hh, key, Weights::kThoseOfTheCall, grad_h.borrow());
    point_at(buffers, s);
    backward_steps(launch, sequence, t, buffers, s, last);
    learn_graph(key, launch, graph_maker<cuda::StepwiseBackward>(launch, t.w_hh, key));
  }
  return grad_direct ? add(grad_direct, grad_h) : std::move(grad_h);
}

}  // namespace rotcell::ops::gpu
