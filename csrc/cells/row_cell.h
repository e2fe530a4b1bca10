// What a row cell is: a cell whose math sees all units of a row at once, for sums over a row (layer
// norm, RUM) and constant rotations of the whole state (GORU, EURNN). The matmuls around it are
// those of every cell. check_row_cell, at the end, refuses one that the CPU kernels cannot run.
//
// A row cell is a struct with
//   enum Block {..., kBlockCount}      blocks of gate columns, in the order of the weights' rows
//   block(number, hidden)              what feeds a block, and how many columns it has
//   kStages                            1
//   kHasCellState, kReadsOutput,
//   kCanProject                        as in cells/cell.h
//   kAddsBiases                        whether the math adds the biases, and no matmul does; then
//                                      both are as long as the columns that x feeds
//   bias_columns(hidden)               otherwise: how many columns, the first ones, have a bias
//   kParameterCount, parameter(number) further parameters
//   kHasNorm                           whether there is a number `norm` (see RowParameters)
//   prepared(hidden, layers)           numbers that are computed once per call,
//   prepare<T>(parameters, to)         which computes them
//   scratch(hidden)                    numbers that the math of one row needs room for
//   forward_row<Row>(RowForward)       one row, one step
//   backward_row<Row>(RowBackward)
//   cell_state_row<Row>(RowBackward, c)  recomputes c [H], if kHasCellState
// `Row` is how the math reaches memory; RowAccess in cpu/loops has its members.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cells/activation.h"
#include "cells/rows.h"

namespace rotcell {

// Neighboring columns of the gates that the same operands feed.
struct ColumnBlock {
  FedBy fed_by;
  int64_t count;
};

// How many numbers a parameter has, or each of its layers.
enum class ParameterWidth {
  kUnits,      // H
  kPairs,      // H / 2
  kInputRows,  // R_x
};

// A parameter other than weights and biases: [width], or with an entry for each layer of constant
// rotations [L, width].
struct RowParameter {
  const char* name;
  ParameterWidth width;
  bool of_layers;

  ROTCELL_INLINE constexpr int64_t row(int64_t hidden, int64_t input_rows) const {
    return width == ParameterWidth::kUnits   ? hidden
           : width == ParameterWidth::kPairs ? hidden / 2
                                             : input_rows;
  }
  ROTCELL_INLINE constexpr int64_t elements(int64_t hidden, int64_t input_rows,
                                            int64_t layers) const {
    return row(hidden, input_rows) * (of_layers ? layers : 1);
  }
};
inline constexpr int kMostRowParameters = 4;

// The values of a call's parameters.
template <class T>
struct RowParameters {
  int64_t hidden = 0;
  int64_t layers = 0;       // L, of constant rotations
  double norm = 0;          // every state is scaled to this norm; 0: not scaled
  const T* b_ih = nullptr;  // if Cell::kAddsBiases and there are biases
  const T* b_hh = nullptr;  // as b_ih
  const T* of[kMostRowParameters] = {};
};

// The gradients of parameters, each shaped as its parameter. Every row adds to them.
template <class T>
struct RowGradients {
  T* bias = nullptr;  // of the sum of both biases, if Cell::kAddsBiases
  T* of[kMostRowParameters] = {};
};

// What the math of a row is given in any pass.
template <class T>
struct RowContext {
  RowParameters<T> parameters;
  const T* prepared;  // [Cell::prepared(H, L)]
  T* scratch;         // [Cell::scratch(H)]
  Activations activations;
};

template <class T>
struct RowForward : RowContext<T> {
  T* gates;           // [G]: what the matmuls gave; becomes what backward needs
  const T* h_before;  // [H], if the cell reads it
  const T* c_before;  // [H], if the cell has a cell state, as for c
  T* c;               // [H]: written; may be c_before
  T* result;          // [H]: written
};

template <class T>
struct RowBackward : RowContext<T> {
  const T* gates;     // [G], as forward left them
  const T* h_before;  // [H], if the cell reads it
  const T* c_before;  // [H], if the cell has a cell state, as for c and grad_c
  const T* c;         // [H]
  const T* d_result;  // [H]: may be grad_h
  T* grad_h;          // [H]: of h_before, if the cell reads it: what passes no matmul
  T* grad_c;          // [H]: of c, becomes that of c_before
  T* grad_gates;      // [G]: written
  T* result;          // [H]: the recomputed result; null if not needed
  RowGradients<T> gradients{};
};

ROTCELL_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
ROTCELL_INLINE double square_root(double x) { return __builtin_sqrt(x); }

template <class Cell>
concept RowCell = requires { Cell::kBlockCount; };

// The columns of a row cell: one block after the other.
template <RowCell Cell>
struct CellRows<Cell> {
  static ROTCELL_INLINE constexpr int64_t offset(int block, int64_t hidden) {
    int64_t column = 0;
    for (int before = 0; before < block; ++before) column += Cell::block(before, hidden).count;
    return column;
  }
  static ROTCELL_INLINE constexpr int64_t count(int64_t hidden) {
    return offset(Cell::kBlockCount, hidden);
  }
  static ROTCELL_INLINE constexpr int64_t of_input(int64_t hidden) {
    int64_t rows = 0;
    for (int block = 0; block < Cell::kBlockCount; ++block) {
      const ColumnBlock found = Cell::block(block, hidden);
      if (found.fed_by != FedBy::kHidden) rows += found.count;
    }
    return rows;
  }
  static ROTCELL_INLINE constexpr int64_t recurrent_offset(int block, int64_t hidden) {
    int64_t rows = 0;
    for (int before = 0; before < block; ++before) {
      const ColumnBlock found = Cell::block(before, hidden);
      if (found.fed_by != FedBy::kInput) rows += found.count;
    }
    return rows;
  }
  static ROTCELL_INLINE constexpr RecurrentSpans recurrent_spans(int64_t hidden, HiddenFeeds) {
    RecurrentSpans spans;
    for (int block = 0; block < Cell::kBlockCount; ++block) {
      const ColumnBlock found = Cell::block(block, hidden);
      if (found.fed_by != FedBy::kInput) {
        spans.add(offset(block, hidden), recurrent_offset(block, hidden), found.count);
      }
    }
    return spans;
  }

