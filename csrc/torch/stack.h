// torch's stack of arguments and results, and schemas as text.
#pragma once

#include <bit>
#include <string>

#include "torch/arguments.h"

namespace rotcell::ops {

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
inline Lead take_lead(Tensor& tensor) {
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

  // Lays out output and last states as input and states came.
  void put_before(ForwardResult& result) const {
    tokens.put_before(result.out);
    states.put_before(result.h_n);
    states.put_before(result.c_n);
  }
};

// The weights, but for the projection's, as forward takes them.
inline Items& add_weights(Items& inputs, const CellDescription& cell, bool with_biases) {
  inputs.add("Tensor w_ih").add("Tensor w_hh", cell.has_recurrent_weights());
  with_biases = with_biases && cell.has_biases();
  return inputs.add("Tensor? b_ih", with_biases).add("Tensor? b_hh", with_biases);
}
inline Items& add_parameters(Items& inputs, const CellDescription& cell) {
  for (int i = 0; i < cell.parameter_count; ++i) {
    inputs.add((std::string("Tensor ") + cell.parameter(i).name).c_str());
  }
  return inputs;
}
inline Items& add_options(Items& inputs, const CellDescription& cell) {
  return inputs.add("Tensor? batch_sizes")
      .add("bool reverse")
      .add("int gate_activation")
      .add("int angle_activation")
      .add("float norm", cell.has_norm);
}

inline void read_weights(StackReader& read, const CellDescription& cell, bool with_biases,
                         LayerArguments& a) {
  a.w_ih = read.tensor();
  a.w_hh = read.tensor_if(cell.has_recurrent_weights());
  with_biases = with_biases && cell.has_biases();
  a.b_ih = read.optional_tensor_if(with_biases);
  a.b_hh = read.optional_tensor_if(with_biases);
}
inline void read_parameters(StackReader& read, const CellDescription& cell, LayerArguments& a) {
  for (int i = 0; i < cell.parameter_count; ++i) a.parameters[i] = read.tensor();
}
inline void read_options(StackReader& read, const CellDescription& cell, LayerArguments& a) {
  a.batch_sizes = read.optional_tensor();
  a.reverse = read.boolean();
  a.gate_activation = read.integer();
  a.angle_activation = read.integer();
  if (cell.has_norm) a.norm = read.number();
}

inline Items& add_hooks(Items& inputs, const CellDescription& cell) {
  return inputs.add("Tensor? resets")
      .add("Tensor? recurrent_dropout")
      .add("Tensor? zoneout_h")
      .add("Tensor? zoneout_c", cell.has_cell_state);
}

inline void read_hooks(StackReader& read, const CellDescription& cell, HookTensors& hooks) {
  hooks.resets = read.optional_tensor();
  hooks.recurrent_dropout = read.optional_tensor();
  hooks.zoneout_h = read.optional_tensor();
  hooks.zoneout_c = read.optional_tensor_if(cell.has_cell_state);
}

}  // namespace rotcell::ops
