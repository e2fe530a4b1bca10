#include "ops/weight_gradients.h"

#include <algorithm>

#include "cpu/kernels.h"
#include "ops/buffers.h"
#include "ops/threads.h"

namespace rotcell::ops {

template <class T>
WeightGradients<T>::WeightGradients(const CellDescription& cell, const LayerSizes& sizes,
                                    const Sequence& sequence, const Tensor& x, const Tensor& h0,
                                    const Tensor& out, int64_t chunk_tokens)
    : sizes_(sizes), sequence_(sequence), x_(x), h0_(h0), out_(out) {
  const int64_t tokens = std::min({chunk_tokens, sizes.tokens, cpu::kMostPieceTokens});
  const int64_t elements = cpu::kernels<T>().factor_elements(tokens, sizes.inputs + sizes.outputs);
  with_h_ = empty_buffer<T>({elements});
  if (cell.stages > 1) {
    operand_rows_ = {cell.first_row_of_product(1, sizes.hidden),
                     cell.rows_of_product(1, sizes.hidden)};
    with_operands_ = empty_buffer<T>({elements});
  }
  const auto gradient = [&](Sizes shape) {
    return sizes.tokens > 0 ? empty_buffer<T>(shape) : Tensor::zeros(shape, dtype_of<T>());
  };
  w_ih_ = gradient({sizes.gate_rows, sizes.inputs});
  w_hh_ = gradient({sizes.gate_rows, sizes.outputs});
  bias_ = gradient({sizes.gate_rows});
}

template <class T>
void WeightGradients<T>::add(const Chunk& chunk, const Tensor& grad_gates, const Tensor& operands,
                             const Tensor& seen) {
  const int64_t pieces = (chunk.tokens + cpu::kMostPieceTokens - 1) / cpu::kMostPieceTokens;
  for (int64_t i = 0; i < pieces; ++i) {
    const cpu::Slice slice{i, pieces};
    const int64_t first = slice.begin(chunk.tokens);  // in the chunk
    const Piece piece{chunk.first_token + first, chunk.first_token + slice.end(chunk.tokens)};
    const auto of_chunk = [&](const Tensor& rows, int64_t width) {
      return std::vector<Run>{{rows.const_data<T>() + first * width, piece.tokens(), 0}};
    };
    pack(piece, seen ? of_chunk(seen, sizes_.outputs) : old_h(chunk, piece), with_h_);
    if (operand_rows_.count > 0) pack(piece, of_chunk(operands, sizes_.hidden), with_operands_);
    add_piece(piece, grad_gates.const_data<T>() + first * sizes_.gate_rows);
    start_ = cpu::GradientSum::kMore;
  }
}

template <class T>
auto WeightGradients<T>::old_h(const Chunk& chunk, const Piece& piece) const -> std::vector<Run> {
  const Steps& steps = sequence_.steps();
  const T *h0 = h0_.const_data<T>(), *out = out_.const_data<T>();
  std::vector<Run> runs;
  const auto add_rows = [&](const T* rows, int64_t token, int64_t count) {
    const int64_t before = std::max<int64_t>(0, piece.begin - token);
    count = std::min(token + count, piece.end) - token - before;
    if (count <= 0) return;
    rows += before * sizes_.outputs;
    if (!runs.empty() && runs.back().rows + runs.back().count * sizes_.outputs == rows) {
      runs.back().count += count;
    } else {
      runs.push_back({rows, count, token + before - piece.begin});
    }
  };
  for (int64_t i = 0; i < chunk.end - chunk.begin; ++i) {
    // As tokens lie.
    const Step step = step_at(steps, steps.reverse ? chunk.end - 1 - i : chunk.begin + i);
    add_rows(out + step.token_before * sizes_.outputs, step.token, step.carried);
    add_rows(h0 + step.carried * sizes_.outputs, step.token + step.carried,
             step.rows - step.carried);
  }
  return runs;
}

template <class T>
void WeightGradients<T>::pack(const Piece& piece, const std::vector<Run>& beside,
                              const Tensor& factors) const {
  const int64_t inputs = sizes_.inputs, columns = inputs + sizes_.outputs;
  const T* x = x_.const_data<T>() + piece.begin * inputs;
  for_slices(piece.tokens() * columns, [&](cpu::Slice slice) {
    const auto pack_rows = [&](const T* rows, int64_t count, int64_t width, int64_t first_column,
                               int64_t first_depth) {
      const cpu::FactorPlace place{first_column, first_depth, columns, piece.tokens()};
      cpu::kernels<T>().pack_factors(rows, count, width, place, factors.data<T>(), slice);
    };
    pack_rows(x, piece.tokens(), inputs, 0, 0);
    for (const Run& run : beside) {
      pack_rows(run.rows, run.count, sizes_.outputs, inputs, run.first_depth);
    }
  });
}

template <class T>
void WeightGradients<T>::add_piece(const Piece& piece, const T* grad_gates) {
  const cpu::Kernels<T>& kernels = cpu::kernels<T>();
  const int64_t inputs = sizes_.inputs, outputs = sizes_.outputs;
  const auto add_rows = [&](int64_t begin, int64_t end, const Tensor& factors) {
    if (begin >= end) return;
    kernels.add_gradients({.grads = grad_gates + begin,
                           .stride = sizes_.gate_rows,
                           .rows = end - begin,
                           .tokens = piece.tokens(),
                           .factors = factors.const_data<T>(),
                           .inputs = inputs,
                           .outputs = outputs,
                           .start = start_,
                           .w_ih = w_ih_.template data<T>() + begin * inputs,
                           .w_hh = w_hh_.template data<T>() + begin * outputs,
                           .bias = bias_.template data<T>() + begin});
  };
  const int64_t multiplications = piece.tokens() * (inputs + outputs);
  for_row_tiles(sizes_.gate_rows, kernels.row_tile, multiplications,
                [&](int64_t begin, int64_t end) {
                  add_rows(begin, std::min(end, operand_rows_.first), with_h_);
                  add_rows(std::max(begin, operand_rows_.first), std::min(end, operand_rows_.end()),
                           with_operands_);
                  add_rows(std::max(begin, operand_rows_.end()), end, with_h_);
                });
}

template <class T>
PartialWeightGradients<T>::PartialWeightGradients(const LayerSizes& sizes, int64_t width,
                                                  int64_t slots)
    : sizes_(sizes),
      width_(width),
      slots_(slots),
      partial_(Tensor::zeros({slots, sizes.gate_rows * width}, dtype_of<T>())) {}

template <class T>
void PartialWeightGradients<T>::sum_into(const Tensor& w_ih, const Tensor& w_hh,
                                         const Tensor& bias) const {
  const int64_t inputs = sizes_.inputs, outputs = sizes_.outputs;
  const int64_t width = width_, all = sizes_.gate_rows * width;
  T* sums = data();
  for_slices(all * slots_, [&](cpu::Slice slice) {
    const int64_t begin = slice.begin(sizes_.gate_rows), end = slice.end(sizes_.gate_rows);
    for (int64_t slot = 1; slot < slots_; ++slot) {
      for (int64_t i = begin * width; i < end * width; ++i) sums[i] += sums[slot * all + i];
    }
    for (int64_t row = begin; row < end; ++row) {
      const T* from = sums + row * width;
      std::copy_n(from, inputs, w_ih.data<T>() + row * inputs);
      std::copy_n(from + inputs, outputs, w_hh.data<T>() + row * outputs);
      bias.data<T>()[row] = from[inputs + outputs];
    }
  });
}

template class PartialWeightGradients<float>;
template class PartialWeightGradients<double>;
template class WeightGradients<float>;
template class WeightGradients<double>;

}  // namespace rotcell::ops
