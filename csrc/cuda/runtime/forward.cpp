// The forward pass of a layer call: the input matmul, then the time loop of the chosen path.
#include "cuda/runtime/launch.h"
#include "cuda/runtime/stepwise_path.h"

namespace rotcell::cuda {
namespace {

// What x and the biases give to the gates of all tokens, T [N, G]. The gates that are kept replace
// it.
Matrix input_matmul(const LayerForward& layer) {
  Matrix from_input =
      layer.gates ? layer.gates.borrow() : layer.scratch(layer.sizes.tokens, layer.sizes.gate_rows);
  const Matrix bias = layer.b_ih && layer.b_hh ? add(layer.b_ih, layer.b_hh)
                                               : (layer.b_ih ? layer.b_ih : layer.b_hh).borrow();
  linear(from_input, layer.x, layer.w_ih, bias);
  return from_input;
}

// False if the device refuses it.
bool forward_in_one_launch(const Launch& launch, const LayerForward& layer,
                           const Matrix& from_input) {
  const LayerSizes& sizes = layer.sizes;
  Matrix second_operand, waiting;
  // What is known between the stages of a step.
  if (layer.cell().stages > 1 && launch.plan.path != Path::kResident) {
    second_operand = layer.scratch(sizes.batch, sizes.hidden);
    waiting = Matrix::empty(layer.device, layer.compute_number(), sizes.batch, sizes.gate_rows);
  }
  return run_in_one_launch(launch, Forward{.steps = launch.steps,
                                           .hidden = launch.hidden(),
                                           .activations = layer.activations,
                                           .keep = layer.keep,
                                           .from_input = from_input.data(),
                                           .w_hh = layer.w_hh.data(),
                                           .h0 = layer.h0.data(),
                                           .c = layer.c.data(),
                                           .out = layer.out.data(),
                                           .h_n = layer.h.data(),
                                           .gates = layer.gates.data(),
                                           .cells = layer.cells.data(),
                                           .waiting = waiting.data(),
                                           .second_operand = second_operand.data(),
                                           .signals = launch.signals()});
}

}  // namespace

void forward(const LayerForward& layer) {
  if (layer.sizes.tokens == 0) return;
  const Matrix from_input = input_matmul(layer);
  Launch launch =
      make_launch(layer, Pass::kForward,
                  layer.keep == Keep::kCellStates ? CellStates::kEveryStep : CellStates::kLast);
  while (!launch.stepwise() && !forward_in_one_launch(launch, layer, from_input)) {
    take_next_path(launch, layer.device);
  }
  if (launch.stepwise()) forward_stepwise(launch, layer, from_input);
}

}  // namespace rotcell::cuda
