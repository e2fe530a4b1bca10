// The gradients of the weights, added up chunk by chunk of a sequence.
#pragma once

#include <vector>

#include "cpu/runtime/buffer.h"
#include "cpu/runtime/layer.h"

namespace rotcell::cpu {

// Every weight was multiplied with an element of x or of the old h. With these side by side in one
// matrix, all gradients are one matmul.
template <class T>
class WeightGradients {
 public:
  // The layer must live on. No chunk has more than chunk_tokens tokens.
  WeightGradients(const LayerBackward<T>& layer, int64_t chunk_tokens);

  // grad_gates [chunk.tokens, G]; second_operand [chunk.tokens, H]: what the second matmul
  // multiplied, null if the cell has none; masked_h [chunk.tokens, P]: what the first matmul
  // multiplied, null for the output of the step before.
  void add(const Chunk& chunk, const T* grad_gates, const T* second_operand, const T* masked_h);

 private:
  // Some tokens of a chunk.
  struct Piece {
    int64_t begin, end;
    int64_t tokens() const { return end - begin; }
  };
  // Rows of [., P] that lie together, and where they are in a piece.
  struct Run {
    const T* rows;
    int64_t count, first_depth;
  };
  // Columns of the gates that the same factors feed.
  struct Columns {
    int64_t begin, end;
    int64_t first_hh;                // the row of w_hh of the first, if h feeds them
    bool from_h, of_second_operand;  // instead of the old h
  };

  // What the tokens of a piece started from.
  std::vector<Run> old_h(const Chunk& chunk, const Piece& piece) const;
  // x, and next to it these rows.
  void pack(const Piece& piece, const std::vector<Run>& rows, const Buffer<T>& factors) const;
  void add_piece(const Piece& piece, const T* grad_gates);

  const LayerBackward<T>& layer_;
  LayerSizes sizes_;              // without outputs if h is no factor
  std::vector<Columns> columns_;  // all, in their order
  bool has_second_operand_;
  Buffer<T> with_h_, with_second_operand_;  // packed factors of a piece
  Accumulate start_ = Accumulate::kOverwrite;
};

// The same if every thread sums over its own rows: partial sums, added up at the end in the
// order of the threads.
template <class T>
class PartialWeightGradients {
 public:
  // `width` columns, as the kernels want.
  PartialWeightGradients(const LayerSizes& sizes, int64_t width, int64_t slots);

  MathType<T>* data() const { return partial_.data(); }

  // Once all threads are done.
  void sum_into(const LayerBackward<T>& layer) const;

 private:
  int64_t rows_, width_, slots_;
  Buffer<MathType<T>> partial_;  // [slots, G, width]
};

// grad_w_hr [P, H] = grad_projected^T [P, N] x unprojected [N, H].
template <class T>
void projection_gradient(const LayerSizes& sizes, const T* grad_projected, const T* unprojected,
                         MathType<T>* grad_w_hr);

}  // namespace rotcell::cpu
