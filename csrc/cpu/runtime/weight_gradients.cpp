#include "cpu/runtime/weight_gradients.h"

#include <algorithm>

#include "cpu/runtime/threads.h"

namespace rotcell::cpu {

template <class T>
WeightGradients<T>::WeightGradients(const LayerBackward<T>& layer, int64_t chunk_tokens)
    : layer_(layer), sizes_(layer.sizes) {
  if (sizes_.hidden_feeds == HiddenFeeds::kNothing) sizes_.outputs = 0;
  const CellDescription& cell = kCells[layer.cell];
  const int64_t tokens = std::min({chunk_tokens, sizes_.tokens, kMostPieceTokens});
  const int64_t elements = kernels<T>().factor_elements(tokens, sizes_.inputs + sizes_.outputs);
  with_h_ = Buffer<T>(elements);
  int64_t second_begin = 0, second_end = 0;
  has_second_operand_ = cell.stages > 1;
  if (has_second_operand_) {
    second_begin = cell.first_row_of_matmul(1, sizes_.hidden);
    second_end = second_begin + cell.rows_of_matmul(1, sizes_.hidden);
    with_second_operand_ = Buffer<T>(elements);
  }
  // Cut where x, h or the second operand begins or ends to feed the columns.
  std::vector<int64_t> cuts{0, sizes_.gate_rows, sizes_.input_rows, second_begin, second_end};
  for (const auto& [column, row, count] : sizes_.recurrent) {
    cuts.push_back(column);
    cuts.push_back(column + count);
  }
  std::sort(cuts.begin(), cuts.end());
  for (size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i - 1] == cuts[i]) continue;
    Columns columns{.begin = cuts[i - 1],
                    .end = cuts[i],
                    .first_hh = 0,
                    .from_h = false,
                    .of_second_operand = cuts[i - 1] >= second_begin && cuts[i - 1] < second_end};
    for (const auto& [column, row, count] : sizes_.recurrent) {
      if (columns.begin < column || columns.begin >= column + count) continue;
      columns.from_h = true;
      columns.first_hh = row + columns.begin - column;
    }
    columns_.push_back(columns);
  }
  if (sizes_.tokens > 0) return;
  std::fill_n(layer.grad_w_ih, sizes_.input_weights(), MathType<T>{0});
  std::fill_n(layer.grad_w_hh, sizes_.recurrent_weights(), MathType<T>{0});
  std::fill_n(layer.grad_bias, sizes_.gate_rows, MathType<T>{0});
}

template <class T>
void WeightGradients<T>::add(const Chunk& chunk, const T* grad_gates, const T* second_operand,
                             const T* masked_h) {
  const int64_t pieces = (chunk.tokens + kMostPieceTokens - 1) / kMostPieceTokens;
  for (int64_t i = 0; i < pieces; ++i) {
    const Slice slice{i, pieces};
    const int64_t first = slice.begin(chunk.tokens);  // in the chunk
    const Piece piece{chunk.first_token + first, chunk.first_token + slice.end(chunk.tokens)};
    const auto of_chunk = [&](const T* rows, int64_t width) {
      return std::vector<Run>{{rows + first * width, piece.tokens(), 0}};
    };
    pack(piece, masked_h ? of_chunk(masked_h, sizes_.outputs) : old_h(chunk, piece), with_h_);
    if (has_second_operand_)
      pack(piece, of_chunk(second_operand, sizes_.hidden), with_second_operand_);
    add_piece(piece, grad_gates + first * sizes_.gate_rows);
    start_ = Accumulate::kAdd;
  }
}

template <class T>
auto WeightGradients<T>::old_h(const Chunk& chunk, const Piece& piece) const -> std::vector<Run> {
  const Steps& steps = layer_.sequence.steps();
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
    add_rows(layer_.out + step.token_before * sizes_.outputs, step.token, step.carried);
    add_rows(layer_.h0 + step.carried * sizes_.outputs, step.token + step.carried,
             step.rows - step.carried);
  }
  return runs;
}

template <class T>
void WeightGradients<T>::pack(const Piece& piece, const std::vector<Run>& rows,
                              const Buffer<T>& factors) const {
  const int64_t inputs = sizes_.inputs, columns = inputs + sizes_.outputs;
  const T* x = layer_.x + piece.begin * inputs;
  for_slices(piece.tokens() * columns, [&](Slice slice) {
    const auto pack_rows = [&](const T* from, int64_t count, int64_t width, int64_t first_column,
                               int64_t first_depth) {
      const FactorPlace place{first_column, first_depth, columns, piece.tokens()};
      kernels<T>().pack_factors(from, count, width, place, factors.data(), slice);
    };
    pack_rows(x, piece.tokens(), inputs, 0, 0);
    for (const Run& run : rows) {
      pack_rows(run.rows, run.count, sizes_.outputs, inputs, run.first_depth);
    }
  });
}

