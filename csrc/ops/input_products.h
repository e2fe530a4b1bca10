// The products with w_ih: what x gives to the gates, and the gradient of x.
#pragma once

#include <ATen/ops/empty.h>

#include <algorithm>

#include "ops/sequence.h"

namespace rotcell::ops {

enum class InputProducts {
  kByStep,    // in the kernel, in one go with the recurrent product: best while all weights, which
              // every step then reads, stay in the cache
  kByPiece,   // for all tokens of a piece at once: best for large weights, or few rows a step
  kUnpacked,  // for all tokens at once, w_hh not being packed either: best for a handful of tokens
};

inline InputProducts input_products(int64_t tokens, int64_t batch, const at::Tensor& w_ih,
                                    const at::Tensor& w_hh, const Sharing& sharing) {
  constexpr int64_t kFewRows = 8, kFewTokens = 16, kCachedBytes = 4 << 20;
  if (batch < kFewRows) {
    return tokens < kFewTokens ? InputProducts::kUnpacked : InputProducts::kByPiece;
  }
  const int64_t bytes = (w_ih.numel() + w_hh.numel()) * w_ih.element_size();
  // Kernels make the gradient of x only if they have all units.
  const bool by_step = bytes <= kCachedBytes && !sharing.units_are_shared();
  return by_step ? InputProducts::kByStep : InputProducts::kByPiece;
}

// result = bias + rows x panels, on as many threads as it is worth.
template <class T>
void multiply_packed(const at::Tensor& rows, const at::Tensor& panels, int64_t columns,
                     const at::Tensor& bias, T* result) {
  const cpu::Kernels<T>& kernels = cpu::kernels<T>();
  const int64_t count = rows.size(0), depth = rows.size(1);
  for_row_tiles(count, kernels.row_tile, depth * columns, [&](int64_t begin, int64_t end) {
    kernels.product(rows.const_data_ptr<T>() + begin * depth, end - begin, depth,
                    panels.const_data_ptr<T>(), columns, data_or_null<T>(bias),
                    result + begin * columns);
  });
}

// The gates of a forward pass, piece by piece of the sequence, and what x gives to them.
template <class T>
class ForwardGates {
 public:
  // All tensors but x, which is converted piece by piece, are contiguous and of type T.
  ForwardGates(const at::Tensor& x, int64_t batch, const at::Tensor& w_ih, const at::Tensor& w_hh,
               const at::Tensor& b_ih, const at::Tensor& b_hh, const Sharing& sharing, bool save)
      : products_(input_products(x.size(0), batch, w_ih, w_hh, sharing)),
        x_(x),
        gate_rows_(w_ih.size(0)),
        type_(w_ih.scalar_type()),
        save_(save) {
    if (save) {
      gates_ = empty_for_backward(x.size(0), gate_rows_, w_ih.options());
    } else {
      const int64_t tokens = by_step() ? 0 : std::min(x.size(0), max_tokens());
      gates_ = at::empty({std::max(batch, tokens), gate_rows_}, w_ih.options());
    }
    if (products_ == InputProducts::kUnpacked) {
      multiply_unpacked(w_ih, b_ih, b_hh);
      return;
    }
    bias_ = total_bias(b_ih, b_hh);
    if (!by_step()) weights_ = packed(cpu::kernels<T>().forward_weights, w_ih);
  }

  bool packs() const { return products_ != InputProducts::kUnpacked; }
  bool by_step() const { return products_ == InputProducts::kByStep; }

  // How many tokens a piece may have, so that what is made for all of them (x in another type, its
  // product) stays in the cache.
  int64_t max_tokens() const {
    constexpr int64_t kElements = 1 << 18, kLeastTokens = 256;
    if (by_step() && x_.scalar_type() == type_) return SequenceSteps::kNoLimit;
    return std::max(kLeastTokens, kElements / std::max<int64_t>(1, gate_rows_));
  }

