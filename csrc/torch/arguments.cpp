#include "torch/arguments.h"

#include <algorithm>
#include <limits>

namespace rotcell::ops {
namespace {

bool has_sizes(const Tensor& tensor, Sizes sizes) {
  const std::span<const int64_t> found = tensor.sizes();
  return std::equal(found.begin(), found.end(), sizes.begin(), sizes.end());
}

struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

void check_storages_of(std::initializer_list<NamedTensor> arguments) {
  for (const auto& [name, tensor] : arguments) {
    if (tensor && !tensor.has_its_storage()) {
      fail("expected ", name, " with a storage of all its elements, got shape ",
           sizes_text(tensor.sizes()), " on a storage that is too small or was freed");
    }
  }
}

// The kernels multiply these, in 64 bits.
constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

void check_matrix(const char* name, const Tensor& tensor) {
  check(tensor.dim() == 2, "expected ", name, " with 2 or 3 dimensions, got ", tensor.dim());
}

// What all tensors of a call have in common.
struct Kind {
  DType dtype;
  Device device;

  explicit Kind(const Tensor& x) : Kind(x.dtype(), x.device()) {}
  Kind(DType type, Device where) : dtype(type), device(where) {}

  // Nothing is expected of an undefined tensor.
  void check_tensor(const char* name, const Tensor& tensor, Sizes sizes) const {
    if (!tensor) return;
    if (!has_sizes(tensor, sizes)) {
      fail("expected ", name, " of shape ", sizes_text(sizes), ", got ",
           sizes_text(tensor.sizes()));
    }
    if (tensor.dtype() != dtype) {
      fail("expected ", name, " of type ", dtype_name(dtype), ", as x, got ",
           dtype_name(tensor.dtype()));
    }
    if (tensor.device() != device) {
      fail("expected ", name, " on ", device_name(device), ", as x, got ",
           device_name(tensor.device()));
    }
  }

  // One row per token, or a single row for all tokens.
  void check_zoneout_keep(const char* name, const Tensor& tensor, int64_t tokens,
                          int64_t width) const {
    if (!tensor) return;
    if (tensor.dim() != 2 || tensor.size(0) != 1) {
      check_tensor(name, tensor, {tokens, width});
    } else {
      check_tensor(name, tensor, {1, width});
    }
  }

  void check_reset_mask(const char* name, const Tensor& tensor, int64_t tokens) const {
    if (!tensor) return;
    if (tensor.dtype() != boolean()) {
      fail("expected ", name, " of type Bool, got ", dtype_name(tensor.dtype()));
    }
    Kind{boolean(), device}.check_tensor(name, tensor, {tokens});
  }