template <class T>
void WeightGradients<T>::add_piece(const Piece& piece, const T* grad_gates) {
  const Kernels<T>& kernels = cpu::kernels<T>();
  const int64_t inputs = sizes_.inputs, outputs = sizes_.outputs;
  const auto add_rows = [&](int64_t begin, int64_t end, const Columns& columns) {
    if (begin >= end) return;
    const Buffer<T>& factors = columns.of_second_operand ? with_second_operand_ : with_h_;
    const int64_t row_hh = columns.first_hh + begin - columns.begin;
    kernels.add_gradients({.grads = grad_gates + begin,
                           .stride = sizes_.gate_rows,
                           .rows = end - begin,
                           .tokens = piece.tokens(),
                           .factors = factors.data(),
                           .inputs = inputs,
                           .outputs = outputs,
                           .start = start_,
                           .w_ih = begin < sizes_.input_rows && layer_.grad_w_ih
                                       ? layer_.grad_w_ih + begin * inputs
                                       : nullptr,
                           .w_hh = columns.from_h ? layer_.grad_w_hh + row_hh * outputs : nullptr,
                           .bias = layer_.grad_bias + begin});
  };
  const int64_t multiplications = piece.tokens() * (inputs + outputs);
  for_row_tiles(sizes_.gate_rows, kernels.row_tile, multiplications,
                [&](int64_t begin, int64_t end) {
                  for (const Columns& columns : columns_) {
                    add_rows(std::max(begin, columns.begin), std::min(end, columns.end), columns);
                  }
                });
}

template <class T>
PartialWeightGradients<T>::PartialWeightGradients(const LayerSizes& sizes, int64_t width,
                                                  int64_t slots)
    : rows_(sizes.gate_rows), width_(width), slots_(slots), partial_(slots * rows_ * width) {
  std::fill_n(partial_.data(), slots_ * rows_ * width_, MathType<T>{0});
}

template <class T>
void PartialWeightGradients<T>::sum_into(const LayerBackward<T>& layer) const {
  const int64_t inputs = layer.sizes.inputs, outputs = layer.sizes.outputs;
  const int64_t width = width_, all = rows_ * width;
  MathType<T>* sums = data();
  for_slices(all * slots_, [&](Slice slice) {
    const int64_t begin = slice.begin(rows_), end = slice.end(rows_);
    for (int64_t slot = 1; slot < slots_; ++slot) {
      for (int64_t i = begin * width; i < end * width; ++i) sums[i] += sums[slot * all + i];
    }
    for (int64_t row = begin; row < end; ++row) {
      const MathType<T>* from = sums + row * width;
      if (row < layer.sizes.input_rows) {
        std::copy_n(from, inputs, layer.grad_w_ih + row * inputs);
      }
      for (const auto& [column, row_hh, count] : layer.sizes.recurrent) {
        if (row < column || row >= column + count) continue;
        MathType<T>* w_hh = layer.grad_w_hh + (row_hh + row - column) * outputs;
        std::copy_n(from + inputs, outputs, w_hh);
      }
      layer.grad_bias[row] = from[inputs + outputs];
    }
  });
}

template <class T>
void projection_gradient(const LayerSizes& sizes, const T* grad_projected, const T* unprojected,
                         MathType<T>* grad_w_hr) {
  const Kernels<T>& kernels = cpu::kernels<T>();
  const int64_t P = sizes.outputs, H = sizes.hidden;
  if (sizes.tokens == 0) std::fill_n(grad_w_hr, P * H, MathType<T>{0});
  const int64_t pieces = (sizes.tokens + kMostPieceTokens - 1) / kMostPieceTokens;
  const Buffer<T> factors(kernels.factor_elements(std::min(sizes.tokens, kMostPieceTokens), H));
  const Buffer<MathType<T>> unused_bias(P);
  for (int64_t i = 0; i < pieces; ++i) {
    const Slice piece{i, pieces};
    const int64_t first = piece.begin(sizes.tokens), tokens = piece.end(sizes.tokens) - first;
    for_slices(tokens * H, [&](Slice slice) {
      kernels.pack_factors(unprojected + first * H, tokens, H, {0, 0, H, tokens}, factors.data(),
                           slice);
    });
    for_row_tiles(P, kernels.row_tile, tokens * H, [&](int64_t begin, int64_t end) {
      kernels.add_gradients({.grads = grad_projected + first * P + begin,
                             .stride = P,
                             .rows = end - begin,
                             .tokens = tokens,
                             .factors = factors.data(),
                             .inputs = H,
                             .outputs = 0,
                             .start = i == 0 ? Accumulate::kOverwrite : Accumulate::kAdd,
                             .w_ih = grad_w_hr + begin * H,
                             .w_hh = nullptr,
                             .bias = unused_bias.data() + begin});
    });
  }
}

template class PartialWeightGradients<float>;
template class PartialWeightGradients<double>;
template class PartialWeightGradients<BFloat16>;
template class WeightGradients<float>;
template class WeightGradients<double>;
template class WeightGradients<BFloat16>;
template void projection_gradient(const LayerSizes&, const float*, const float*, float*);
template void projection_gradient(const LayerSizes&, const double*, const double*, double*);
template void projection_gradient(const LayerSizes&, const BFloat16*, const BFloat16*, float*);

}  // namespace rotcell::cpu
