#include "ops/weight_gradients.h"

#include <algorithm>
#include <cstring>

#include "cpu/kernels.h"
#include "ops/buffers.h"
#include "ops/threads.h"

namespace rotcell::ops {
namespace {

// From this many columns on, a product each for w_ih, w_hh and the bias is as fast, and saves the
// copy that takes a joint gradient apart.
constexpr int64_t kJointColumns = 512;

// torch's BLAS is faster if rows are a multiple of this many elements.
constexpr int64_t kColumnMultiple = 8;

template <class T>
struct Rows {
  T* data;
  int64_t stride;
};

template <class T>
void copy_rows(Rows<const T> from, Rows<T> to, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to.data + row * to.stride, from.data + row * from.stride, columns * sizeof(T));
  }
}

// The sum of each column of [rows, columns], over sums of 16 rows each so that rounding errors do
// not add up.
template <class T>
void sum_columns(const T* matrix, int64_t rows, int64_t columns, T* sums) {
  constexpr int64_t kBlock = 16;
  std::fill(sums, sums + columns, T{0});
  std::vector<T> total;
  const auto flush = [&] {
    for (int64_t i = 0; i < columns; ++i) total[i] += sums[i];
    std::fill(sums, sums + columns, T{0});
  };
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) sums[i] += matrix[row * columns + i];
    if ((row + 1) % kBlock == 0) {
      if (total.empty()) total.resize(columns);
      flush();
    }
  }
  for (size_t i = 0; i < total.size(); ++i) sums[i] += total[i];
}

}  // namespace

template <class T>
WeightGradients<T>::WeightGradients(const CellDescription& cell, const LayerSizes& sizes,
                                    const Sequence& sequence, const Tensor& x, const Tensor& h0,
                                    const Tensor& out, int64_t chunk_tokens)
    : sizes_(sizes), sequence_(sequence), x_(x), h0_(h0), out_(out) {
  if (cell.stages > 1) {
    operand_rows_ = {cell.first_row_of_product(1, sizes.hidden),
                     cell.rows_of_product(1, sizes.hidden)};
  }
  if (sequence.steps().count == 1) return;
  const int64_t used = sizes.inputs + sizes.outputs + 1;
  const int64_t columns = (used + kColumnMultiple - 1) / kColumnMultiple * kColumnMultiple;
  const int64_t rows = std::min(chunk_tokens, sizes.tokens);
  factors_ = Tensor::empty({rows, columns}, dtype_of<T>());
  T* tail = factors_.template data<T>() + used - 1;
  for (int64_t row = 0; row < rows; ++row, tail += columns) {
    tail[0] = 1;
    std::fill(tail + 1, tail + 1 + columns - used, T{0});
  }
  const auto add_part = [&](int64_t first, int64_t count) {
    parts_.push_back({first, empty_buffer<T>({sizes.gate_rows, count})});
  };
  if (columns < kJointColumns) {
    add_part(0, columns);
    if (operand_rows_.count > 0) {
      operand_gradient_ = Tensor::empty({operand_rows_.count, sizes.outputs}, dtype_of<T>());
    }
  } else {
    add_part(0, sizes.inputs);
    add_part(sizes.inputs, sizes.outputs);
    add_part(sizes.inputs + sizes.outputs, 1);
  }
}

template <class T>
void WeightGradients<T>::add_rows(const Tensor& gradient, int64_t first_row,
                                  const Tensor& grad_gates, const Tensor& factors) const {
  const int64_t rows = gradient.size(0);
  const int64_t tokens = grad_gates.size(0);
  for_product_rows(rows, tokens * factors.size(1), [&](int64_t begin, int64_t end) {
    const Tensor transposed =
        grad_gates.view({end - begin, tokens}, {1, sizes_.gate_rows}, first_row + begin);
    addmm_out(gradient.narrow(0, begin, end - begin), transposed, factors, empty_ ? 0 : 1);
  });
}

template <class T>
void WeightGradients<T>::add_operands(const Tensor& gradient, const Tensor& grad_gates,
                                      const Tensor& operands) const {
  add_rows(gradient, operand_rows_.first, grad_gates, operands);
}

