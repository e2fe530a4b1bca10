// What the ops of both cells share: checks, number types, packed weights, the steps of a sequence.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <optional>
#include <vector>

#include "cpu/kernels.h"
#include "ops/threads.h"

namespace rotcell::ops {

using OptionalTensor = std::optional<at::Tensor>;

// The type a kernel computes in for tensors of this type: float for the half types.
at::ScalarType compute_type(at::ScalarType storage);

// The tensor, contiguous and of the given type; undefined if there is none.
at::Tensor prepared(const OptionalTensor& tensor, at::ScalarType type);

template <class T>
T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<T>() : nullptr;
}

// An uninitialised tensor. A large one is fresh memory at every call, and asks the system for huge
// pages: thousands of small ones, each zeroed at its first touch, would take a tenth of the time.
at::Tensor empty_buffer(at::IntArrayRef sizes, const at::TensorOptions& options);

// Weights as a kernel wants them; undefined for undefined weights.
template <class T>
at::Tensor packed(const cpu::Packing<T>& packing, const at::Tensor& weights) {
  if (!weights.defined()) return {};
  const int64_t rows = weights.size(0), depth = weights.size(1);
  at::Tensor panels = empty_buffer({packing.elements(rows, depth)}, weights.options());
  for_shares(panels.numel(), [&](cpu::Share share) {
    packing.pack(weights.const_data_ptr<T>(), rows, depth, panels.template data_ptr<T>(), share);
  });
  return panels;
}

// w_hh, and w_ih if it is defined, for the threads that share a layer.
template <class T>
at::Tensor packed(const cpu::RecurrentPacking<T>& packing, const at::Tensor& w_ih,
                  const at::Tensor& w_hh, int64_t hidden, const Sharing& sharing) {
  const int64_t depth = w_hh.size(1), x_depth = w_ih.defined() ? w_ih.size(1) : 0;
  std::vector<int64_t> begins{0};
  for (const cpu::UnitRange& units : sharing.units()) {
    begins.push_back(begins.back() + packing.elements(hidden, x_depth, depth, units));
  }
  at::Tensor panels = empty_buffer({begins.back()}, w_hh.options());
  for_shares(panels.numel(), [&](cpu::Share share) {
    for (size_t i = 0; i < sharing.units().size(); ++i) {
      packing.pack(data_or_null<T>(w_ih), w_hh.const_data_ptr<T>(), hidden, x_depth, depth,
                   sharing.units()[i], panels.template data_ptr<T>() + begins[i], share);
    }
  });
  return panels;
}

// An error that names the argument unless the tensor has this shape, and the type and device of
// `like`.
void check_tensor(const char* name, const OptionalTensor& tensor, at::IntArrayRef shape,
                  const at::Tensor& like);
void check_saved(const char* name, const at::Tensor& tensor, at::IntArrayRef shape,
                 at::ScalarType type);
void check_matrix(const char* name, const at::Tensor& tensor);

// An uninitialised matrix that lives from the forward to the backward pass.
//
// glibc gives the free end of the heap back to the system when it is more than twice the largest
// block that was ever freed. In a training step of a small layer all memory is at that end, so
// every step would get fresh pages and pay for them, with up to a tenth of its time. Room behind
// the matrix, which is never touched and so takes no memory, raises the limit.
at::Tensor empty_for_backward(int64_t rows, int64_t columns, const at::TensorOptions& options);

// The sum of the biases that there are; undefined without any.
at::Tensor total_bias(const at::Tensor& b_ih, const at::Tensor& b_hh);

// The steps of a padded (no batch_sizes) or packed sequence.
class SequenceSteps {
 public:
  SequenceSteps(const OptionalTensor& batch_sizes, int64_t tokens, int64_t batch, bool reverse);

  cpu::Steps view() const;
  int64_t count() const { return static_cast<int64_t>(batch_sizes_.size()); }
  int64_t tokens() const { return tokens_; }

  // The sequence in pieces of at most max_tokens tokens (but at least one step), the first first.
  std::vector<cpu::Piece> pieces(int64_t max_tokens) const;

  // The steps of one piece, as if there were no others.
  cpu::Steps view(const cpu::Piece& piece) const;

  // All steps in one piece.
  static constexpr int64_t kNoLimit = INT64_MAX;

  // Cuts the sequence, in the order of processing, into pieces of at most max_tokens tokens (but at
  // least one step), and calls body(piece, first token of the piece).
  void for_pieces(int64_t max_tokens,
                  const std::function<void(const SequenceSteps&, int64_t)>& body) const;

 private:
  SequenceSteps(std::vector<int64_t> batch_sizes, bool reverse);
  void count_tokens();

  std::vector<int64_t> batch_sizes_;
  std::vector<int64_t> offsets_;
  int64_t tokens_ = 0;
  bool reverse_;
};

// Stands at the top of every op. While it lives,
// - autocast is off: the layer has already cast what it wanted to cast;
// - a child process made by fork() computes on one thread: OpenMP's threads are gone there, but
// libgomp does not
//   know it and would wait for them for ever.
class OpScope {
 public:
  OpScope();
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
  int threads_before_ = 0;  // 0: nothing to put back
};

}  // namespace rotcell::ops
