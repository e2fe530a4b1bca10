// The backward pass of a layer call: the time loop of the chosen path, then the gradients of x and
// of the weights.
#include "cuda/runtime/launch.h"
#include "cuda/runtime/stepwise_path.h"
#include "cuda/runtime/weight_gradients.h"

namespace rotcell::cuda {
namespace {

// grad_h [B, H], A: of h_n, becomes that of h0. False if the device refuses it.
bool backward_in_one_launch(const Launch& launch, const LayerBackward& layer,
                            const TokenMatrices& t, const Matrix& grad_h) {
  return run_in_one_launch(
      launch,
      Backward{.steps = launch.steps,
               .hidden = launch.hidden(),
               .activations = layer.activations,
               .output_gradient = layer.grad_out ? OutputGradient::kGiven : OutputGradient::kZero,
               .w_hh = layer.w_hh.data(),
               .h0 = layer.h0.data(),
               .c0 = layer.c0.data(),
               .gates = layer.gates.data(),
               .cells = layer.cells.data(),
               .out = layer.out.data(),
               .grad_out = layer.grad_out.data(),
               .grad_h = grad_h.data(),
               .grad_c = layer.grad_c.data(),
               .grad_gates = t.grad_gates.data(),
               .second_operand = t.second_operand.data(),
               .signals = launch.signals()});
}

// The time loop of the first path that the device does not refuse.
void run_time_loop(const LayerBackward& layer, const TokenMatrices& t) {
  Launch launch = make_launch(layer, Pass::kBackward,
                              layer.grad_cells ? CellStates::kEveryStep : CellStates::kLast);
  if (!launch.stepwise()) {
    // These kernels carry grad_h in A.
    Matrix grad_h = layer.grad_h.borrow();
    if (is_half(layer.number)) {
      grad_h = Matrix::empty(layer.device, layer.compute_number(), layer.sizes.batch,
                             layer.sizes.outputs);
      grad_h.copy(layer.grad_h);
    }
    while (!launch.stepwise() && !backward_in_one_launch(launch, layer, t, grad_h)) {
      take_next_path(launch, layer.device);
    }
    if (!launch.stepwise() && is_half(layer.number)) layer.grad_h.copy(grad_h);
  }
  if (launch.stepwise()) backward_stepwise(launch, layer, t);
}

}  // namespace

void backward(const LayerBackward& layer) {
  if (layer.sizes.tokens == 0) {
    write_zero_gradients(layer);
    return;
  }
  const TokenMatrices t = make_token_matrices(layer);
  run_time_loop(layer, t);
  write_weight_gradients(layer, t);
}

}  // namespace rotcell::cuda
