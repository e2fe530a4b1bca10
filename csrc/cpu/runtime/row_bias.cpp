#include "cpu/runtime/row_bias.h"

#include "cpu/runtime/threads.h"

namespace rotcell::cpu {
namespace {

// body(element of a chunk's tokens, element of the rows) for all of them, columns shared out. The
// steps of a row come in the order in which they are walked.
template <class Body>
void for_elements(const Steps& steps, const Chunk& chunk, int64_t columns, const Body& body) {
  for_slices(chunk.tokens * columns, [&](Slice slice) {
    const int64_t begin = slice.begin(columns), end = slice.end(columns);
    for (int64_t position = chunk.begin; position < chunk.end; ++position) {
      const Step step = step_at(steps, position);
      for (int64_t row = 0; row < step.rows; ++row) {
        const int64_t token = step.token + row - chunk.first_token;
        for (int64_t c = begin; c < end; ++c) body(token * columns + c, row * columns + c);
      }
    }
  });
}

}  // namespace

template <class T>
void add_row_bias(const Steps& steps, const Chunk& chunk, int64_t columns, const T* row_bias,
                  T* gates) {
  for_elements(steps, chunk, columns,
               [&](int64_t token, int64_t row) { gates[token] += row_bias[row]; });
}

template <class T>
void add_row_bias_gradient(const Steps& steps, const Chunk& chunk, int64_t columns,
                           const T* grad_gates, MathType<T>* grad_row_bias) {
  for_elements(steps, chunk, columns,
               [&](int64_t token, int64_t row) { grad_row_bias[row] += grad_gates[token]; });
}

template void add_row_bias(const Steps&, const Chunk&, int64_t, const float*, float*);
template void add_row_bias(const Steps&, const Chunk&, int64_t, const double*, double*);
template void add_row_bias_gradient(const Steps&, const Chunk&, int64_t, const float*, float*);
template void add_row_bias_gradient(const Steps&, const Chunk&, int64_t, const double*, double*);
template void add_row_bias_gradient(const Steps&, const Chunk&, int64_t, const BFloat16*, float*);

}  // namespace rotcell::cpu
