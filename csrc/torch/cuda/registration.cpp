// Makes the ops known to torch for tensors on a GPU. Their schemas are the CPU library's.
#include "torch/registration.h"

#include "torch/cuda/ops.h"

namespace {

const rotcell::ops::AtLoad at_load([] {
  using namespace rotcell::ops;
  implement_ops<gpu::forward, gpu::backward, Overload::kPlain, Overload::kExtended>("CUDA");
});

}  // namespace
