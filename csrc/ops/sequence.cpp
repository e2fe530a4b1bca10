#include "ops/sequence.h"

#include <ATen/Parallel.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

namespace rotcell::ops {

at::ScalarType compute_type(at::ScalarType storage) {
  switch (storage) {
    case at::kFloat:
    case at::kDouble:
      return storage;
    case at::kHalf:
    case at::kBFloat16:
      return at::kFloat;
    default:
      TORCH_CHECK(false, "rotcell: expected x of type float32, float64, float16 or bfloat16, got ",
                  storage);
  }
}

at::Tensor prepared(const OptionalTensor& tensor, at::ScalarType type) {
  if (!tensor || !tensor->defined()) return {};
  if (tensor->scalar_type() == type && tensor->is_contiguous()) return *tensor;  // without a call
  return tensor->to(type).contiguous();
}

void check_tensor(const char* name, const OptionalTensor& tensor, at::IntArrayRef shape,
                  const at::Tensor& like) {
  if (!tensor || !tensor->defined()) return;
  TORCH_CHECK(tensor->sizes() == shape, "rotcell: expected ", name, " of shape ", shape, ", got ",
              tensor->sizes());
  TORCH_CHECK(tensor->scalar_type() == like.scalar_type(), "rotcell: expected ", name, " of type ",
              like.scalar_type(), ", as x, got ", tensor->scalar_type());
  TORCH_CHECK(tensor->device() == like.device(), "rotcell: expected ", name, " on ", like.device(),
              ", as x, got ", tensor->device());
}

void check_saved(const char* name, const at::Tensor& tensor, at::IntArrayRef shape,
                 at::ScalarType type) {
  TORCH_CHECK(tensor.sizes() == shape && tensor.scalar_type() == type, "rotcell: expected ", name,
              " as the forward op saved it, of shape ", shape, " and type ", type, ", got ",
              tensor.sizes(), " and ", tensor.scalar_type());
}

void check_matrix(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.dim() == 2, "rotcell: expected ", name, " with 2 dimensions, got ",
              tensor.dim());
}

at::Tensor empty_buffer(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const at::Tensor buffer = at::empty(sizes, options);
#if defined(MADV_HUGEPAGE)
  constexpr size_t kLarge = 4 << 20;
  constexpr uintptr_t kPage = 4096;
  if (buffer.nbytes() >= kLarge) {
    const auto begin = reinterpret_cast<uintptr_t>(buffer.data_ptr());
    const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
    // A wish: where it is not granted, everything is as it was.
    madvise(reinterpret_cast<void*>(first), begin + buffer.nbytes() - first, MADV_HUGEPAGE);
  }
#endif
  return buffer;
}

at::Tensor empty_for_backward(int64_t rows, int64_t columns, const at::TensorOptions& options) {
  constexpr size_t kAlwaysFromTheSystem = 32 << 20;  // blocks of this many bytes: room is no use
  const size_t bytes = rows * columns * options.dtype().itemsize();
  if (2 * bytes >= kAlwaysFromTheSystem) return empty_buffer({rows, columns}, options);
  return at::empty({2 * rows, columns}, options).resize_({rows, columns});
}

at::Tensor total_bias(const at::Tensor& b_ih, const at::Tensor& b_hh) {
  if (!b_ih.defined() || !b_hh.defined()) return b_ih.defined() ? b_ih : b_hh;
  return b_ih.add(b_hh);
}