template <class T>
void WeightGradients<T>::add(const Chunk& chunk, const Tensor& grad_gates, const Tensor& operands,
                             const Tensor& seen) {
  if (sequence_.steps().count == 1) {
    add_single_step(grad_gates, operands, seen);
    return;
  }
  gather(chunk, seen);
  for (const Part& part : parts_) {
    const Tensor factors = factors_.view({chunk.tokens, part.gradient.size(1)},
                                         {factors_.size(1), 1}, part.first_column);
    const auto add_run = [&](int64_t first_row, int64_t end_row) {
      add_rows(part.gradient.narrow(0, first_row, end_row - first_row), first_row, grad_gates,
               factors);
    };
    const bool of_w_hh = parts_.size() > 1 && &part == &parts_[1];
    if (of_w_hh && operand_rows_.count > 0) {
      add_run(0, operand_rows_.first);
      add_operands(part.gradient.narrow(0, operand_rows_.first, operand_rows_.count), grad_gates,
                   operands);
      add_run(operand_rows_.end(), sizes_.gate_rows);
    } else {
      add_run(0, sizes_.gate_rows);
    }
  }
  if (operand_gradient_) add_operands(operand_gradient_, grad_gates, operands);
  empty_ = false;
}

// All there is to multiply with lies as it should.
template <class T>
void WeightGradients<T>::add_single_step(const Tensor& grad_gates, const Tensor& operands,
                                         const Tensor& seen) {
  const int64_t rows = sizes_.gate_rows;
  const Tensor transposed = grad_gates.transposed();
  const auto product = [&](const Tensor& factors) {
    Tensor gradient = Tensor::empty({rows, factors.size(1)}, dtype_of<T>());
    mm_out(gradient, transposed, factors);
    return gradient;
  };
  parts_.push_back({0, product(x_)});
  parts_.push_back({sizes_.inputs, product(seen ? seen : h0_)});
  parts_.push_back({sizes_.inputs + sizes_.outputs, Tensor::empty({rows, 1}, dtype_of<T>())});
  sum_columns(grad_gates.const_data<T>(), grad_gates.size(0), rows,
              parts_.back().gradient.template data<T>());
  if (operand_rows_.count > 0) {
    add_operands(parts_[1].gradient.narrow(0, operand_rows_.first, operand_rows_.count), grad_gates,
                 operands);
  }
  empty_ = false;
}

// Copies x and what the product saw of the h that each token starts from.
template <class T>
void WeightGradients<T>::gather(const Chunk& chunk, const Tensor& seen) {
  const Steps& steps = sequence_.steps();
  const int64_t inputs = sizes_.inputs, outputs = sizes_.outputs, columns = factors_.size(1);
  const T *x = x_.const_data<T>(), *h0 = h0_.const_data<T>(), *out = out_.const_data<T>();
  T* factors = factors_.template data<T>();
  const auto copy = [&](const T* from, int64_t width, int64_t token, int64_t rows, int64_t column) {
    copy_rows<T>({from, width}, {factors + (token - chunk.first_token) * columns + column, columns},
                 rows, width);
  };
  for_steps(chunk.begin, chunk.end, chunk.tokens * columns, [&](int64_t position) {
    const Step step = step_at(steps, position);
    copy(x + step.token * inputs, inputs, step.token, step.rows, 0);
    if (seen) {
      const T* rows = seen.const_data<T>() + (step.token - chunk.first_token) * outputs;
      copy(rows, outputs, step.token, step.rows, inputs);
      return;
    }
    copy(out + step.token_before * outputs, outputs, step.token, step.carried, inputs);
    copy(h0 + step.carried * outputs, outputs, step.token + step.carried, step.rows - step.carried,
         inputs);
  });
}

template <class T>
Tensor WeightGradients<T>::w_hh() const {
  Tensor all = gradient(sizes_.inputs, sizes_.outputs);
  if (operand_gradient_ && !empty_) {
    T* rows = all.template data<T>() + operand_rows_.first * sizes_.outputs;
    std::memcpy(rows, operand_gradient_.template const_data<T>(), operand_gradient_.bytes());
  }
  return all;
}

template <class T>
Tensor WeightGradients<T>::bias() const {
  return gradient(sizes_.inputs + sizes_.outputs, 1).view({sizes_.gate_rows}, {1});
}

template <class T>
Tensor WeightGradients<T>::gradient(int64_t first_column, int64_t columns) const {
  const int64_t rows = sizes_.gate_rows;
  if (empty_) return Tensor::zeros({rows, columns}, dtype_of<T>());
  const auto part = std::find_if(parts_.rbegin(), parts_.rend(), [&](const Part& candidate) {
    return candidate.first_column <= first_column;
  });
  const int64_t width = part->gradient.size(1);
  if (width == columns) return part->gradient.share();
  Tensor gradient = Tensor::empty({rows, columns}, dtype_of<T>());
  copy_rows<T>({part->gradient.template const_data<T>() + first_column - part->first_column, width},
               {gradient.template data<T>(), columns}, rows, columns);
  return gradient;
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