  // There is one matmul.
  static ROTCELL_INLINE constexpr int64_t of_matmul(int matmul, int64_t hidden) {
    return matmul == 0 ? count(hidden) : 0;
  }
  static ROTCELL_INLINE constexpr int64_t first_of_matmul(int, int64_t) { return 0; }
  static ROTCELL_INLINE constexpr int64_t span_of_matmul(int matmul, int64_t hidden) {
    return of_matmul(matmul, hidden);
  }
};

// Numbers of the gradients of all parameters, one after the other: of the biases, if the math adds
// them, then of each parameter.
template <RowCell Cell>
ROTCELL_INLINE constexpr int64_t row_gradient_elements(int64_t hidden, int64_t layers) {
  const int64_t rows = CellRows<Cell>::of_input(hidden);
  int64_t elements = Cell::kAddsBiases ? rows : 0;
  for (int i = 0; i < Cell::kParameterCount; ++i) {
    elements += Cell::parameter(i).elements(hidden, rows, layers);
  }
  return elements;
}
template <RowCell Cell, class T>
ROTCELL_INLINE RowGradients<T> row_gradients(T* elements, int64_t hidden, int64_t layers) {
  const int64_t rows = CellRows<Cell>::of_input(hidden);
  RowGradients<T> gradients{};
  if constexpr (Cell::kAddsBiases) {
    gradients.bias = elements;
    elements += rows;
  }
  for (int i = 0; i < Cell::kParameterCount; ++i) {
    gradients.of[i] = elements;
    elements += Cell::parameter(i).elements(hidden, rows, layers);
  }
  return gradients;
}

// ---- What the kernels assume of a row cell

template <class Cell>
concept DescribesItsRows = requires {
  Cell::kStages;
  Cell::kHasCellState;
  Cell::kReadsOutput;
  Cell::kCanProject;
  Cell::kAddsBiases;
  Cell::kHasNorm;
  Cell::kParameterCount;
  requires std::is_same_v<decltype(Cell::block(0, 1)), ColumnBlock>;
  requires std::is_same_v<decltype(Cell::parameter(0)), RowParameter>;
  requires std::is_same_v<decltype(Cell::bias_columns(1)), int64_t>;
  requires std::is_same_v<decltype(Cell::prepared(1, 1)), int64_t>;
  requires std::is_same_v<decltype(Cell::scratch(1)), int64_t>;
  Cell::template prepare<double>(RowParameters<double>{}, static_cast<double*>(nullptr));
};

namespace detail {
template <class Cell>
constexpr bool blocks_without_input_are_last() {
  bool last = false;
  for (int block = 0; block < Cell::kBlockCount; ++block) {
    const FedBy fed_by = Cell::block(block, 2).fed_by;
    if (last && fed_by != FedBy::kHidden) return false;
    last = fed_by == FedBy::kHidden;
  }
  return true;
}
}  // namespace detail

// Does not compile for a row cell that the kernels cannot run; the message says why.
template <RowCell Cell>
constexpr bool check_row_cell() {
  static_assert(DescribesItsRows<Cell>,
                "a row cell has all the members that the top of cells/row_cell.h lists");
  if constexpr (DescribesItsRows<Cell>) {
    static_assert(Cell::kStages == 1, "a row cell has one stage");
    static_assert(Cell::kBlockCount > 0 && Cell::kBlockCount <= RecurrentSpans::kMost,
                  "a row cell has one to four blocks of columns");
    static_assert(detail::blocks_without_input_are_last<Cell>(),
                  "blocks that x does not feed come last: the rows of w_ih are the first columns "
                  "of the gates");
    static_assert(Cell::kParameterCount >= 0 && Cell::kParameterCount <= kMostRowParameters,
                  "a row cell has at most kMostRowParameters further parameters");
    static_assert(!(Cell::kCanProject && Cell::kReadsOutput),
                  "a row cell whose math reads the old output cannot be projected: a projected "
                  "output has another size than the units");
    static_assert(Cell::kAddsBiases || Cell::bias_columns(8) <= CellRows<Cell>::of_input(8),
                  "only columns that x feeds have a bias in b_ih");
  }
  return true;
}

}  // namespace rotcell
