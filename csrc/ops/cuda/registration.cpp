// Makes the ops known to torch for tensors on a GPU.
#include <torch/library.h>

#include "ops/cuda/ops.h"

TORCH_LIBRARY_IMPL(rotcell, CUDA, m) {
  m.impl("rot_lstm", rotcell::ops::gpu::rot_lstm);
  m.impl("rot_lstm_backward", rotcell::ops::gpu::rot_lstm_backward);
  m.impl("rot_gru", rotcell::ops::gpu::rot_gru);
  m.impl("rot_gru_backward", rotcell::ops::gpu::rot_gru_backward);
}
