#include "ops/cuda/tensors.h"

#include <vector>

#include "ops/cuda/current_device.h"

// Generated shims, there with these parameters since before torch 2.10. They call the kernels of a
// device directly: no autocast, no autograd. In the executor there is no CUDA, hence weak.
extern "C" {
#define ROTCELL_SHIMS_OF(device, attributes)                                               \
  attributes AOTITorchError aoti_torch_##device##_add_Tensor(                              \
      AtenTensorHandle self, AtenTensorHandle other, double alpha, AtenTensorHandle* sum); \
  attributes AOTITorchError aoti_torch_##device##_addmm_out(                               \
      AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle a, AtenTensorHandle b, \
      double beta, double alpha);                                                          \
  attributes AOTITorchError aoti_torch_##device##_cat(                                     \
      const AtenTensorHandle* tensors, int64_t count, int64_t dim, AtenTensorHandle* joined);
ROTCELL_SHIMS_OF(cpu, )
ROTCELL_SHIMS_OF(cuda, __attribute__((weak)))
#undef ROTCELL_SHIMS_OF
}

// Calls the shim of the device that a tensor is on.
#define ROTCELL_DEVICE_SHIM(tensor, name, ...)                                                 \
  ::rotcell::ops::check_shim((tensor).device().is_cpu() ? aoti_torch_cpu_##name(__VA_ARGS__)   \
                                                        : aoti_torch_cuda_##name(__VA_ARGS__), \
                             #name)

namespace rotcell::ops::gpu {
namespace {

// Consecutive rows of one of several matrices, growing as long as rows follow each other.
class RowRuns {
 public:
  void add(const Tensor& from, int64_t first, int64_t rows) {
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

  Tensor joined() {
    finish();
    std::vector<AtenTensorHandle> handles;
    for (const Tensor& view : views_) handles.push_back(view.handle());
    AtenTensorHandle joined;
    ROTCELL_DEVICE_SHIM(views_[0], cat, handles.data(), static_cast<int64_t>(handles.size()), 0,
                        &joined);
    return Tensor(joined);
  }

 private:
  void finish() {
    if (from_ != nullptr) views_.push_back(from_->narrow(0, first_, rows_));
  }

  const Tensor* from_ = nullptr;
  int64_t first_ = 0, rows_ = 0;
  std::vector<Tensor> views_;
};

}  // namespace

void* row(const Tensor& tensor, int64_t index) {
  if (!tensor) return nullptr;
  return static_cast<char*>(tensor.raw_data()) +
         index * tensor.stride(0) * element_size(tensor.dtype());
}

Tensor add(const Tensor& a, const Tensor& b) {
  AtenTensorHandle sum;
  ROTCELL_DEVICE_SHIM(a, add_Tensor, a.handle(), b.handle(), 1.0, &sum);
  return Tensor(sum);
}

Tensor linear(const Tensor& x, const Tensor& weights, const Tensor& bias) {
  Tensor out = empty({x.size(0), weights.size(0)}, x.dtype(), x.device());
  const Tensor transposed = weights.transposed();
  if (bias) {
    ROTCELL_DEVICE_SHIM(x, addmm_out, out.handle(), bias.handle(), x.handle(), transposed.handle(),
                        1.0, 1.0);
  } else {
    mm_out(out, x, transposed);
  }
  return out;
}

Tensor product(const Tensor& a, const Tensor& b) {
  Tensor out = empty({a.size(0), b.size(1)}, a.dtype(), a.device());
  mm_out(out, a, b);
  return out;
}

Tensor sum_of_rows(const Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const Tensor ones = empty({rows, 1}, matrix.dtype(), matrix.device());
  ones.fill_(1);
  return product(matrix.transposed(), ones).view({columns}, {1});
}

ChangeTensors contiguous(const ChangeTensors& changes, DType dtype) {
  return {.resets = changes.resets.as_contiguous(boolean()),
          .recurrent_dropout = changes.recurrent_dropout.as_contiguous(dtype),
          .zoneout_h = changes.zoneout_h.as_contiguous(dtype),
          .zoneout_c = changes.zoneout_c.as_contiguous(dtype)};
}

Tensor running_gradient(const Tensor& grad, const Tensor& like, DType dtype) {
  return grad ? grad.copied(dtype)
              : Tensor::zeros({like.size(0), like.size(1)}, dtype, like.device());
}

Tensor outputs_before(const Tensor& out, const Tensor& h0, const Sequence& sequence) {
  const Steps& steps = sequence.steps();
  RowRuns runs;
  for (int64_t i = 0; i < steps.count; ++i) {
    // As the tokens lie.
    const Step step = step_at(steps, steps.reverse ? steps.count - 1 - i : i);
    runs.add(out, step.token_before, step.carried);
    runs.add(h0, step.carried, step.rows - step.carried);
  }
  return runs.joined();
}

}  // namespace rotcell::ops::gpu