SequenceSteps::SequenceSteps(const OptionalTensor& batch_sizes, int64_t tokens, int64_t batch,
                             bool reverse)
    : reverse_(reverse) {
  if (!batch_sizes) {
    TORCH_CHECK(batch == 0 ? tokens == 0 : tokens % batch == 0,
                "rotcell: expected x with a multiple of ", batch,
                " rows (one for each row of h0 and step), got ", tokens);
    batch_sizes_.assign(batch == 0 ? 0 : tokens / batch, batch);
    count_tokens();
    return;
  }
  TORCH_CHECK(batch_sizes->dim() == 1 && batch_sizes->scalar_type() == at::kLong &&
                  batch_sizes->device().is_cpu(),
              "rotcell: expected batch_sizes to be a 1-dimensional int64 tensor on the CPU");
  const at::Tensor sizes = batch_sizes->contiguous();
  const int64_t* size = sizes.data_ptr<int64_t>();
  batch_sizes_.assign(size, size + sizes.numel());
  for (size_t step = 0; step < batch_sizes_.size(); ++step) {
    TORCH_CHECK(
        batch_sizes_[step] > 0 && (step == 0 || batch_sizes_[step] <= batch_sizes_[step - 1]),
        "rotcell: expected batch_sizes to be positive and never increasing, got ",
        batch_sizes_[step], " at step ", step);
  }
  count_tokens();
  TORCH_CHECK(batch_sizes_.empty() || batch_sizes_[0] == batch, "rotcell: expected h0 with ",
              batch_sizes_.empty() ? 0 : batch_sizes_[0], " rows (batch_sizes[0]), got ", batch);
  TORCH_CHECK(tokens_ == tokens, "rotcell: expected x with ", tokens_,
              " rows (the sum of batch_sizes), got ", tokens);
}

SequenceSteps::SequenceSteps(std::vector<int64_t> batch_sizes, bool reverse)
    : batch_sizes_(std::move(batch_sizes)), reverse_(reverse) {
  count_tokens();
}

void SequenceSteps::count_tokens() {
  offsets_.reserve(batch_sizes_.size());
  for (const int64_t rows : batch_sizes_) {
    offsets_.push_back(tokens_);
    tokens_ += rows;
  }
}

cpu::Steps SequenceSteps::view() const {
  return {count(), batch_sizes_.data(), offsets_.data(), reverse_};
}

cpu::Steps SequenceSteps::view(const cpu::Piece& piece) const {
  const int64_t first = reverse_ ? count() - piece.end : piece.begin;
  return {piece.end - piece.begin, batch_sizes_.data() + first, offsets_.data() + first, reverse_};
}

std::vector<cpu::Piece> SequenceSteps::pieces(int64_t max_tokens) const {
  std::vector<cpu::Piece> pieces;
  for (int64_t position = 0; position < count(); ++position) {
    const int64_t step = reverse_ ? count() - 1 - position : position;
    const int64_t rows = batch_sizes_[step];
    if (pieces.empty() || pieces.back().tokens + rows > max_tokens) {
      pieces.push_back({position, position, offsets_[step], 0});
    }
    cpu::Piece& piece = pieces.back();
    piece.end = position + 1;
    piece.first_token = std::min(piece.first_token, offsets_[step]);
    piece.tokens += rows;
  }
  return pieces;
}

void SequenceSteps::for_pieces(
    int64_t max_tokens, const std::function<void(const SequenceSteps&, int64_t)>& body) const {
  if (tokens_ <= max_tokens) {
    if (tokens_ > 0) body(*this, 0);
    return;
  }
  for (const cpu::Piece& piece : pieces(max_tokens)) {
    const int64_t* const sizes = view(piece).batch_sizes;
    body(SequenceSteps(std::vector<int64_t>(sizes, sizes + (piece.end - piece.begin)), reverse_),
         piece.first_token);
  }
}

namespace {

std::atomic<bool> in_forked_child{false};
const int fork_handler [[maybe_unused]] =
    pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true); });

}  // namespace

OpScope::OpScope() : no_autocast_(c10::autocast_dispatch_keyset) {
  if (in_forked_child.load() && at::get_num_threads() > 1) {
    threads_before_ = at::get_num_threads();
    at::set_num_threads(1);
  }
}

OpScope::~OpScope() {
  if (threads_before_ > 0) at::set_num_threads(threads_before_);
}

}  // namespace rotcell::ops
