#include "torch/registration.h"

#include <bit>
#include <cstring>
#include <exception>

#include "cpu/runtime/fork_worker.h"

namespace rotcell::ops {
namespace {

std::string& load_error() {
  static std::string text;
  return text;
}

// A comma-separated list of what applies.
class Items {
 public:
  Items& add(const char* item, bool applies = true) {
    if (applies) text_ += (text_.empty() ? "" : ", ") + std::string(item);
    return *this;
  }
  std::string in_parentheses() const { return "(" + text_ + ")"; }

 private:
  std::string text_;
};

// Takes the arguments off the stack, in the order of the schema. They are ours from then on.
class StackReader {
 public:
  explicit StackReader(const StableIValue* stack) : next_(stack) {}

  Tensor tensor() { return Tensor(handle(*next_++)); }
  Tensor tensor_if(bool applies) { return applies ? tensor() : Tensor(); }
  Tensor optional_tensor() {
    auto* value = reinterpret_cast<StableIValue*>(*next_++);
    if (value == nullptr) return {};
    Tensor tensor(handle(*value));
    delete value;
    return tensor;
  }
  Tensor optional_tensor_if(bool applies) { return applies ? optional_tensor() : Tensor(); }
  double number() { return std::bit_cast<double>(*next_++); }
  int64_t integer() { return static_cast<int64_t>(*next_++); }
  bool boolean() { return (*next_++ & 0xff) != 0; }

 private:
  static AtenTensorHandle handle(StableIValue value) {
    return reinterpret_cast<AtenTensorHandle>(value);
  }

  const StableIValue* next_;
};

class StackWriter {
 public:
  explicit StackWriter(StableIValue* stack) : next_(stack) {}

  void put(Tensor& tensor, bool applies = true) {
    if (applies) *next_++ = reinterpret_cast<StableIValue>(tensor.release());
  }

 private:
  StableIValue* next_;
};

// The leading dimensions of tokens [T, B, .], or of the states [1, B, .] of one layer and
// direction. The ops also take tensors in this layout, that of nn.LSTM, and return results in it.
// All other code uses matrices.
struct Lead {
  bool given = false;
  int64_t outer = 0, inner = 0;

  // Lays out a contiguous matrix the same way.
  void put_before(Tensor& tensor) const {
    if (!given || !tensor || tensor.dim() != 2) return;
    const int64_t columns = tensor.size(1);
    tensor = tensor.view({outer, inner, columns}, {inner * columns, columns, 1});
  }
};

// Makes a tensor with leading dimensions a matrix.
Lead take_lead(Tensor& tensor) {
  if (!tensor || tensor.dim() != 3) return {};
  const Lead lead{.given = true, .outer = tensor.size(0), .inner = tensor.size(1)};
  const int64_t columns = tensor.size(2);
  tensor = tensor.as_contiguous().view({lead.outer * lead.inner, columns}, {columns, 1});
  return lead;
}

struct Leads {
  Lead tokens, states;

