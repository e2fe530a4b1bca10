// Instantiates every kernel for the instruction set that this translation unit is compiled for.
#pragma once

#include "cpu/kernels.h"
#include "cpu/rot_gru_sequence.h"
#include "cpu/rot_lstm_sequence.h"

namespace rotcell::cpu::ROTCELL_ISA {

// Weights [rows, depth] for a product with rows of length depth, and transposed for the way back.
template <class T>
int64_t forward_elements(int64_t rows, int64_t depth) {
  return panel_elements<T>(depth, rows);
}
template <class T>
void pack_forward(const T* weights, int64_t rows, int64_t depth, T* packed) {
  pack_panels(weights, 1, depth, depth, rows, packed);
}
template <class T>
int64_t backward_elements(int64_t rows, int64_t depth) {
  return panel_elements<T>(rows, depth);
}
template <class T>
void pack_backward(const T* weights, int64_t rows, int64_t depth, T* packed) {
  pack_panels(weights, depth, 1, rows, depth, packed);
}

// Applies elements/pack to the three parts of a GRU's recurrent weights, one behind the other.
template <class T, int64_t (*Elements)(int64_t, int64_t)>
int64_t gru_elements(int64_t, int64_t hidden) {
  using Weights = RotGruWeights<T>;
  return Elements(Weights::gates(hidden).rows, hidden) +
         Elements(Weights::candidate(hidden).rows, hidden) +
         Elements(Weights::angles(hidden).rows, hidden);
}
template <class T, int64_t (*Elements)(int64_t, int64_t),
          void (*Pack)(const T*, int64_t, int64_t, T*)>
void pack_gru(const T* weights, int64_t, int64_t hidden, T* packed) {
  using Weights = RotGruWeights<T>;
  for (const auto part :
       {Weights::gates(hidden), Weights::candidate(hidden), Weights::angles(hidden)}) {
    Pack(weights + part.first_row * hidden, part.rows, hidden, packed);
    packed += Elements(part.rows, hidden);
  }
}

template <class T>
constexpr Kernels<T> make_kernels(const char* name) {
  using Lstm = RotLstmSequence<T>;
  using Gru = RotGruSequence<T>;
  const WeightPacking<T> forward{forward_elements<T>, pack_forward<T>};
  const WeightPacking<T> backward{backward_elements<T>, pack_backward<T>};
  return {
      name,
      Tile::kRows,
      forward,
      backward,
      {gru_elements<T, forward_elements<T>>, pack_gru<T, forward_elements<T>, pack_forward<T>>},
      {gru_elements<T, backward_elements<T>>, pack_gru<T, backward_elements<T>, pack_backward<T>>},
      Lstm::forward,
      Lstm::backward,
      Gru::forward,
      Gru::backward};
}

}  // namespace rotcell::cpu::ROTCELL_ISA
