// Instantiates every kernel for the instruction set that this translation unit is compiled for.
#pragma once

#include "cpu/loops/batch_vectorized.h"
#include "cpu/loops/kernels.h"
#include "cpu/loops/row_runs.h"
#include "cpu/loops/unit_vectorized.h"
#include "cpu/matmul/unpacked.h"
#include "cpu/matmul/weight_gradient.h"

namespace rotcell::cpu::ROTCELL_ISA {

template <class T>
int64_t forward_elements(int64_t rows, int64_t depth) {
  return panel_elements<T>(depth, rows);
}
template <class T>
void pack_forward(const T* weights, int64_t rows, int64_t depth, T* packed, Slice slice) {
  pack_panels(weights, 1, depth, depth, rows, packed, 0, depth, slice);
}
template <class T>
int64_t backward_elements(int64_t rows, int64_t depth) {
  return panel_elements<T>(rows, depth);
}
template <class T>
void pack_backward(const T* weights, int64_t rows, int64_t depth, T* packed, Slice slice) {
  pack_panels(weights, depth, 1, rows, depth, packed, 0, rows, slice);
}

// Forward: a matmul for every run of rows that belongs to the units.
template <class T, class Cell>
int64_t recurrent_forward_elements(const RecurrentWeights<T>& w, UnitRange units) {
  int64_t elements = 0;
  for_runs<Cell>(w.hidden, units, w.hidden_feeds, [&](const RowRun& run) {
    elements += panel_elements<T>(run.depth<T>(w.inputs, w.outputs), run.rows);
  });
  return elements;
}
template <class T, class Cell>
void pack_recurrent_forward(const RecurrentWeights<T>& w, UnitRange units, T* packed, Slice slice) {
  for_runs<Cell>(w.hidden, units, w.hidden_feeds, [&](const RowRun& run) {
    const int64_t depth = run.depth<T>(w.inputs, w.outputs), inputs = run.from_x ? w.inputs : 0;
    if (inputs > 0) {
      pack_panels(w.w_ih + run.first * inputs, 1, inputs, inputs, run.rows, packed, 0, depth,
                  slice);
    }
    if (run.from_h) {
      pack_panels(w.w_hh + run.first_hh * w.outputs, 1, w.outputs, w.outputs, run.rows, packed,
                  inputs, depth, slice);
    }
    packed += panel_elements<T>(depth, run.rows);
  });
}

// Backward: a matmul of every run of rows, with the columns that belong to the units. The output
// of a projected cell is narrower than its units, which are then all in one range.
template <class T>
int64_t backward_columns(const RecurrentWeights<T>& w, UnitRange units) {
  return all_units(w.hidden, units) ? w.outputs : units.end - units.begin;
}
template <class T, class Cell>
int64_t recurrent_backward_elements(const RecurrentWeights<T>& w, UnitRange units) {
  int64_t elements = 0;
  for_runs<Cell>(w.hidden, {0, w.hidden}, w.hidden_feeds, [&](const RowRun& run) {
    if (run.from_h) elements += panel_elements<T>(run.rows, backward_columns(w, units));
  });
  return elements;
}
template <class T, class Cell>
void pack_recurrent_backward(const RecurrentWeights<T>& w, UnitRange units, T* packed,
                             Slice slice) {
  const int64_t columns = backward_columns(w, units);
  for_runs<Cell>(w.hidden, {0, w.hidden}, w.hidden_feeds, [&](const RowRun& run) {
    if (!run.from_h) return;
    pack_panels(w.w_hh + run.first_hh * w.outputs + units.begin, w.outputs, 1, run.rows, columns,
                packed, 0, run.rows, slice);
    packed += panel_elements<T>(run.rows, columns);
  });
}

template <class T, class R>
void matmul(const T* rows, int64_t row_stride, int64_t count, int64_t depth, const T* panels,
            int64_t columns, const MathType<T>* bias, R* result, int64_t result_stride) {
  multiply(Rows<T>{rows, row_stride, depth}, count, Panels<T>{panels, depth, columns},
           Addend<T>{bias, 0}, result, result_stride);
}

template <class T>
void add_unpacked(const T* rows, int64_t count, int64_t depth, const T* weights, int64_t columns,
                  T* result, int64_t result_stride) {
  add_unpacked(Rows<T>{rows, depth, depth}, count, weights, columns, result, result_stride,
               unpacked_rows(count));
}
template <class T>
void unpacked_back(const T* rows, int64_t row_stride, int64_t count, int64_t depth,
                   const T* weights, int64_t weight_stride, int64_t columns, T* result,
                   int64_t result_stride) {
  multiply_unpacked_back(Rows<T>{rows, row_stride, depth}, count, weights, weight_stride, columns,
                         Addend<T>{}, result, result_stride);
}

// In this instruction set's namespace: the linker would merge a cell's own functions with those of
// other instruction sets.
template <RowCell Cell>
int64_t row_prepared(int64_t hidden, int64_t layers) {
  return Cell::prepared(hidden, layers);
}
template <class T, RowCell Cell>
void prepare_row(const RowParameters<T>& parameters, T* to) {
  Cell::prepare(parameters, to);
}
template <RowCell Cell>
int64_t row_scratch(int64_t hidden) {
  return Cell::scratch(hidden);
}
template <RowCell Cell>
int64_t row_gradient_count(int64_t hidden, int64_t layers) {
  return row_gradient_elements<Cell>(hidden, layers);
}
template <class T, RowCell Cell>
RowGradients<T> find_row_gradients(T* gradients, int64_t hidden, int64_t layers) {
  return row_gradients<Cell>(gradients, hidden, layers);
}

// Row cells have no batch-vectorized loop, and no kernels for storage types: such layers run in
// float.
template <class T, RowCell Cell>
constexpr CellKernels<T> make_row_cell_kernels() {
  return {.unit_tile = 2 * kLanes<T>,
          .forward_weights = {.elements = recurrent_forward_elements<T, Cell>,
                              .pack = pack_recurrent_forward<T, Cell>},
          .backward_weights = {.elements = recurrent_backward_elements<T, Cell>,
                               .pack = pack_recurrent_backward<T, Cell>},
          .forward = Sequence<T, Cell>::forward,
          .backward = Sequence<T, Cell>::backward,
          .batch_vectorized = {},
          .row = {.prepared = row_prepared<Cell>,
                  .prepare = prepare_row<T, Cell>,
                  .scratch = row_scratch<Cell>,
                  .gradients = row_gradient_count<Cell>,
                  .find_gradients = find_row_gradients<T, Cell>}};
}

template <class T, class Cell>
constexpr BatchVectorizedKernels<T> make_batch_vectorized_kernels() {
  if constexpr (kRoundsStored<T> || !takes_pairs<Cell>)
    return {};
  else
    return {.block_rows = kBlockRows<T>,
            .forward_elements = BatchSequence<T, Cell>::forward_elements,
            .pack_forward = BatchSequence<T, Cell>::pack_forward,
            .backward_elements = BatchSequence<T, Cell>::backward_elements,
            .pack_backward = BatchSequence<T, Cell>::pack_backward,
            .gradient_width = gradient_width<T>,
            .forward = BatchSequence<T, Cell>::forward,
            .backward = BatchSequence<T, Cell>::backward};
}

template <class T, class Cell>
constexpr CellKernels<T> make_cell_kernels() {
  return {.unit_tile = Cell::Rotation::kUnits * kLanes<T>,
          .forward_weights = {.elements = recurrent_forward_elements<T, Cell>,
                              .pack = pack_recurrent_forward<T, Cell>},
          .backward_weights = {.elements = recurrent_backward_elements<T, Cell>,
                               .pack = pack_recurrent_backward<T, Cell>},
          .forward = Sequence<T, Cell>::forward,
          .backward = Sequence<T, Cell>::backward,
          .batch_vectorized = make_batch_vectorized_kernels<T, Cell>()};
}

template <class T, class Cell>
constexpr CellKernels<T> make_any_cell_kernels() {
  if constexpr (RowCell<Cell> && kRoundsStored<T>) {
    return {};
  } else if constexpr (RowCell<Cell>) {
    return make_row_cell_kernels<T, Cell>();
  } else {
    return make_cell_kernels<T, Cell>();
  }
}

template <class T, class... Types>
constexpr std::array<CellKernels<T>, sizeof...(Types)> make_all_cell_kernels(TypeList<Types...>) {
  return {make_any_cell_kernels<T, Types>()...};
}

template <class T>
constexpr Kernels<T> make_kernels(const char* name) {
  Kernels<T> kernels{
      .instruction_set = name,
      .row_tile = Tile::kRows,
      .forward_weights = {.elements = forward_elements<T>, .pack = pack_forward<T>},
      .backward_weights = {.elements = backward_elements<T>, .pack = pack_backward<T>},
      .matmul = matmul<T, MathType<T>>,
      .matmul_stored = matmul<T, T>,
      .add_unpacked = nullptr,
      .unpacked_back = nullptr,
      .factor_elements = panel_elements<T>,
      .pack_factors = pack_factors<T>,
      .add_gradients = add_gradients<T>,
      .cells = make_all_cell_kernels<T>(AllCells{})};
  if constexpr (!kRoundsStored<T>) {
    kernels.add_unpacked = add_unpacked<T>;
    kernels.unpacked_back = unpacked_back<T>;
  }
  return kernels;
}

}  // namespace rotcell::cpu::ROTCELL_ISA
