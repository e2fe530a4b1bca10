#include "ops/weight_gradients.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

namespace rotcell::ops {
namespace {

// From this many columns on, a product each for w_ih, w_hh and the bias is as fast, and saves the
// copy that takes a joint gradient apart.
constexpr int64_t kJointColumns = 512;

// torch's BLAS is faster if rows are a multiple of this many elements.
constexpr int64_t kColumnMultiple = 8;

// Rows of a matrix, or of some of its columns, as bytes.
struct ByteRows {
  char* data;
  int64_t stride;

  ByteRows(const at::Tensor& matrix, int64_t row, int64_t column)
      : data(static_cast<char*>(matrix.data_ptr()) +
             (row * matrix.stride(0) + column) * matrix.element_size()),
        stride(matrix.stride(0) * matrix.element_size()) {}
};

void copy_rows(ByteRows from, ByteRows to, int64_t rows, int64_t bytes) {
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to.data + row * to.stride, from.data + row * from.stride, bytes);
  }
}

}  // namespace

int64_t gradient_piece_tokens(int64_t gate_rows) {
  constexpr int64_t kElements = 1 << 17, kLeastTokens = 256;
  return std::max(kLeastTokens, kElements / std::max<int64_t>(1, gate_rows));
}

WeightGradients::WeightGradients(const at::Tensor& x, const at::Tensor& h0, const at::Tensor& out,
                                 const SequenceSteps& steps, int64_t gate_rows,
                                 int64_t piece_tokens, OtherRows other)
    : x_(x),
      h0_(h0),
      out_(out),
      steps_(steps),
      inputs_(x.size(1)),
      outputs_(h0.size(1)),
      other_(other) {
  if (steps.count() == 1) return;
  const int64_t used = inputs_ + outputs_ + 1;
  const int64_t columns = (used + kColumnMultiple - 1) / kColumnMultiple * kColumnMultiple;
  factors_ = at::empty({std::min(piece_tokens, steps.tokens()), columns}, x.options());
  factors_.narrow(1, used - 1, 1).fill_(1);
  factors_.narrow(1, used, columns - used).zero_();
  const auto add_part = [&](int64_t first, int64_t count) {
    parts_.push_back({first, empty_buffer({gate_rows, count}, x.options())});
  };
  if (columns < kJointColumns) {
    add_part(0, columns);
    if (other.count > 0) other_gradient_ = at::empty({other.count, outputs_}, x.options());
  } else {
    add_part(0, inputs_);
    add_part(inputs_, outputs_);
    add_part(inputs_ + outputs_, 1);
  }
}

void WeightGradients::add_rows(at::Tensor gradient, int64_t first_row, int64_t rows,
                               const at::Tensor& grad_gates, const at::Tensor& factors) const {
  if (rows > 0) gradient.addmm_(grad_gates.narrow(1, first_row, rows).t(), factors, empty_ ? 0 : 1);
}

void WeightGradients::add(const cpu::Piece& piece, const at::Tensor& grad_gates,
                          const at::Tensor& others) {
  const int64_t gate_rows = grad_gates.size(1);
  const auto add_others = [&](const at::Tensor& gradient) {
    add_rows(gradient, other_.first, other_.count, grad_gates, others);
  };
  if (steps_.count() == 1) {
    // All there is to multiply with lies as it should.
    parts_ = {{0, at::mm(grad_gates.t(), x_)},
              {inputs_, at::mm(grad_gates.t(), h0_)},
              {inputs_ + outputs_, grad_gates.sum(0, /*keepdim=*/true).t()}};
    if (other_.count > 0) add_others(parts_[1].gradient.narrow(0, other_.first, other_.count));
    empty_ = false;
    return;
  }
  gather(piece);
  const at::Tensor factors = factors_.narrow(0, 0, piece.tokens);
  const auto add_run = [&](const Part& part, int64_t first_row, int64_t end_row) {
    add_rows(part.gradient.narrow(0, first_row, end_row - first_row), first_row,
             end_row - first_row, grad_gates,
             factors.narrow(1, part.first_column, part.gradient.size(1)));
  };
  for (const Part& part : parts_) {
    const bool of_w_hh = parts_.size() > 1 && &part == &parts_[1];
    if (of_w_hh && other_.count > 0) {
      const int64_t other_end = other_.first + other_.count;
      add_run(part, 0, other_.first);
      add_others(part.gradient.narrow(0, other_.first, other_.count));
      add_run(part, other_end, gate_rows);
    } else {
      add_run(part, 0, gate_rows);
    }
  }
  if (other_gradient_.defined()) add_others(other_gradient_);
  empty_ = false;
}

// Copies x and the h that each token starts from.
void WeightGradients::gather(const cpu::Piece& piece) {
  const cpu::Steps steps = steps_.view();
  const auto copy = [&](const at::Tensor& from, int64_t from_row, int64_t token, int64_t rows,
                        int64_t column) {
    copy_rows(ByteRows(from, from_row, 0), ByteRows(factors_, token - piece.first_token, column),
              rows, from.size(1) * from.element_size());
  };
  constexpr int64_t kElementsWorthAThread = 1 << 15;
  const int64_t step_elements = piece.tokens * factors_.size(1) / (piece.end - piece.begin);
  const int64_t grain = kElementsWorthAThread / std::max<int64_t>(1, step_elements) + 1;
  at::parallel_for(piece.begin, piece.end, grain, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      const int64_t step = steps.reverse ? steps.count - 1 - position : position;
      const int64_t before = steps.reverse ? step + 1 : step - 1;
      const int64_t token = steps.offsets[step], rows = steps.batch_sizes[step];
      const int64_t carried = position > 0 ? std::min(rows, steps.batch_sizes[before]) : 0;
      copy(x_, token, token, rows, 0);
      if (carried > 0) copy(out_, steps.offsets[before], token, carried, inputs_);
      copy(h0_, carried, token + carried, rows - carried, inputs_);
    }
  });
}

at::Tensor WeightGradients::w_hh() const {
  const at::Tensor all = gradient(inputs_, outputs_);
  if (other_gradient_.defined() && !empty_) {
    all.narrow(0, other_.first, other_.count).copy_(other_gradient_);
  }
  return all;
}

at::Tensor WeightGradients::gradient(int64_t first_column, int64_t columns) const {
  const auto part = std::find_if(parts_.rbegin(), parts_.rend(), [&](const Part& candidate) {
    return candidate.first_column <= first_column;
  });
  const int64_t rows = part->gradient.size(0);
  if (empty_) return at::zeros({rows, columns}, part->gradient.options());
  if (part->gradient.size(1) == columns) return part->gradient;
  at::Tensor gradient = at::empty({rows, columns}, part->gradient.options());
  copy_rows(ByteRows(part->gradient, 0, first_column - part->first_column),
            ByteRows(gradient, 0, 0), rows, columns * gradient.element_size());
  return gradient;
}

}  // namespace rotcell::ops
