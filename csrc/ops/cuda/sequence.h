// What the CUDA ops of both cells share: the call's surroundings, its steps, and views of tensors.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <vector>

#include "cuda/kernels.h"
#include "ops/sequence.h"

namespace rotcell::ops::gpu {

// Stands at the top of every op: no autocast and no autograd inside, and the device of x is
// current.
class CudaOpScope {
 public:
  explicit CudaOpScope(const at::Tensor& x) : device_(x.device()) {}

 private:
  const OpScope op_;
  const at::AutoDispatchBelowADInplaceOrView below_autograd_;
  const c10::DeviceGuard device_;
};

// One step of a sequence, for the path that goes step by step.
struct Step {
  int64_t token;         // that of row 0
  int64_t rows;          // alive
  int64_t carried;       // of these, the ones that went on from the step before; the others began
  int64_t token_before;  // that of row 0 in the step before; none if nothing was carried
};

// The steps in the order of processing.
std::vector<Step> steps_in_order(const SequenceSteps& steps);

// x w_ih^T + bias for all tokens.
at::Tensor input_product(const at::Tensor& x, const at::Tensor& w_ih, const at::Tensor& bias);

// One call: where it runs and on which path.
struct Launch {
  cuda::Request request;
  cuda::Plan plan;
  cuda::Stream stream;
  cuda::Number number;
  cuda::Steps steps;       // for the paths that run in one launch
  at::Tensor steps_table;  // what `steps` points at
};

// The path is chosen here. x tells the number type and the device.
Launch make_launch(cuda::Cell cell, cuda::Pass pass, const at::Tensor& x,
                   const SequenceSteps& steps, int64_t batch, int64_t hidden,
                   bool projection = false);

// Runs the kernel of the path that has one launch for the whole sequence.
template <class Parameters>
void run_in_one_launch(const Launch& launch, const Parameters& parameters) {
  if (launch.plan.path == cuda::Path::kResident) {
    cuda::resident(launch.request, launch.plan, parameters, launch.stream);
  } else {
    cuda::cooperative(launch.request, launch.plan, parameters, launch.stream);
  }
}

// The address of a row; null for an undefined tensor. Kernels that only read take it as well.
inline void* row(const at::Tensor& tensor, int64_t index = 0) {
  if (!tensor.defined()) return nullptr;
  return static_cast<char*>(tensor.data_ptr()) +
         index * tensor.stride(0) * static_cast<int64_t>(tensor.element_size());
}

// The first rows of a tensor. The view is made anew only when their number changes.
class FirstRows {
 public:
  explicit FirstRows(const at::Tensor& whole) : whole_(whole), view_(whole) {}
  at::Tensor& operator()(int64_t rows) {
    if (rows != view_.size(0)) view_ = whole_.narrow(0, 0, rows);
    return view_;
  }

 private:
  at::Tensor whole_, view_;
};

// As `check_saved`, and on the device of x: a kernel would read what is not there.
void check_saved_on_device(const char* name, const at::Tensor& tensor, at::IntArrayRef shape,
                           const at::Tensor& x);

// A state as a contiguous tensor of its own, which kernels overwrite.
at::Tensor running_state(const at::Tensor& state, at::ScalarType type);

// As above, of the gradient that comes in; zero if there is none.
at::Tensor running_gradient(const OptionalTensor& grad, const at::Tensor& like,
                            at::ScalarType type);

// The hidden state that each token starts from, [tokens, outputs], in few launches.
at::Tensor gather_previous_hidden(const at::Tensor& out, const at::Tensor& h0,
                                  const SequenceSteps& steps);

}  // namespace rotcell::ops::gpu
