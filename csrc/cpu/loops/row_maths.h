// The math of a cell that sees whole rows, with the interface of the math of pairs of units.
#pragma once

#include "cpu/loops/kernels.h"
#include "cpu/loops/row_access.h"
#include "cpu/matmul/packed.h"

namespace rotcell::cpu::ROTCELL_ISA {

template <class T, class Cell>
struct RowMaths {
  using Access = RowAccess<T>;

  // What a row of the batch has of RowPointers.
  struct Pointers {
    T* scratch;
    const RowPointers<T>* call;
    int64_t tile;

    Pointers() = default;
    Pointers(const RowPointers<T>& pointers, int64_t slot, int64_t row)
        : scratch(pointers.scratch + slot * pointers.scratch_width),
          call(&pointers),
          tile(row / Tile::kRows) {}

    RowContext<T> context(Activations activations) const {
      return {call->parameters, call->prepared, scratch, activations};
    }
    RowGradients<T> gradients() const {
      T* elements = call->gradients + tile * call->gradient_width;
      return row_gradients<Cell>(elements, call->parameters.hidden, call->parameters.layers);
    }
  };

  struct Forward {
    int64_t hidden;
    UnitRange units;  // all
    GateActivation angles;
    Keep keep;
    T* preactivations;  // [G]: what the matmuls gave, becomes what backward needs
    T* gates;           // [G]: the same memory, if it is kept
    const T* h_before;  // [H], if the cell reads it
    const T* c_before;  // [H], if the cell has a cell state, as for c
    T* c;               // [H]: written; may be c_before
    T* result;          // [H]
    Pointers pointers;
  };

  template <int S, GateActivation function>
  static void forward(const Forward& p) {
    run_forward(p, {function, p.angles});
  }
  // Looks up the activation per vector, which costs little compared with the sums and avoids a
  // second copy of the code.
  __attribute__((noinline)) static void run_forward(const Forward& p, Activations activations) {
    const RowContext<T> context = p.pointers.context(activations);
    Cell::template forward_row<Access>(
        RowForward<T>{context, p.preactivations, p.h_before, p.c_before, p.c, p.result});
  }

  enum class Recompute { kNothing, kOperand };

  struct Backward {
    int64_t hidden;
    UnitRange units;  // all
    GateActivation angles;
    OutputGradient output_gradient;  // whether grad_out is added to the gradient of the result
    Recompute again;
    const T* gates;     // [G], as forward left them
    const T* h_before;  // [H], if the cell reads it
    const T* c_before;  // [H], if the cell has a cell state, as for c and grad_c
    const T* c;         // [H]
    const T* grad_out;  // [H], if given
    T* grad_result;     // [H]: has that of the output added
    T* grad_h;          // [H]: of h_before, if the cell reads it: what passes no matmul
    T* grad_c;          // [H]: of c, becomes that of c_before
    T* grad_gates;      // [G]: written
    T* result;          // [H]: the result, if wanted again
    Pointers pointers;
  };

  static RowBackward<T> arguments(const Backward& p, Activations activations) {
    return {p.pointers.context(activations),
            p.gates,
            p.h_before,
            p.c_before,
            p.c,
            p.grad_result,
            p.grad_h,
            p.grad_c,
            p.grad_gates,
            p.again == Recompute::kOperand ? p.result : nullptr,
            p.pointers.gradients()};
  }

  template <int S, GateActivation function>
  static void backward(const Backward& p) {
    run_backward(p, {function, p.angles});
  }
  __attribute__((noinline)) static void run_backward(const Backward& p, Activations activations) {
    if (p.output_gradient == OutputGradient::kGiven) {
      Access::for_units(p.hidden, [&](auto units) ROTCELL_LAMBDA_INLINE {
        Access::add(p.grad_result, Access::load(p.grad_out, units), units);
      });
    }
    Cell::template backward_row<Access>(arguments(p, activations));
  }

  // Recomputes the new cell state [H].
  template <GateActivation function>
  static void recompute_cell_state(const Backward& p, T* c) {
    run_memory(p, {function, p.angles}, c);
  }
  __attribute__((noinline)) static void run_memory(const Backward& p, Activations activations,
                                                   T* c) {
    Cell::template cell_state_row<Access>(arguments(p, activations), c);
  }
};

}  // namespace rotcell::cpu::ROTCELL_ISA
