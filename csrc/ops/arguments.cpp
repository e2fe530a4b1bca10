#include "ops/arguments.h"

#include <algorithm>

namespace rotcell::ops {
namespace {

bool has_sizes(const Tensor& tensor, Sizes sizes) {
  const std::span<const int64_t> found = tensor.sizes();
  return std::equal(found.begin(), found.end(), sizes.begin(), sizes.end());
}

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

  // Rows for all tokens, or one that is the same for all.
  void check_shares(const char* name, const Tensor& tensor, int64_t tokens, int64_t width) const {
    if (!tensor) return;
    if (tensor.dim() != 2 || tensor.size(0) != 1) {
      check_tensor(name, tensor, {tokens, width});
    } else {
      check_tensor(name, tensor, {1, width});
    }
  }

  void check_marks(const char* name, const Tensor& tensor, int64_t tokens) const {
    if (!tensor) return;
    if (tensor.dtype() != boolean()) {
      fail("expected ", name, " of type Bool, got ", dtype_name(tensor.dtype()));
    }
    Kind{boolean(), device}.check_tensor(name, tensor, {tokens});
  }

  // What the forward op saved is of the type that it saves in.
  void check_saved(const char* name, const Tensor& tensor, Sizes sizes, DType type) const {
    if (has_sizes(tensor, sizes) && tensor.dtype() == type) return;
    fail("expected ", name, " as the forward op saved it, of shape ", sizes_text(sizes),
         " and type ", dtype_name(type), ", got ", sizes_text(tensor.sizes()), " and ",
         dtype_name(tensor.dtype()));
  }
};

LayerSizes check_layer(const CellDescription& cell, const LayerArguments& a, const Kind& kind) {
  compute_type(kind.dtype);
  check_functions(a);
  check_matrix("x", a.x);
  check_matrix("h0", a.h0);
  if (cell.has_memory) check_matrix("c0", a.c0);
  LayerSizes sizes;
  sizes.tokens = a.x.size(0);
  sizes.inputs = a.x.size(1);
  sizes.batch = a.h0.size(0);
  sizes.hidden = (cell.has_memory ? a.c0 : a.h0).size(1);
  sizes.outputs = a.w_hr ? a.h0.size(1) : sizes.hidden;
  sizes.gate_rows = cell.rows(sizes.hidden);
  kind.check_tensor("h0", a.h0, {sizes.batch, sizes.outputs});
  kind.check_tensor("c0", a.c0, {sizes.batch, sizes.hidden});
  kind.check_tensor("w_ih", a.w_ih, {sizes.gate_rows, sizes.inputs});
  kind.check_tensor("w_hh", a.w_hh, {sizes.gate_rows, sizes.outputs});
  kind.check_tensor("w_hr", a.w_hr, {sizes.outputs, sizes.hidden});
  const ChangeTensors& changes = a.changes;
  kind.check_marks("resets", changes.resets, sizes.tokens);
  kind.check_tensor("recurrent_dropout", changes.recurrent_dropout, {sizes.batch, sizes.outputs});
  kind.check_shares("zoneout_h", changes.zoneout_h, sizes.tokens, sizes.hidden);
  kind.check_shares("zoneout_c", changes.zoneout_c, sizes.tokens, sizes.hidden);
  check(!a.w_hr || !(changes.zoneout_h || changes.zoneout_c),
        "there is no zoneout with a projection");
  return sizes;
}

}  // namespace

DType compute_type(DType storage) {
  if (storage == float32() || storage == float64()) return storage;
  if (storage == float16() || storage == bfloat16()) return float32();
  fail("expected x of type float32, float64, float16 or bfloat16, got ", dtype_name(storage));
}

GateFunctions check_functions(const LayerArguments& a) {
  for (const auto& [name, value] : {std::pair("gate_function", a.gate_function),
                                    std::pair("angle_function", a.angle_function)}) {
    check(value >= 0 && value < kGateFunctionCount, "expected ", name, " to be 0 (sigmoid) or 1 ",
          "(hard_sigmoid), got ", value);
  }
  return {static_cast<GateFunction>(a.gate_function), static_cast<GateFunction>(a.angle_function)};
}

LayerSizes check_arguments(const CellDescription& cell, const ForwardArguments& a) {
  const Kind kind(a.x);
  const LayerSizes sizes = check_layer(cell, a, kind);
  kind.check_tensor("b_ih", a.b_ih, {sizes.gate_rows});
  kind.check_tensor("b_hh", a.b_hh, {sizes.gate_rows});
  kind.check_tensor("row_bias", a.row_bias, {sizes.batch, sizes.gate_rows});
  check(!a.row_bias || !(a.b_ih || a.b_hh), "expected no b_ih and b_hh beside row_bias");
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
  if (cell.has_memory) kind.check_saved("cells", a.cells, {sizes.tokens, sizes.hidden}, type);
  Kind(type, kind.device).check_tensor("grad_cells", a.grad_cells, {sizes.tokens, sizes.hidden});
  return sizes;
}

}  // namespace rotcell::ops
