#include "ops/cuda/sequence.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ops/cuda/current_device.h"
#include "ops/cuda/path.h"

namespace rotcell::ops::gpu {
namespace {

cuda::Number number_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return cuda::Number::kFloat32;
    case at::kDouble:
      return cuda::Number::kFloat64;
    case at::kHalf:
      return cuda::Number::kFloat16;
    default:
      return cuda::Number::kBFloat16;  // compute_type() has refused all others
  }
}

// Batch sizes and offsets as a tensor [2, steps] on the device. The copy does not wait: torch keeps
// the pinned memory until it is done.
at::Tensor table_on_device(const cpu::Steps& steps, c10::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).pinned_memory(device.is_cuda());
  const at::Tensor table = at::empty({2, steps.count}, options);
  int64_t* values = table.data_ptr<int64_t>();
  std::copy_n(steps.batch_sizes, steps.count, values);
  std::copy_n(steps.offsets, steps.count, values + steps.count);
  return table.to(device, /*non_blocking=*/true);
}

// Consecutive rows of one of several tensors, growing as long as rows follow each other.
class Pieces {
 public:
  void add(const at::Tensor& from, int64_t first, int64_t rows) {
    if (rows == 0) return;
    if (from_ == &from && first_ + rows_ == first) {
      rows_ += rows;
      return;
    }
    finish();
    from_ = &from;
    first_ = first;
    rows_ = rows;
  }
  at::Tensor joined() {
    finish();
    return at::cat(views_);
  }

 private:
  void finish() {
    if (from_ != nullptr) views_.push_back(from_->narrow(0, first_, rows_));
  }

  const at::Tensor* from_ = nullptr;
  int64_t first_ = 0, rows_ = 0;
  std::vector<at::Tensor> views_;
};

}  // namespace

at::Tensor input_product(const at::Tensor& x, const at::Tensor& w_ih, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, w_ih.t()) : at::mm(x, w_ih.t());
}

std::vector<Step> steps_in_order(const SequenceSteps& steps) {
  const cpu::Steps view = steps.view();
  std::vector<Step> order;
  order.reserve(view.count);
  for (int64_t position = 0; position < view.count; ++position) {
    const int64_t at = view.reverse ? view.count - 1 - position : position;
    Step step{view.offsets[at], view.batch_sizes[at], 0, 0};
    if (!order.empty()) {
      step.carried = std::min(step.rows, order.back().rows);
      step.token_before = order.back().token;
    }
    order.push_back(step);
  }
  return order;
}

Launch make_launch(cuda::Cell cell, cuda::Pass pass, const at::Tensor& x,
                   const SequenceSteps& steps, int64_t batch, int64_t hidden, bool projection) {
  const cpu::Steps view = steps.view();
  const bool all_as_long = view.count == 0 || view.batch_sizes[view.count - 1] == batch;
  const cuda::Number number = number_of(x.scalar_type());
  const cuda::Request request{cell, pass, hidden, batch, view.count, number, projection};
  // A CUDA graph would repeat the copy from host memory that is no longer there.
  const bool tables_allowed = all_as_long || !is_capturing(x.device());
  Launch launch{request,
                plan_for(request, cuda::device_properties(x.device().index()), tables_allowed),
                current_stream(x.device()),
                number,
                {view.count, batch, nullptr, nullptr, view.reverse},
                {}};
  if (launch.plan.path != cuda::Path::kStepwise && !all_as_long) {
    launch.steps_table = table_on_device(view, x.device());
    launch.steps.batch_sizes = launch.steps_table.const_data_ptr<int64_t>();
    launch.steps.offsets = launch.steps.batch_sizes + view.count;
  }
  return launch;
}

void check_saved_on_device(const char* name, const at::Tensor& tensor, at::IntArrayRef shape,
                           const at::Tensor& x) {
  check_saved(name, tensor, shape, compute_type(x.scalar_type()));
  TORCH_CHECK(tensor.device() == x.device(), "rotcell: expected ", name, " on ", x.device(),
              ", as x, got ", tensor.device());
}

at::Tensor running_state(const at::Tensor& state, at::ScalarType type) {
  return state.to(state.options().dtype(type), /*non_blocking=*/false, /*copy=*/true,
                  at::MemoryFormat::Contiguous);
}

at::Tensor running_gradient(const OptionalTensor& grad, const at::Tensor& like,
                            at::ScalarType type) {
  if (!grad || !grad->defined()) return at::zeros(like.sizes(), like.options().dtype(type));
  return running_state(*grad, type);
}

at::Tensor gather_previous_hidden(const at::Tensor& out, const at::Tensor& h0,
                                  const SequenceSteps& steps) {
  if (steps.tokens() == 0) return at::empty(out.sizes(), out.options());
  std::vector<Step> order = steps_in_order(steps);
  if (steps.view().reverse) std::reverse(order.begin(), order.end());
  Pieces pieces;
  for (const Step& step : order) {
    pieces.add(out, step.token_before, step.carried);
    pieces.add(h0, step.carried, step.rows - step.carried);
  }
  return pieces.joined();
}

}  // namespace rotcell::ops::gpu
