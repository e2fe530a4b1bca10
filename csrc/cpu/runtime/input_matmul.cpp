#include "cpu/runtime/input_matmul.h"

#include <algorithm>

#include "cpu/runtime/packing.h"

namespace rotcell::cpu {
namespace {

// result = bias + rows x panels, on as many threads as it is worth.
template <class T, class R>
void multiply_packed(const T* rows, int64_t row_stride, int64_t count, int64_t depth,
                     const T* panels, int64_t columns, const MathType<T>* bias, R* result,
                     int64_t result_stride) {
  const Kernels<T>& kernels = cpu::kernels<T>();
  for_row_tiles(count, kernels.row_tile, depth * columns, [&](int64_t begin, int64_t end) {
    const auto multiply = [&] {
      if constexpr (std::is_same_v<R, T>)
        return kernels.matmul_stored;
      else
        return kernels.matmul;
    }();
    multiply(rows + begin * row_stride, row_stride, end - begin, depth, panels, columns, bias,
             result + begin * result_stride, result_stride);
  });
}

// bias [G], one that all columns have, from those of a layer.
template <class T>
Buffer<MathType<T>> bias_of_columns(const LayerForward<T>& layer) {
  const LayerSizes& sizes = layer.sizes;
  Buffer<MathType<T>> sum(sizes.gate_rows);
  std::fill_n(sum.data(), sizes.gate_rows, MathType<T>{0});
  if (layer.b_ih) std::copy_n(layer.b_ih, sizes.bias_rows, sum.data());
  if (!layer.b_hh) return sum;
  for (const auto& [column, row, count] : sizes.recurrent) {
    for (int64_t i = 0; i < count; ++i) sum.data()[column + i] += layer.b_hh[row + i];
  }
  return sum;
}

}  // namespace

template <class T>
InputMatmul<T>::InputMatmul(const CallPlan& plan, const LayerForward<T>& layer)
    : plan_(plan), layer_(layer) {
  if (!plan.packs_input_weights()) return;
  const bool has_bias = layer.b_ih || layer.b_hh;
  if (!plan.by_step()) {
    weights_ = packed(kernels<T>().forward_weights, layer.w_ih, layer.sizes.input_rows,
                      layer.sizes.inputs);
  } else if (layer.row_bias) {
    bias_ = layer.row_bias;
    return;
  }
  if (has_bias || plan.by_step()) {
    bias_sum_ = bias_of_columns(layer);
    bias_ = bias_sum_.data();
  }
}

template <class T>
const T* InputMatmul<T>::x(const Chunk& chunk) {
  const int64_t inputs = layer_.sizes.inputs, first = chunk.first_token * inputs;
  if (layer_.x.storage == storage_of<T>()) return static_cast<const T*>(layer_.x.data) + first;
  if constexpr (std::is_same_v<T, float>) {
    const int64_t count = chunk.tokens * inputs;
    x_chunk_ = Buffer<T>(count);
    for_slices(count, [&](Slice slice) {
      const int64_t begin = slice.begin(count);
      to_float(layer_.x.data, layer_.x.storage, first + begin, slice.end(count) - begin,
               x_chunk_.data() + begin);
    });
  }
  return x_chunk_.data();
}

template <class T>
void InputMatmul<T>::write(const Chunk& chunk, MathType<T>* gates) {
  if (plan_.packs_input_weights()) {
    const LayerSizes& sizes = layer_.sizes;
    multiply_packed(x(chunk), sizes.inputs, chunk.tokens, sizes.inputs, weights_.data(),
                    sizes.input_rows, bias(), gates, sizes.gate_rows);
    const int64_t rest = sizes.gate_rows - sizes.input_rows;
    for (int64_t token = 0; rest > 0 && token < chunk.tokens; ++token) {
      MathType<T>* of_h = gates + token * sizes.gate_rows + sizes.input_rows;
      if (bias()) {
        std::copy_n(bias() + sizes.input_rows, rest, of_h);
      } else {
        std::fill_n(of_h, rest, MathType<T>{0});
      }
    }
  } else if constexpr (!kRoundsStored<T>) {
    write_unpacked(chunk, gates);
  }
}

template <class T>
void InputMatmul<T>::write_unpacked(const Chunk& chunk, T* gates) {
  const int64_t columns = layer_.sizes.gate_rows, inputs = layer_.sizes.inputs;
  const int64_t rows = layer_.sizes.input_rows, tokens = chunk.tokens;
  const T* x = this->x(chunk);
  const Buffer<MathType<T>> bias = bias_of_columns(layer_);
  for (int64_t token = 0; token < tokens; ++token) {
    std::copy_n(bias.data(), columns, gates + token * columns);
  }
  for_slices(rows * inputs, [&](Slice slice) {
    const int64_t begin = slice.begin(rows), end = slice.end(rows);
    kernels<T>().add_unpacked(x, tokens, inputs, layer_.w_ih + begin * inputs, end - begin,
                              gates + begin, columns);
  });
}

template <class T>
InputGradientMatmul<T>::InputGradientMatmul(const CallPlan& plan, const LayerBackward<T>& layer)
    : plan_(plan), layer_(layer) {
  if (layer.grad_x && plan.packs_input_weights() && !plan.is_batch_vectorized()) {
    weights_ = packed(kernels<T>().backward_weights, layer.w_ih, layer.sizes.input_rows,
                      layer.sizes.inputs);
  }
}

template <class T>
void InputGradientMatmul<T>::write(const Chunk& chunk, const T* grad_gates) {
  if (!layer_.grad_x || plan_.by_step()) return;
  const int64_t columns = layer_.sizes.gate_rows, inputs = layer_.sizes.inputs;
  const int64_t rows = layer_.sizes.input_rows;
  T* gradient = layer_.grad_x + chunk.first_token * inputs;
  if (plan_.packs_input_weights()) {
    multiply_packed<T>(grad_gates, columns, chunk.tokens, rows, packed_weights(), inputs, nullptr,
                       gradient, inputs);
    return;
  }
  for_slices(rows * inputs, [&](Slice slice) {
    const int64_t begin = slice.begin(inputs), end = slice.end(inputs);
    kernels<T>().unpacked_back(grad_gates, columns, chunk.tokens, rows, layer_.w_ih + begin, inputs,
                               end - begin, gradient + begin, inputs);
  });
}

template class InputMatmul<float>;
template class InputMatmul<double>;
template class InputMatmul<BFloat16>;
template class InputGradientMatmul<float>;
template class InputGradientMatmul<double>;
template class InputGradientMatmul<BFloat16>;

}  // namespace rotcell::cpu