  // Makes input and states matrices.
  explicit Leads(LayerArguments& a) : tokens(take_lead(a.x)), states(take_lead(a.h0)) {
    take_lead(a.c0);
    if (states.given) check(states.outer == 1, "expected h0 of one layer, got ", states.outer);
    if (!tokens.given) return;
    check(!a.batch_sizes, "expected x with 2 dimensions, because batch_sizes is given, got 3");
    check(a.h0.size(0) == tokens.inner, "expected h0 with ", tokens.inner, " rows, as x, got ",
          a.h0.size(0));
  }
};

// The weights, but for the projection's, as forward takes them.
Items& add_weights(Items& inputs, const CellDescription& cell, bool with_biases) {
  inputs.add("Tensor w_ih").add("Tensor w_hh", cell.has_recurrent_weights());
  with_biases = with_biases && cell.has_biases();
  return inputs.add("Tensor? b_ih", with_biases).add("Tensor? b_hh", with_biases);
}
Items& add_parameters(Items& inputs, const CellDescription& cell) {
  for (int i = 0; i < cell.parameter_count; ++i) {
    inputs.add((std::string("Tensor ") + cell.parameter(i).name).c_str());
  }
  return inputs;
}
Items& add_options(Items& inputs, const CellDescription& cell) {
  return inputs.add("Tensor? batch_sizes")
      .add("bool reverse")
      .add("int gate_activation")
      .add("int angle_activation")
      .add("float norm", cell.has_norm);
}

void read_weights(StackReader& read, const CellDescription& cell, bool with_biases,
                  LayerArguments& a) {
  a.w_ih = read.tensor();
  a.w_hh = read.tensor_if(cell.has_recurrent_weights());
  with_biases = with_biases && cell.has_biases();
  a.b_ih = read.optional_tensor_if(with_biases);
  a.b_hh = read.optional_tensor_if(with_biases);
}
void read_parameters(StackReader& read, const CellDescription& cell, LayerArguments& a) {
  for (int i = 0; i < cell.parameter_count; ++i) a.parameters[i] = read.tensor();
}
void read_options(StackReader& read, const CellDescription& cell, LayerArguments& a) {
  a.batch_sizes = read.optional_tensor();
  a.reverse = read.boolean();
  a.gate_activation = read.integer();
  a.angle_activation = read.integer();
  if (cell.has_norm) a.norm = read.number();
}

Items& add_hooks(Items& inputs, const CellDescription& cell) {
  return inputs.add("Tensor? resets")
      .add("Tensor? recurrent_dropout")
      .add("Tensor? zoneout_h")
      .add("Tensor? zoneout_c", cell.has_cell_state);
}

void read_hooks(StackReader& read, const CellDescription& cell, HookTensors& hooks) {
  hooks.resets = read.optional_tensor();
  hooks.recurrent_dropout = read.optional_tensor();
  hooks.zoneout_h = read.optional_tensor();
  hooks.zoneout_c = read.optional_tensor_if(cell.has_cell_state);
}

const char* suffix(Overload overload) {
  switch (overload) {
    case Overload::kPlain:
      return "";
    case Overload::kExtended:
      return ".extended";
    case Overload::kRowBias:
      return ".row_bias";
  }
  return "";
}

}  // namespace

std::string forward_name(const CellDescription& cell, Overload overload) {
  return cell.name + std::string(suffix(overload));
}

std::string backward_name(const CellDescription& cell, Overload overload) {
  return cell.name + std::string("_backward") + suffix(overload);
}

std::string forward_schema(const CellDescription& cell, Overload overload) {
  Items inputs, outputs;
  inputs.add("Tensor x").add("Tensor h0").add("Tensor c0", cell.has_cell_state);
  add_weights(inputs, cell, /*with_biases=*/true).add("Tensor? w_hr", cell.can_project);
  add_options(add_parameters(inputs, cell), cell).add("bool save");
  if (overload == Overload::kExtended) {
    add_hooks(inputs, cell).add("bool return_cells", cell.has_cell_state);
  }
  inputs.add("Tensor row_bias", overload == Overload::kRowBias);
  outputs.add("Tensor out")
      .add("Tensor h_n")
      .add("Tensor c_n", cell.has_cell_state)
      .add("Tensor gates")
      .add("Tensor cells", cell.has_cell_state);
  return forward_name(cell, overload) + inputs.in_parentheses() + " -> " + outputs.in_parentheses();
}

std::string backward_schema(const CellDescription& cell, Overload overload) {
  Items inputs, outputs;
  inputs.add("Tensor? grad_out")
      .add("Tensor? grad_h_n")
      .add("Tensor? grad_c_n", cell.has_cell_state)
      .add("Tensor x")
      .add("Tensor h0")
      .add("Tensor c0", cell.has_cell_state);
  add_weights(inputs, cell, cell.adds_biases).add("Tensor? w_hr", cell.can_project);
  add_options(add_parameters(inputs, cell), cell)
      .add("Tensor out")
      .add("Tensor gates")
      .add("Tensor cells", cell.has_cell_state)
      .add("bool needs_grad_x")
      .add("bool needs_grad_weights");
  if (overload == Overload::kExtended) {
    add_hooks(inputs, cell).add("Tensor? grad_cells", cell.has_cell_state);
  }
  outputs.add("Tensor x")
      .add("Tensor h0")
      .add("Tensor c0", cell.has_cell_state)
      .add("Tensor w_ih")
      .add("Tensor w_hh", cell.has_recurrent_weights())
      .add("Tensor bias", cell.has_biases())
      .add("Tensor w_hr", cell.can_project)
      .add("Tensor row_bias", overload == Overload::kRowBias);
  add_parameters(outputs, cell);
  return backward_name(cell, overload) + inputs.in_parentheses() + " -> " +
         outputs.in_parentheses();
}

void run_forward(CellIndex index, Overload overload, ForwardOp op, StableIValue* stack) {
  const CellDescription& cell = kCells[index];
  StackReader read(stack);
  ForwardArguments a;
  a.x = read.tensor();
  a.h0 = read.tensor();
  a.c0 = read.tensor_if(cell.has_cell_state);
  read_weights(read, cell, /*with_biases=*/true, a);
  a.w_hr = read.optional_tensor_if(cell.can_project);
  read_parameters(read, cell, a);
  read_options(read, cell, a);
  a.save = read.boolean();
  if (overload == Overload::kExtended) {
    read_hooks(read, cell, a.hooks);
    a.return_cells = cell.has_cell_state && read.boolean();
  }
  a.row_bias = read.tensor_if(overload == Overload::kRowBias);
  ForwardResult result;
  cpu::run_safely_after_fork([&] {
    const GradModeOff no_history;
    check_storages(a);
    const Leads leads(a);
    result = op(index, a);
    leads.tokens.put_before(result.out);
    leads.states.put_before(result.h_n);
    leads.states.put_before(result.c_n);
  });
  StackWriter write(stack);
  write.put(result.out);
  write.put(result.h_n);
  write.put(result.c_n, cell.has_cell_state);
  write.put(result.gates);
  write.put(result.cells, cell.has_cell_state);
}

void run_backward(CellIndex index, Overload overload, BackwardOp op, StableIValue* stack) {
  const CellDescription& cell = kCells[index];
  StackReader read(stack);
  BackwardArguments a;
  a.grad_out = read.optional_tensor();
  a.grad_h_n = read.optional_tensor();
  a.grad_c_n = read.optional_tensor_if(cell.has_cell_state);
  a.x = read.tensor();
  a.h0 = read.tensor();
  a.c0 = read.tensor_if(cell.has_cell_state);
  read_weights(read, cell, cell.adds_biases, a);
  a.w_hr = read.optional_tensor_if(cell.can_project);
  read_parameters(read, cell, a);
  read_options(read, cell, a);
  a.out = read.tensor();
  a.gates = read.tensor();
  a.cells = read.tensor_if(cell.has_cell_state);
  a.needs_grad_x = read.boolean();
  a.needs_grad_weights = read.boolean();
  if (overload == Overload::kExtended) {
    read_hooks(read, cell, a.hooks);
    a.grad_cells = read.optional_tensor_if(cell.has_cell_state);
  }
  a.has_row_bias = overload == Overload::kRowBias;
  BackwardResult result;
  cpu::run_safely_after_fork([&] {
    const GradModeOff no_history;
    check_storages(a);
    const Leads leads(a);
    for (Tensor* tensor : {&a.grad_out, &a.grad_h_n, &a.grad_c_n, &a.out}) take_lead(*tensor);
    result = op(index, a);
    leads.tokens.put_before(result.x);
    leads.states.put_before(result.h0);
    leads.states.put_before(result.c0);
  });
  StackWriter write(stack);
  write.put(result.x);
  write.put(result.h0);
  write.put(result.c0, cell.has_cell_state);
  write.put(result.w_ih);
  write.put(result.w_hh, cell.has_recurrent_weights());
  write.put(result.bias, cell.has_biases());
  write.put(result.w_hr, cell.can_project);
  write.put(result.row_bias, overload == Overload::kRowBias);
  for (int i = 0; i < cell.parameter_count; ++i) write.put(result.parameters[i]);
}

Library Library::that_defines() {
  Library library;
  ROTCELL_SHIM(aoti_torch_library_init_def, "rotcell", __FILE__, __LINE__, &library.handle_);
  return library;
}

Library Library::for_device(const char* dispatch_key) {
  Library library;
  ROTCELL_SHIM(aoti_torch_library_init_impl, "rotcell", dispatch_key, __FILE__, __LINE__,
               &library.handle_);
  return library;
}

void Library::define(const std::string& schema) {
  ROTCELL_SHIM(aoti_torch_library_def, handle_, schema.c_str());
}

void Library::implement(const std::string& name, BoxedFunction function) {
  ROTCELL_SHIM(torch_library_impl, handle_, name.c_str(), function, TORCH_ABI_VERSION);
}

AtLoad::AtLoad(void (*body)()) {
  try {
    body();
  } catch (const std::exception& error) {
    load_error() = error.what();
  }
}

}  // namespace rotcell::ops

// Why this library could not register its ops; null if it could.
extern "C" __attribute__((visibility("default"))) const char* rotcell_load_error() {
  const std::string& text = rotcell::ops::load_error();
  return text.empty() ? nullptr : text.c_str();
}
