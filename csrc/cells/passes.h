// What a caller wants of a forward pass, and what it gives a backward pass.
#pragma once

namespace rotcell {

// What a forward pass keeps.
enum class Keep {
  kNothing,
  kCellStates,   // the cell state of every token
  kForBackward,  // cell states and the activations of the gates
};

enum class OutputGradient { kZero, kGiven };

// Which cell states have a gradient.
enum class CellStateGradient { kLast, kEveryStep };

}  // namespace rotcell
