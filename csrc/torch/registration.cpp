#include "torch/registration.h"

#include <cstring>
#include <exception>

#include "cpu/runtime/fork_worker.h"
#include "torch/stack.h"

namespace rotcell::ops {
namespace {

std::string& load_error() {
  static std::string text;
  return text;
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
    check_storages(cell, a);
    const Leads leads(a);
    result = op(index, a);
    leads.put_before(result);
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
    check_storages(cell, a);
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

Library Library::that_adds() {
  Library library;
  ROTCELL_SHIM(aoti_torch_library_init_fragment, "rotcell", __FILE__, __LINE__, &library.handle_);
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
