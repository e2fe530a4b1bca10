// The ops with int8 weights, NAME_int8 for every cell: on the CPU, forward only.
#include "cpu/runtime/fork_worker.h"
#include "cpu/runtime/quantized_layer.h"
#include "torch/registration.h"
#include "torch/sequence.h"
#include "torch/stack.h"

namespace rotcell::ops {
namespace {

// Packed weights with their scales.
struct QuantizedTensor {
  Tensor packed, scales;  // as matmul/int8.h says
};

struct QuantizedArguments : LayerArguments {
  QuantizedTensor ih, hh, hr;
  Tensor bias;  // [G]
  bool return_cells = false;
};

std::string name_of(const CellDescription& cell) { return cell.name + std::string("_int8"); }

bool has_int8_weights(const CellDescription& cell) { return !cell.sees_rows; }

std::string schema(const CellDescription& cell) {
  Items inputs, outputs;
  inputs.add("Tensor x")
      .add("Tensor h0")
      .add("Tensor c0", cell.has_cell_state)
      .add("Tensor w_ih")
      .add("Tensor w_hh")
      .add("Tensor s_ih")
      .add("Tensor s_hh")
      .add("Tensor? bias")
      .add("Tensor? w_hr", cell.can_project)
      .add("Tensor? s_hr", cell.can_project)
      .add("Tensor? batch_sizes")
      .add("bool reverse")
      .add("int gate_activation")
      .add("int angle_activation");
  add_hooks(inputs, cell).add("bool return_cells", cell.has_cell_state);
  outputs.add("Tensor out")
      .add("Tensor h_n")
      .add("Tensor c_n", cell.has_cell_state)
      .add("Tensor cells", cell.has_cell_state);
  return name_of(cell) + inputs.in_parentheses() + " -> " + outputs.in_parentheses();
}

QuantizedArguments arguments_from(const CellDescription& cell, const StableIValue* stack) {
  StackReader read(stack);
  QuantizedArguments a;
  a.x = read.tensor();
  a.h0 = read.tensor();
  a.c0 = read.tensor_if(cell.has_cell_state);
  a.ih.packed = read.tensor();
  a.hh.packed = read.tensor();
  a.ih.scales = read.tensor();
  a.hh.scales = read.tensor();
  a.bias = read.optional_tensor();
  a.hr.packed = read.optional_tensor_if(cell.can_project);
  a.hr.scales = read.optional_tensor_if(cell.can_project);
  a.batch_sizes = read.optional_tensor();
  a.reverse = read.boolean();
  a.gate_activation = read.integer();
  a.angle_activation = read.integer();
  read_hooks(read, cell, a.hooks);
  a.return_cells = cell.has_cell_state && read.boolean();
  return a;
}

// Nothing is expected of an undefined tensor.
void check_tensor(const char* name, const Tensor& tensor, Sizes sizes, DType dtype) {
  if (!tensor) return;
  const std::span<const int64_t> found = tensor.sizes();
  if (!std::equal(found.begin(), found.end(), sizes.begin(), sizes.end())) {
    fail("expected ", name, " of shape ", sizes_text(sizes), ", got ", sizes_text(found));
  }
  if (tensor.dtype() != dtype) {
    fail("expected ", name, " of type ", dtype_name(dtype), ", got ", dtype_name(tensor.dtype()));
  }
  check(tensor.device().is_cpu(), "expected ", name, " on cpu, got ", device_name(tensor.device()));
  check(tensor.has_its_storage(), "expected ", name, " with a storage of all its elements");
}

void check_weights(const char* name, const char* scales, const QuantizedTensor& weights,
                   int64_t rows, int64_t depth) {
  check(depth <= cpu::kInt8MostDepth, "expected ", name, " with at most ", cpu::kInt8MostDepth,
        " columns, got ", depth);
  check_tensor(
      name, weights.packed,
      {cpu::int8_panels(rows), cpu::int8_groups(depth), cpu::kInt8PanelRows, cpu::kInt8Group},
      int8());
  check_tensor(scales, weights.scales, {rows}, float32());
}

// The sizes of the call, which must fit each other.
LayerSizes check_arguments(const CellDescription& cell, const QuantizedArguments& a) {
  check(a.x.dim() == 2 && a.h0.dim() == 2, "expected x and h0 with 2 or 3 dimensions, got ",
        a.x.dim(), " and ", a.h0.dim());
  if (cell.has_cell_state) {
    check(a.c0.dim() == 2, "expected c0 with 2 or 3 dimensions, got ", a.c0.dim());
  }
  check_functions(a);
  const int64_t hidden = (cell.has_cell_state ? a.c0 : a.h0).size(1);
  const auto sizes_with = [&](HiddenFeeds feeds) {
    return layer_sizes(cell, a.x.size(0), a.x.size(1), a.h0.size(0), hidden,
                       a.hr.packed ? a.h0.size(1) : hidden, feeds);
  };
  LayerSizes sizes = sizes_with(HiddenFeeds::kAll);
  if (a.hh.scales.numel() < sizes.recurrent_rows()) {
    // x alone feeds the angles.
    const LayerSizes without_angles = sizes_with(HiddenFeeds::kGates);
    if (a.hh.scales.numel() == without_angles.recurrent_rows()) sizes = without_angles;
  }
  check_sizes(sizes);
  check_tensor("x", a.x, {sizes.tokens, sizes.inputs}, float32());
  check_tensor("h0", a.h0, {sizes.batch, sizes.outputs}, float32());
  check_tensor("c0", a.c0, {sizes.batch, sizes.hidden}, float32());
  check_weights("w_ih", "s_ih", a.ih, sizes.input_rows, sizes.inputs);
  check_weights("w_hh", "s_hh", a.hh, sizes.recurrent_rows(), sizes.outputs);
  check(a.hr.packed.defined() == a.hr.scales.defined(),
        "expected both w_hr and s_hr or none of them, got one");
  if (a.hr.packed) check_weights("w_hr", "s_hr", a.hr, sizes.outputs, sizes.hidden);
  check_tensor("bias", a.bias, {sizes.gate_rows}, float32());
  const HookTensors& hooks = a.hooks;
  check_tensor("resets", hooks.resets, {sizes.tokens}, boolean());
  check_tensor("recurrent_dropout", hooks.recurrent_dropout, {sizes.batch, sizes.outputs},
               float32());
  for (const auto& [name, keep] :
       {std::pair<const char*, const Tensor&>("zoneout_h", hooks.zoneout_h),
        std::pair<const char*, const Tensor&>("zoneout_c", hooks.zoneout_c)}) {
    if (!keep) continue;
    check(!a.hr.packed, "expected no zoneout with a projection (w_hr), got both");
    const bool of_all = keep.dim() == 2 && keep.size(0) == 1;
    check_tensor(name, keep, {of_all ? 1 : sizes.tokens, sizes.hidden}, float32());
  }
  return sizes;
}

ForwardResult empty_results(const CellDescription& cell, const LayerSizes& sizes,
                            bool return_cells) {
  ForwardResult result;
  result.out = Tensor::empty({sizes.tokens, sizes.outputs}, float32());
  result.h_n = Tensor::empty({sizes.batch, sizes.outputs}, float32());
  if (cell.has_cell_state) {
    result.c_n = Tensor::empty({sizes.batch, sizes.hidden}, float32());
    result.cells = return_cells ? Tensor::empty({sizes.tokens, sizes.hidden}, float32())
                                : Tensor::empty({0}, float32());
  }
  return result;
}

ForwardResult forward(CellIndex index, const QuantizedArguments& a) {
  const CellDescription& cell = kCells[index];
  const LayerSizes sizes = check_arguments(cell, a);
  const Sequence sequence = sequence_of(a.batch_sizes, sizes.tokens, sizes.batch, a.reverse);
  const DType type = float32();
  const Tensor x = a.x.as_contiguous(), h0 = a.h0.as_contiguous(), c0 = a.c0.as_contiguous(type);
  const Tensor bias = a.bias.as_contiguous(type), resets = a.hooks.resets.as_contiguous(boolean());
  const Tensor dropout = a.hooks.recurrent_dropout.as_contiguous(type);
  const Tensor keep_h = a.hooks.zoneout_h.as_contiguous(type),
               keep_c = a.hooks.zoneout_c.as_contiguous(type);
  std::vector<Tensor> contiguous;  // weights, as long as they are read
  const auto weights = [&](const QuantizedTensor& tensor, int64_t rows, int64_t depth) {
    if (!tensor.packed) return cpu::Int8Weights{};
    contiguous.push_back(tensor.packed.as_contiguous());
    const auto* panels = contiguous.back().const_data<int8_t>();
    contiguous.push_back(tensor.scales.as_contiguous());
    return cpu::Int8Weights{panels, contiguous.back().const_data<float>(), rows, depth};
  };
  const auto keep = [](const Tensor& tensor) {
    if (!tensor) return cpu::ZoneoutKeep<float>{};
    return cpu::ZoneoutKeep<float>{tensor.const_data<float>(),
                                   tensor.size(0) == 1 ? 0 : tensor.size(1)};
  };
  ForwardResult result = empty_results(cell, sizes, a.return_cells);
  const cpu::Layer<float> layer{.cell = index,
                                .sizes = sizes,
                                .sequence = sequence,
                                .activations = check_functions(a),
                                .hooks = {.resets = resets.const_data<bool>(),
                                          .recurrent_dropout = dropout.const_data<float>(),
                                          .zoneout_h = keep(keep_h),
                                          .zoneout_c = keep(keep_c)},
                                .h0 = h0.const_data<float>(),
                                .c0 = c0.const_data<float>(),
                                .w_ih = nullptr,
                                .w_hh = nullptr,
                                .w_hr = nullptr};
  cpu::forward({.layer = {layer,
                          /*x=*/{x.raw_const_data(), cpu::Storage::kFloat32},
                          /*b_ih=*/nullptr,
                          /*b_hh=*/nullptr,
                          /*row_bias=*/nullptr,
                          /*keep=*/a.return_cells ? Keep::kCellStates : Keep::kNothing,
                          /*out=*/result.out.data<float>(),
                          /*h_n=*/result.h_n.data<float>(),
                          /*c_n=*/result.c_n.data<float>(),
                          /*gates=*/nullptr,
                          /*cells=*/result.cells.data<float>()},
                .w_ih = weights(a.ih, sizes.input_rows, sizes.inputs),
                .w_hh = weights(a.hh, sizes.recurrent_rows(), sizes.outputs),
                .w_hr = weights(a.hr, sizes.outputs, sizes.hidden),
                .bias = bias.const_data<float>()});
  return result;
}

template <CellIndex INDEX>
void boxed(StableIValue* stack, uint64_t, uint64_t) {
  const CellDescription& cell = kCells[INDEX];
  QuantizedArguments a = arguments_from(cell, stack);
  ForwardResult result;
  cpu::run_safely_after_fork([&] {
    const GradModeOff no_history;
    check_storages(cell, a);
    const Leads leads(a);
    result = forward(INDEX, a);
    leads.put_before(result);
  });
  StackWriter write(stack);
  write.put(result.out);
  write.put(result.h_n);
  write.put(result.c_n, cell.has_cell_state);
  write.put(result.cells, cell.has_cell_state);
}

template <CellIndex... CELLS>
void implement(Library& library, std::integer_sequence<CellIndex, CELLS...>) {
  const auto add = [&](const CellDescription& cell, BoxedFunction function) {
    if (has_int8_weights(cell)) library.implement(name_of(cell), function);
  };
  (add(kCells[CELLS], boxed<CELLS>), ...);
}

const AtLoad registration([] {
  // The library of the ops is defined elsewhere; this one adds to it.
  Library library = Library::that_adds();
  for (const CellDescription& cell : kCells) {
    if (has_int8_weights(cell)) library.define(schema(cell));
  }
  Library cpu = Library::for_device("CPU");
  implement(cpu, std::make_integer_sequence<CellIndex, Cells::kCount>{});
});

}  // namespace
}  // namespace rotcell::ops