  // What the forward op saved has the type that it saves in.
  void check_saved(const char* name, const Tensor& tensor, Sizes sizes, DType type) const {
    if (has_sizes(tensor, sizes) && tensor.dtype() == type) return;
    fail("expected ", name, " as the forward op saved it, of shape ", sizes_text(sizes),
         " and type ", dtype_name(type), ", got ", sizes_text(tensor.sizes()), " and ",
         dtype_name(tensor.dtype()));
  }
};

// The parameters of a row cell. All that have layers have the same number of them.
void check_parameters(const CellDescription& cell, const LayerArguments& a, int64_t hidden,
                      const Kind& kind) {
  check(a.norm >= 0, "expected norm to be positive, or 0 for none, got ", a.norm);
  for (int i = 0; i < cell.parameter_count; ++i) {
    const RowParameter parameter = cell.parameter(i);
    const int64_t width = parameter.row(hidden, cell.input_rows(hidden));
    if (parameter.of_layers) {
      check(a.parameters[i].dim() == 2, "expected ", parameter.name, " with 2 dimensions, got ",
            a.parameters[i].dim());
      kind.check_tensor(parameter.name, a.parameters[i], {layers_of(cell, a), width});
    } else {
      kind.check_tensor(parameter.name, a.parameters[i], {width});
    }
  }
}

LayerSizes check_layer(const CellDescription& cell, const LayerArguments& a, const Kind& kind) {
  compute_type(kind.dtype);
  check_functions(a);
  check_matrix("x", a.x);
  check_matrix("h0", a.h0);
  if (cell.has_cell_state) check_matrix("c0", a.c0);
  const int64_t hidden = (cell.has_cell_state ? a.c0 : a.h0).size(1);
  const auto sizes_with = [&](HiddenFeeds feeds) {
    return layer_sizes(cell, a.x.size(0), a.x.size(1), a.h0.size(0), hidden,
                       a.w_hr ? a.h0.size(1) : hidden, feeds);
  };
  LayerSizes sizes = sizes_with(HiddenFeeds::kAll);
  check_sizes(sizes);
  // A w_hh without rows for the angles: x alone feeds them.
  if (cell.has_angles && a.w_hh.dim() == 2 && a.w_hh.size(0) < sizes.recurrent_rows()) {
    const LayerSizes without_angles = sizes_with(HiddenFeeds::kGates);
    if (a.w_hh.size(0) == without_angles.recurrent_rows()) sizes = without_angles;
    check(sizes.hidden_feeds == HiddenFeeds::kAll || kind.device.is_cpu(),
          "expected w_hh with rows for the angles: the kernels of ", device_name(kind.device),
          " do not take them from x alone");
  }
  // A w_hh without any rows, of a cell that needs h for nothing else.
  if (cell.can_project && a.w_hh.dim() == 2 && a.w_hh.size(0) == 0 && kind.device.is_cpu()) {
    sizes = sizes_with(HiddenFeeds::kNothing);
  }
  kind.check_tensor("h0", a.h0, {sizes.batch, sizes.outputs});
  kind.check_tensor("c0", a.c0, {sizes.batch, sizes.hidden});
  kind.check_tensor("w_ih", a.w_ih, {sizes.input_rows, sizes.inputs});
  kind.check_tensor("w_hh", a.w_hh, {sizes.recurrent_rows(), sizes.outputs});
  kind.check_tensor("w_hr", a.w_hr, {sizes.outputs, sizes.hidden});
  const HookTensors& hooks = a.hooks;
  kind.check_reset_mask("resets", hooks.resets, sizes.tokens);
  kind.check_tensor("recurrent_dropout", hooks.recurrent_dropout, {sizes.batch, sizes.outputs});
  kind.check_zoneout_keep("zoneout_h", hooks.zoneout_h, sizes.tokens, sizes.hidden);
  kind.check_zoneout_keep("zoneout_c", hooks.zoneout_c, sizes.tokens, sizes.hidden);
  check(!a.w_hr || !(hooks.zoneout_h || hooks.zoneout_c),
        "expected no zoneout with a projection (w_hr), got both");
  kind.check_tensor("b_ih", a.b_ih, {sizes.bias_rows});
  kind.check_tensor("b_hh", a.b_hh, {sizes.recurrent_rows()});
  check_parameters(cell, a, sizes.hidden, kind);
  return sizes;
}

}  // namespace

DType compute_type(DType storage) {
  if (storage == float32() || storage == float64()) return storage;
  if (storage == float16() || storage == bfloat16()) return float32();
  fail("expected x of type float32, float64, float16 or bfloat16, got ", dtype_name(storage));
}

Activations check_functions(const LayerArguments& a) {
  for (const auto& [name, value] : {std::pair("gate_activation", a.gate_activation),
                                    std::pair("angle_activation", a.angle_activation)}) {
    check(value >= 0 && value < kGateActivationCount, "expected ", name, " to be 0 (sigmoid) or 1 ",
          "(hard_sigmoid), got ", value);
  }
  return {static_cast<GateActivation>(a.gate_activation),
          static_cast<GateActivation>(a.angle_activation)};
}

int64_t layers_of(const CellDescription& cell, const LayerArguments& a) {
  for (int i = 0; i < cell.parameter_count; ++i) {
    if (cell.parameter(i).of_layers) return a.parameters[i].size(0);
  }
  return 0;
}

void check_sizes(const LayerSizes& sizes) {
  for (const auto& [name, size] :
       {std::pair("x with at most ", sizes.inputs), std::pair("h0 with at most ", sizes.outputs),
        std::pair("c0 with at most ", sizes.hidden)}) {
    check(size <= kLargest, "expected ", name, kLargest, " features, got ", size);
  }
  // Without features any number of rows takes no memory, but each of them its time.
  if (sizes.inputs == 0 || sizes.outputs == 0) {
    check(sizes.tokens <= kLargest, "expected x with at most ", kLargest,
          " rows, because there are no features in x or in h0, got ", sizes.tokens);
    check(sizes.batch <= kLargest, "expected h0 with at most ", kLargest,
          " rows, because there are no features in x or in h0, got ", sizes.batch);
  }
}

void check_storages(const CellDescription& cell, const LayerArguments& a) {
  check_storages_of({{"x", a.x},
                     {"h0", a.h0},
                     {"c0", a.c0},
                     {"w_ih", a.w_ih},
                     {"w_hh", a.w_hh},
                     {"w_hr", a.w_hr},
                     {"b_ih", a.b_ih},
                     {"b_hh", a.b_hh},
                     {"batch_sizes", a.batch_sizes},
                     {"resets", a.hooks.resets},
                     {"recurrent_dropout", a.hooks.recurrent_dropout},
                     {"zoneout_h", a.hooks.zoneout_h},
                     {"zoneout_c", a.hooks.zoneout_c}});
  for (int i = 0; i < cell.parameter_count; ++i) {
    check_storages_of({{cell.parameter(i).name, a.parameters[i]}});
  }
}

void check_storages(const CellDescription& cell, const ForwardArguments& a) {
  check_storages(cell, static_cast<const LayerArguments&>(a));
  check_storages_of({{"row_bias", a.row_bias}});
}

void check_storages(const CellDescription& cell, const BackwardArguments& a) {
  check_storages(cell, static_cast<const LayerArguments&>(a));
  check_storages_of({{"grad_out", a.grad_out},
                     {"grad_h_n", a.grad_h_n},
                     {"grad_c_n", a.grad_c_n},
                     {"grad_cells", a.grad_cells},
                     {"out", a.out},
                     {"gates", a.gates},
                     {"cells", a.cells}});
}

LayerSizes check_arguments(const CellDescription& cell, const ForwardArguments& a) {
  const Kind kind(a.x);
  const LayerSizes sizes = check_layer(cell, a, kind);
  kind.check_tensor("row_bias", a.row_bias, {sizes.batch, sizes.gate_rows});
  check(!a.row_bias || !(a.b_ih || a.b_hh), "expected no b_ih and b_hh with row_bias");
  return sizes;
}

LayerSizes check_arguments(const CellDescription& cell, const BackwardArguments& a, Saved saved) {
  const Kind kind(a.x);
  const LayerSizes sizes = check_layer(cell, a, kind);
  kind.check_tensor("out", a.out, {sizes.tokens, sizes.outputs});
  kind.check_tensor("grad_out", a.grad_out, {sizes.tokens, sizes.outputs});
  kind.check_tensor("grad_h_n", a.grad_h_n, {sizes.batch, sizes.outputs});
  kind.check_tensor("grad_c_n", a.grad_c_n, {sizes.batch, sizes.hidden});
  const DType type = saved == Saved::kAsComputed ? compute_type(kind.dtype) : kind.dtype;
  kind.check_saved("gates", a.gates, {sizes.tokens, sizes.gate_rows}, type);
  if (cell.has_cell_state) kind.check_saved("cells", a.cells, {sizes.tokens, sizes.hidden}, type);
  Kind(type, kind.device).check_tensor("grad_cells", a.grad_cells, {sizes.tokens, sizes.hidden});
  return sizes;
}

}  // namespace rotcell::ops
