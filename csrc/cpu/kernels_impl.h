// Instantiates every kernel for the instruction set that this translation unit is compiled for.
#pragma once

#include "cpu/kernels.h"
#include "cpu/rot_gru_sequence.h"
#include "cpu/rot_lstm_sequence.h"
#include "cpu/unit_runs.h"

namespace rotcell::cpu::ROTCELL_ISA {

template <class T>
int64_t forward_elements(int64_t rows, int64_t depth) {
  return panel_elements<T>(depth, rows);
}
template <class T>
void pack_forward(const T* weights, int64_t rows, int64_t depth, T* packed, Share share) {
  pack_panels(weights, 1, depth, depth, rows, packed, 0, depth, share);
}
template <class T>
int64_t backward_elements(int64_t rows, int64_t depth) {
  return panel_elements<T>(rows, depth);
}
template <class T>
void pack_backward(const T* weights, int64_t rows, int64_t depth, T* packed, Share share) {
  pack_panels(weights, depth, 1, rows, depth, packed, 0, rows, share);
}

// Forward: a product for every run of rows that belongs to the units.
template <class T, RowRuns (*runs_of)(int64_t, UnitRange)>
int64_t recurrent_forward_elements(int64_t hidden, int64_t x_depth, int64_t depth,
                                   UnitRange units) {
  int64_t elements = 0;
  for (const RowRun& run : runs_of(hidden, units)) {
    elements += panel_elements<T>(x_depth + depth, run.rows);
  }
  return elements;
}
template <class T, RowRuns (*runs_of)(int64_t, UnitRange)>
void pack_recurrent_forward(const T* x_weights, const T* weights, int64_t hidden, int64_t x_depth,
                            int64_t depth, UnitRange units, T* packed, Share share) {
  const int64_t all = x_depth + depth;
  for (const RowRun& run : runs_of(hidden, units)) {
    if (x_depth > 0) {
      pack_panels(x_weights + run.first * x_depth, 1, x_depth, x_depth, run.rows, packed, 0, all,
                  share);
    }
    pack_panels(weights + run.first * depth, 1, depth, depth, run.rows, packed, x_depth, all,
                share);
    packed += panel_elements<T>(all, run.rows);
  }
}

// Backward: a product of every run of rows, with the columns that belong to the units. The output
// of a projected LSTM is narrower than its units, which are then all in one range.
template <class T, RowRuns (*runs_of)(int64_t)>
int64_t recurrent_backward_elements(int64_t hidden, int64_t, int64_t depth, UnitRange units) {
  const int64_t columns = all_units(hidden, units) ? depth : units.end - units.begin;
  int64_t elements = 0;
  for (const RowRun& run : runs_of(hidden)) elements += panel_elements<T>(run.rows, columns);
  return elements;
}
template <class T, RowRuns (*runs_of)(int64_t)>
void pack_recurrent_backward(const T*, const T* weights, int64_t hidden, int64_t, int64_t depth,
                             UnitRange units, T* packed, Share share) {
  const int64_t columns = all_units(hidden, units) ? depth : units.end - units.begin;
  for (const RowRun& run : runs_of(hidden)) {
    pack_panels(weights + run.first * depth + units.begin, depth, 1, run.rows, columns, packed, 0,
                run.rows, share);
    packed += panel_elements<T>(run.rows, columns);
  }
}

template <class T>
void product(const T* rows, int64_t count, int64_t depth, const T* panels, int64_t columns,
             const T* bias, T* result) {
  multiply(Rows<T>{rows, depth, depth}, count, Panels<T>{panels, depth, columns},
           Addend<T>{bias, 0}, result, columns);
}

template <class T>
void add_unpacked(const T* rows, int64_t count, int64_t depth, const T* weights, int64_t columns,
                  T* result, int64_t result_stride) {
  multiply_unpacked(Rows<T>{rows, depth, depth}, count, weights, columns,
                    Addend<T>{result, result_stride}, result, result_stride);
}
template <class T>
void unpacked_back(const T* rows, int64_t count, int64_t depth, const T* weights,
                   int64_t weight_stride, int64_t columns, T* result, int64_t result_stride) {
  multiply_unpacked_back(Rows<T>{rows, depth, depth}, count, weights, weight_stride, columns,
                         Addend<T>{}, result, result_stride);
}

template <class T>
constexpr Kernels<T> make_kernels(const char* name) {
  return {
      name,
      Tile::kRows,
      2 * kLanes<T>,
      {forward_elements<T>, pack_forward<T>},
      {backward_elements<T>, pack_backward<T>},
      {recurrent_forward_elements<T, lstm_runs>, pack_recurrent_forward<T, lstm_runs>},
      {recurrent_backward_elements<T, lstm_runs_back>, pack_recurrent_backward<T, lstm_runs_back>},
      {recurrent_forward_elements<T, gru_runs>, pack_recurrent_forward<T, gru_runs>},
      {recurrent_backward_elements<T, gru_runs_back>, pack_recurrent_backward<T, gru_runs_back>},
      product<T>,
      add_unpacked<T>,
      unpacked_back<T>,
      RotLstmSequence<T>::forward,
      RotLstmSequence<T>::backward,
      RotGruSequence<T>::forward,
      RotGruSequence<T>::backward};
}

}  // namespace rotcell::cpu::ROTCELL_ISA
