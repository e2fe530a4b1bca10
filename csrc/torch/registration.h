// How torch learns of the ops: schemas made from the descriptions of the cells, and the functions
// that convert torch's stack of arguments.
#pragma once

#include <string>

#include "cells/list.h"
#include "torch/arguments.h"

namespace rotcell::ops {

// Every op has overloads. torch handles each argument of a call, used or not, so those that few
// calls use would cost all other calls a fifteenth of a small call.
enum class Overload {
  kPlain,     // NAME.default
  kExtended,  // NAME.extended: also state hooks, and the cell states of every step
  kRowBias,   // NAME.row_bias: one bias per row of the batch; on the CPU only
};

std::string forward_schema(const CellDescription& cell, Overload overload);
std::string backward_schema(const CellDescription& cell, Overload overload);

// With the overload, as torch takes it.
std::string forward_name(const CellDescription& cell, Overload overload);
std::string backward_name(const CellDescription& cell, Overload overload);

// What a device computes.
using ForwardOp = ForwardResult (*)(CellIndex, const ForwardArguments&);
using BackwardOp = BackwardResult (*)(CellIndex, const BackwardArguments&);

// A function as torch calls it: the arguments lie on the stack, the results replace them.
using BoxedFunction = void (*)(StableIValue* stack, uint64_t inputs, uint64_t outputs);

void run_forward(CellIndex cell, Overload overload, ForwardOp op, StableIValue* stack);
void run_backward(CellIndex cell, Overload overload, BackwardOp op, StableIValue* stack);

// A library of ops for torch; what it registers stays for the life of the process.
class Library {
 public:
  static Library that_defines();                        // the schemas
  static Library that_adds();                           // more of them, in any order
  static Library for_device(const char* dispatch_key);  // "CPU", "CUDA"

  void define(const std::string& schema);
  void implement(const std::string& name, BoxedFunction function);

 private:
  TorchLibraryHandle handle_ = nullptr;
};

namespace detail {

template <CellIndex cell, Overload overload, ForwardOp op>
void boxed_forward(StableIValue* stack, uint64_t, uint64_t) {
  run_forward(cell, overload, op, stack);
}
template <CellIndex cell, Overload overload, BackwardOp op>
void boxed_backward(StableIValue* stack, uint64_t, uint64_t) {
  run_backward(cell, overload, op, stack);
}

// CELLS count from the cell FIRST.
template <CellIndex FIRST, Overload overload, ForwardOp forward, BackwardOp backward,
          CellIndex... CELLS>
void implement_all(Library& library, std::integer_sequence<CellIndex, CELLS...>) {
  (library.implement(forward_name(kCells[FIRST + CELLS], overload),
                     boxed_forward<FIRST + CELLS, overload, forward>),
   ...);
  (library.implement(backward_name(kCells[FIRST + CELLS], overload),
                     boxed_backward<FIRST + CELLS, overload, backward>),
   ...);
}

}  // namespace detail

// Registers these overloads of the ops of all cells for a device, but for those that see rows.
template <ForwardOp forward, BackwardOp backward, Overload... overloads>
void implement_ops(const char* dispatch_key) {
  Library library = Library::for_device(dispatch_key);
  const std::make_integer_sequence<CellIndex, Cells::kCount> cells;
  (detail::implement_all<0, overloads, forward, backward>(library, cells), ...);
}

// The ops of the cells that see rows. A bias per row of the batch they do not have.
template <ForwardOp forward, BackwardOp backward, Overload... overloads>
void implement_row_cell_ops(const char* dispatch_key) {
  Library library = Library::for_device(dispatch_key);
  const std::make_integer_sequence<CellIndex, RowCells::kCount> cells;
  (detail::implement_all<Cells::kCount, overloads, forward, backward>(library, cells), ...);
}

// Runs what registers a library's ops when the library is loaded. An exception there would end the
// process: its text is kept for Python, which asks for it by rotcell_load_error().
class AtLoad {
 public:
  explicit AtLoad(void (*body)());
};

}  // namespace rotcell::ops