  // Gives a kernel the gates of a piece, and x or what comes of it.
  template <class Params>
  void prepare(int64_t first_token, int64_t tokens, Params& p) {
    p.gates = gates_.template data_ptr<T>() + (save_ ? first_token * gate_rows_ : 0);
    if (!packs()) return;
    x_piece_ = prepared(tokens == x_.size(0) ? x_ : x_.narrow(0, first_token, tokens), type_);
    if (by_step()) {
      p.inputs = x_.size(1);
      p.x = x_piece_.template const_data_ptr<T>();
      p.bias = data_or_null<T>(bias_);
    } else {
      multiply_packed<T>(x_piece_, weights_, gate_rows_, bias_, p.gates);
    }
  }

  const at::Tensor& gates() const { return gates_; }

 private:
  // What x and the biases give to all gates, without packing.
  void multiply_unpacked(const at::Tensor& w_ih, const at::Tensor& b_ih, const at::Tensor& b_hh) {
    x_piece_ = prepared(x_, type_);
    const int64_t tokens = x_.size(0), inputs = x_.size(1);
    const T* x = x_piece_.template const_data_ptr<T>();
    const T* weights = w_ih.const_data_ptr<T>();
    const T* const biases[] = {data_or_null<T>(b_ih), data_or_null<T>(b_hh)};
    T* gates = gates_.template data_ptr<T>();
    std::fill(gates, gates + tokens * gate_rows_, T{0});
    for (const T* bias : biases) {
      for (int64_t token = 0; bias && token < tokens; ++token) {
        for (int64_t row = 0; row < gate_rows_; ++row) gates[token * gate_rows_ + row] += bias[row];
      }
    }
    for_shares(w_ih.numel(), [&](cpu::Share share) {
      const int64_t begin = share.begin(gate_rows_), end = share.end(gate_rows_);
      cpu::kernels<T>().add_unpacked(x, tokens, inputs, weights + begin * inputs, end - begin,
                                     gates + begin, gate_rows_);
    });
  }

  InputProducts products_;
  at::Tensor x_, bias_;
  int64_t gate_rows_;
  at::ScalarType type_;
  bool save_;
  at::Tensor weights_;  // packed, if products are made by piece
  at::Tensor gates_;    // [N, G] if save; otherwise enough for a step or a piece
  at::Tensor x_piece_;  // of type T
};

// The gradient of x, made by the kernel or, piece by piece, here.
template <class T>
class InputGradient {
 public:
  InputGradient(const at::Tensor& x, const at::Tensor& w_ih, InputProducts products)
      : products_(products), w_ih_(w_ih), gradient_(at::empty(x.sizes(), x.options())) {
    if (products != InputProducts::kUnpacked) {
      weights_ = packed(cpu::kernels<T>().backward_weights, w_ih);
    }
  }

  // Tells a kernel to make it, if it is to.
  template <class Params>
  void prepare(Params& p) {
    if (products_ != InputProducts::kByStep) return;
    p.input = weights_.template const_data_ptr<T>();
    p.grad_x = gradient_.template data_ptr<T>();
  }

  void add(const cpu::Piece& piece, const at::Tensor& grad_gates) {  // [piece.tokens, gate_rows]
    at::Tensor rows = gradient_.narrow(0, piece.first_token, piece.tokens);
    if (products_ == InputProducts::kByPiece) {
      multiply_packed<T>(grad_gates, weights_, rows.size(1), {}, rows.template data_ptr<T>());
    } else if (products_ == InputProducts::kUnpacked) {
      const int64_t inputs = rows.size(1), gate_rows = grad_gates.size(1);
      for_shares(w_ih_.numel(), [&](cpu::Share share) {
        const int64_t begin = share.begin(inputs), end = share.end(inputs);
        cpu::kernels<T>().unpacked_back(grad_gates.template const_data_ptr<T>(), piece.tokens,
                                        gate_rows, w_ih_.template const_data_ptr<T>() + begin,
                                        inputs, end - begin, rows.template data_ptr<T>() + begin,
                                        inputs);
      });
    }
  }

  const at::Tensor& gradient() const { return gradient_; }

 private:
  InputProducts products_;
  at::Tensor w_ih_;
  at::Tensor weights_;  // packed, if they are
  at::Tensor gradient_;
};

}  // namespace rotcell::ops
