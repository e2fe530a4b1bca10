#include "ops/input_products.h"

#include <algorithm>

namespace rotcell::ops {
namespace {

template <class T>
Tensor total_bias(const Tensor& b_ih, const Tensor& b_hh) {
  if (!b_ih || !b_hh) return (b_ih ? b_ih : b_hh).borrow();
  const int64_t count = b_ih.numel();
  Tensor sum = Tensor::empty({count}, dtype_of<T>());
  std::transform(b_ih.const_data<T>(), b_ih.const_data<T>() + count, b_hh.const_data<T>(),
                 sum.data<T>(), [](T a, T b) { return a + b; });
  return sum;
}

// result = bias + rows x panels, on as many threads as it is worth.
template <class T>
void multiply_packed(const T* rows, int64_t count, int64_t depth, const T* panels, int64_t columns,
                     const T* bias, T* result) {
  const cpu::Kernels<T>& kernels = cpu::kernels<T>();
  for_row_tiles(count, kernels.row_tile, depth * columns, [&](int64_t begin, int64_t end) {
    kernels.product(rows + begin * depth, end - begin, depth, panels, columns, bias,
                    result + begin * columns);
  });
}

}  // namespace

template <class T>
InputProducts<T>::InputProducts(const CallPlan& plan, const LayerSizes& sizes, const Tensor& x,
                                const Tensor& w_ih, const Tensor& b_ih, const Tensor& b_hh,
                                const Tensor& row_bias)
    : plan_(plan), sizes_(sizes), x_(x), w_ih_(w_ih), b_ih_(b_ih), b_hh_(b_hh) {
  if (!plan.packs_input_weights()) return;
  bias_ = total_bias<T>(b_ih, b_hh);
  if (plan.by_step()) {
    if (row_bias) bias_ = row_bias.borrow();
    if (!bias_) bias_ = Tensor::zeros({sizes.gate_rows}, dtype_of<T>());
  } else {
    weights_ = packed(cpu::kernels<T>().forward_weights, w_ih);
  }
}

template <class T>
const T* InputProducts<T>::x(const Chunk& chunk) {
  if (chunk.tokens == sizes_.tokens) {
    x_chunk_ = x_.as_contiguous(dtype_of<T>());
  } else {
    const Tensor rows = x_.narrow(0, chunk.first_token, chunk.tokens);
    x_chunk_ = owned_as(rows.as_contiguous(dtype_of<T>()), dtype_of<T>());
  }
  return x_chunk_.template const_data<T>();
}

template <class T>
void InputProducts<T>::write(const Chunk& chunk, T* gates) {
  if (plan_.packs_input_weights()) {
    multiply_packed(x(chunk), chunk.tokens, sizes_.inputs, weights_.template const_data<T>(),
                    sizes_.gate_rows, bias(), gates);
  } else {
    write_unpacked(chunk, gates);
  }
}

template <class T>
void InputProducts<T>::write_unpacked(const Chunk& chunk, T* gates) {
  const int64_t rows = sizes_.gate_rows, inputs = sizes_.inputs, tokens = chunk.tokens;
  const T* x = this->x(chunk);
  const T* weights = w_ih_.const_data<T>();
  std::fill(gates, gates + tokens * rows, T{0});
  for (const T* bias : {b_ih_.const_data<T>(), b_hh_.const_data<T>()}) {
    for (int64_t token = 0; bias && token < tokens; ++token) {
      for (int64_t row = 0; row < rows; ++row) gates[token * rows + row] += bias[row];
    }
  }
  for_slices(rows * inputs, [&](cpu::Slice slice) {
    const int64_t begin = slice.begin(rows), end = slice.end(rows);
    cpu::kernels<T>().add_unpacked(x, tokens, inputs, weights + begin * inputs, end - begin,
                                   gates + begin, rows);
  });
}

template <class T>
InputGradient<T>::InputGradient(const CallPlan& plan, const LayerSizes& sizes, const Tensor& w_ih)
    : plan_(plan),
      sizes_(sizes),
      w_ih_(w_ih),
      gradient_(Tensor::empty({sizes.tokens, sizes.inputs}, dtype_of<T>())) {
  if (plan.packs_input_weights() && !plan.rows_in_lanes()) {
    weights_ = packed(cpu::kernels<T>().backward_weights, w_ih);
  }
}

template <class T>
void InputGradient<T>::write(const Chunk& chunk, const T* grad_gates) {
  if (plan_.by_step()) return;
  const int64_t rows = sizes_.gate_rows, inputs = sizes_.inputs;
  T* gradient = data() + chunk.first_token * inputs;
  if (plan_.packs_input_weights()) {
    multiply_packed<T>(grad_gates, chunk.tokens, rows, packed_weights(), inputs, nullptr, gradient);
    return;
  }
  const T* weights = w_ih_.const_data<T>();
  for_slices(rows * inputs, [&](cpu::Slice slice) {
    const int64_t begin = slice.begin(inputs), end = slice.end(inputs);
    cpu::kernels<T>().unpacked_back(grad_gates, chunk.tokens, rows, weights + begin, inputs,
                                    end - begin, gradient + begin, inputs);
  });
}

template class InputProducts<float>;
template class InputProducts<double>;
template class InputGradient<float>;
template class InputGradient<double>;

}  // namespace rotcell::ops
