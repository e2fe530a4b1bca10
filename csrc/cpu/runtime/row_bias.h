// Biases per row of the batch, where no kernel adds them in its matmuls.
#pragma once

#include "cells/steps.h"
#include "cpu/bfloat16.h"

namespace rotcell::cpu {

// gates [chunk.tokens, columns] += row_bias [B, columns], for every token that of its row.
template <class T>
void add_row_bias(const Steps& steps, const Chunk& chunk, int64_t columns, const T* row_bias,
                  T* gates);

// The backward pass: grad_row_bias [B, columns] += grad_gates [chunk.tokens, columns].
template <class T>
void add_row_bias_gradient(const Steps& steps, const Chunk& chunk, int64_t columns,
                           const T* grad_gates, MathType<T>* grad_row_bias);

}  // namespace rotcell::cpu
