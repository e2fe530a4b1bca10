// Instantiates every kernel for the instruction set that this translation unit is compiled for.
#pragma once

#include "cpu/kernels.h"
#include "cpu/rot_gru_sequence.h"
#include "cpu/rot_lstm_sequence.h"

namespace rotcell::cpu::ROTCELL_ISA {

template <class T>
int64_t forward_elements(int64_t rows, int64_t x_depth, int64_t depth) {
  return panel_elements<T>(x_depth + depth, rows);
}
template <class T>
void pack_forward(const T* x_weights, const T* weights, int64_t rows, int64_t x_depth,
                  int64_t depth, T* packed, Share share) {
  if (x_depth > 0) {
    pack_panels(x_weights, 1, x_depth, x_depth, rows, packed, 0, x_depth + depth, share);
  }
  pack_panels(weights, 1, depth, depth, rows, packed, x_depth, x_depth + depth, share);
}
template <class T>
int64_t backward_elements(int64_t rows, int64_t depth) {
  return panel_elements<T>(rows, depth);
}
template <class T>
void pack_backward(const T* weights, int64_t rows, int64_t depth, T* packed, Share share) {
  pack_panels(weights, depth, 1, rows, depth, packed, 0, rows, share);
}

// The three parts of a GRU's weights, one behind the other.
template <class T>
int64_t gru_forward_elements(int64_t, int64_t x_depth, int64_t hidden) {
  int64_t elements = 0;
  for (const auto part : RotGruParts::all(hidden)) {
    elements += forward_elements<T>(part.rows, x_depth, hidden);
  }
  return elements;
}
template <class T>
void pack_gru_forward(const T* x_weights, const T* weights, int64_t, int64_t x_depth,
                      int64_t hidden, T* packed, Share share) {
  for (const auto part : RotGruParts::all(hidden)) {
    pack_forward(x_depth > 0 ? x_weights + part.first_row * x_depth : nullptr,
                 weights + part.first_row * hidden, part.rows, x_depth, hidden, packed, share);
    packed += forward_elements<T>(part.rows, x_depth, hidden);
  }
}
template <class T>
int64_t gru_backward_elements(int64_t, int64_t hidden) {
  int64_t elements = 0;
  for (const auto part : RotGruParts::all(hidden)) {
    elements += backward_elements<T>(part.rows, hidden);
  }
  return elements;
}
template <class T>
void pack_gru_backward(const T* weights, int64_t, int64_t hidden, T* packed, Share share) {
  for (const auto part : RotGruParts::all(hidden)) {
    pack_backward(weights + part.first_row * hidden, part.rows, hidden, packed, share);
    packed += backward_elements<T>(part.rows, hidden);
  }
}

template <class T>
void product(const T* rows, int64_t count, int64_t depth, const T* panels, int64_t columns,
             const T* bias, T* result) {
  multiply(Rows<T>{rows, depth, depth}, count, Panels<T>{panels, depth, columns},
           Addend<T>{bias, 0}, result, columns);
}

template <class T>
constexpr Kernels<T> make_kernels(const char* name) {
  return {name,
          Tile::kRows,
          {forward_elements<T>, pack_forward<T>},
          {gru_forward_elements<T>, pack_gru_forward<T>},
          {backward_elements<T>, pack_backward<T>},
          {gru_backward_elements<T>, pack_gru_backward<T>},
          product<T>,
          RotLstmSequence<T>::forward,
          RotLstmSequence<T>::backward,
          RotGruSequence<T>::forward,
          RotGruSequence<T>::backward};
}

}  // namespace rotcell::cpu::ROTCELL_ISA
