// What the cooperative kernels share. A block has the weights of its units on chip and works on its
// tiles of the batch, 16 rows each, at best on one. How it learns what the blocks with the other
// units made of a tile is a policy: ThroughL2, or InCluster.
#pragma once

#include "cells/steps.h"
#include "cuda/kernels/cell_io.h"
#include "cuda/kernels/chunked_matmul.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/tensor_core_matmul.h"

namespace rotcell::cuda {

// How rows come into shared memory.
enum class Staging {
  kByChunks,    // of 16 bytes: all of them, and the rows, lie at multiples of that
  kByElements,  // of other sizes
};

template <class Params, class Matmul>
struct Cooperative {
  Params params;
  int units;        // of a block, an even number
  int unit_groups;  // blocks that share out the units
  int tile_groups;  // such groups of blocks; they share out the tiles
  Staging staging;
  PerMatmul<int> made;  // in a cluster: columns of a matmul's operand that one block makes
  SharedLayout<typename Matmul::Matrix> layout;
};

// Which part of the units and of the tiles a block has.
struct GridPlace {
  int unit_group;
  int tile_group;
  int tile_groups;

  template <class Params, class Matmul>
  explicit ROTCELL_DEVICE GridPlace(const Cooperative<Params, Matmul>& cooperative)
      : unit_group(static_cast<int>(blockIdx.x) % cooperative.unit_groups),
        tile_group(static_cast<int>(blockIdx.x) / cooperative.unit_groups),
        tile_groups(cooperative.tile_groups) {}
};

template <class T>
using CooperativeMatmul = ChunkedMatmul<T, Tiles::kCooperativeRows, 0, Slices::kApart>;

// The units of a block. The last block may have fewer than `units`.
struct UnitGroup {
  int first;
  int units;
  int hidden;

  // The row of the weights at a place of matmul P, whose rows are in the block's own order.
  // Negative if the block has no such unit.
  template <class Cell, int P>
  ROTCELL_DEVICE int64_t weight_row(int place) const {
    using Rows = MatmulRows<Cell, P>;
    const int position = place / units, unit = first + place % units;
    if (position < Rows::kGates) {
      return unit < hidden ? CellRows<Cell>::offset(Rows::Gates::gate_at(position), hidden) + unit
                           : -1;
    }
    const int64_t angle = first / 2 + place - Rows::angles(units);
    return angle < Cell::Rotation::angles(hidden) ? CellRows<Cell>::angles(hidden) + angle : -1;
  }

  // A unit of the block by its place, or negative.
  ROTCELL_DEVICE int unit(int place) const { return first + place < hidden ? first + place : -1; }
};

// The pair of units and the row of a tile that a thread works on, the same in every tile and step:
// a thread reads its own results without waiting.
struct CooperativeItem {
  int row_in_tile;
  PairOfUnits units;        // in the layer
  PairOfUnits block_units;  // in the block
  bool exists;

  explicit ROTCELL_DEVICE CooperativeItem(const UnitGroup& group) {
    const int pairs = group.units / 2, thread = static_cast<int>(threadIdx.x);
    const int unit = thread % pairs * 2;
    row_in_tile = thread / pairs;
    units = {group.first + unit, group.hidden};
    block_units = {unit, group.units};
    exists = row_in_tile < Tiles::kCooperativeRows && units.unit < group.hidden;
  }
};

// How the blocks that divide a tile's units wait for each other. Rows of different tiles are
// independent, so every tile has a separate counter. A pass is one stage of one step. Every block
// signals the end of every pass of a tile, and waits for the signals of all earlier passes before
// it reads results of other blocks.
class TileSignals {
 public:
  // begins_late: whether tiles without rows come before those with rows, as the steps go.
  ROTCELL_DEVICE TileSignals(uint64_t* counters, int blocks, bool begins_late)
      : counters_(counters), blocks_(static_cast<uint64_t>(blocks)), begins_late_(begins_late) {}

  // Until all blocks have ended the passes before. All threads of the block take part.
  ROTCELL_DEVICE void wait(int64_t tile) const {
    if (threadIdx.x == 0) wait_for_signals(counter(tile), passes_ * blocks_);
    block_barrier();
  }

  // Publishes this block's results. All threads of the block take part.
  ROTCELL_DEVICE void finish(int64_t tile) const {
    block_barrier();
    if (threadIdx.x == 0) signal(counter(tile));
  }

  // A pass without rows. If the rows have ended, no block will wait again, and an early signal
  // would be counted as that of another block. If they have not begun, no block waits before all
  // blocks have signaled equally often.
  ROTCELL_DEVICE void skip(int64_t tile) const {
    if (begins_late_ && threadIdx.x == 0) signal(counter(tile));
  }

  ROTCELL_DEVICE void next_pass() { ++passes_; }

 private:
  ROTCELL_DEVICE uint64_t* counter(int64_t tile) const {
    return counters_ + tile * Tiles::kSignalStride;
  }

  uint64_t* counters_;
  uint64_t blocks_;
  bool begins_late_;
  uint64_t passes_ = 0;
};

template <class A>
ROTCELL_DEVICE A sum_of_slices(const A* first, int slices, int stride) {
  A sum(0);
  for (int slice = 0; slice < slices; ++slice) sum += first[slice * stride];
  return sum;
}

// Afterwards all threads may read the results. All threads of the block take part.
template <class Matmul>
ROTCELL_DEVICE void share_results(const Matmul& matmul, const typename Matmul::Matrix& matrix,
                                  typename Matmul::A* results) {
  matmul.store(results);
  block_barrier();
  if (matrix.slices == 1) return;
  // A cell's thread would add up the slices of all its gates alone, so everybody does a few.
  const int count = Tiles::kCooperativeRows * matrix.result_rows();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    results[i] = sum_of_slices(results + i, matrix.slices, count);
  }
  block_barrier();
}

// Begins to bring columns [begin, end) of up to 16 rows, from first_row on, into operand, where
// rows lie `stride` elements apart; zeros beyond the rows and the depth. address(row, column) is
// asked for inside them only.
template <class T, class Address>
ROTCELL_DEVICE void bring_stage(Staging staging, T* operand, int stride, int begin, int end,
                                int depth, int64_t first_row, int64_t rows, Address address) {
  const int row_in_tile = static_cast<int>(threadIdx.x) / Tiles::kThreadsOfRow;
  const int lane = static_cast<int>(threadIdx.x) % Tiles::kThreadsOfRow;
  const bool row_exists = first_row + row_in_tile < rows;
  const int64_t row = row_exists ? first_row + row_in_tile : first_row;
  T* to = operand + row_in_tile * stride - begin;
  if (staging == Staging::kByChunks) {
    constexpr int kElements = WeightChunk<T>::kElements;
#pragma unroll 4
    for (int column = begin + lane * kElements; column < end;
         column += Tiles::kThreadsOfRow * kElements) {
      const bool exists = row_exists && column < depth;
      copy_async(to + column, address(row, exists ? column : 0), exists);
    }
  } else {
#pragma unroll 4
    for (int column = begin + lane; column < end; column += Tiles::kThreadsOfRow) {
      const bool exists = row_exists && column < depth;
      to[column] = exists ? load_coherent(address(row, column)) : to_storage<T>(0);
    }
  }
  commit_copies();
}

// Multiplies up to 16 rows, from first_row on, whose padded depth is `depth` and which are brought
// into shared memory stage by stage, each while the one before is multiplied. What shared memory
// held before must have been read, and afterwards all threads may read the results. All threads of
// the block take part.
template <class Matmul, class Address>
ROTCELL_DEVICE void multiply_staged(Staging staging, Matmul& matmul,
                                    const typename Matmul::Matrix& matrix, int depth, int staged,
                                    typename Matmul::Storage* operand, typename Matmul::A* results,
                                    int64_t first_row, int64_t rows, Address address) {
  const int stride = staged + matrix.operand_padding();
  const auto bring = [&](int buffer, int begin) {
    bring_stage(staging, operand + buffer * Tiles::kCooperativeRows * stride, stride, begin,
                smaller(begin + staged, depth), matrix.depth, first_row, rows, address);
  };
  matmul.clear();
  int buffer = 1;
  // The first turn brings the first stage and multiplies nothing.
  for (int begin = -staged; begin < depth; begin += staged, buffer ^= 1) {
    const int next = begin + staged;
    const bool more = next < depth;
    if (more) bring(buffer ^ 1, next);
    if (begin < 0) continue;
    if (more) {
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    block_barrier();  // everybody's part of the stage is there
    matmul.accumulate(operand + buffer * Tiles::kCooperativeRows * stride, stride, begin,
                      smaller(next, depth));
    if (more) block_barrier();  // it has been read, and its place may be taken
  }
  share_results(matmul, matrix, results);
}

// One of the results that multiply_staged left.
template <class Matrix, class A>
ROTCELL_DEVICE A staged_result(const Matrix& matrix, const A* results, const CooperativeItem& item,
                               int64_t row) {
  return results[item.row_in_tile * matrix.result_rows() + row];
}

// What a matmul with one row per unit gives for the item's two units.
template <class Matmul>
ROTCELL_DEVICE Pair<typename Matmul::A> block_results(const typename Matmul::Matrix& matrix,
                                                      const typename Matmul::A* results,
                                                      const CooperativeItem& item) {
  return item.block_units.template read<typename Matmul::A>(
      0, [&](int64_t place) { return staged_result(matrix, results, item, place); });
}

// The gradients of the gates of stage S into their row of global memory.
template <int S, class Cell, class A, class T>
ROTCELL_DEVICE void write_gates(const CooperativeItem& item, const Gates<Cell, A>& grads, T* row) {
  StageGates<Cell, A, S>::write(item.units, grads,
                                [&](int64_t i, A value) { row[i] = to_storage<T>(value); });
}

// body(tile, first row) for the block's tiles of the batch.
template <class Body>
ROTCELL_DEVICE void for_tiles(const GridPlace& place, int64_t batch, Body body) {
  for (int64_t tile = place.tile_group; tile * Tiles::kCooperativeRows < batch;
       tile += place.tile_groups) {
    body(tile, tile * Tiles::kCooperativeRows);
  }
}

// Blocks read what the others made from global memory, when these have signalled it.
template <class MatmulType>
class ThroughL2 {
 public:
  using Matmul = MatmulType;
  using T = typename Matmul::Storage;
  static constexpr int kThreads = Tiles::kCooperativeThreads;
  static constexpr bool kIsCluster = false;
  static constexpr bool kCanRun = true;

  // begins_late: whether tiles without rows come before those with rows, as the steps go.
  template <class Params>
  ROTCELL_DEVICE ThroughL2(const Cooperative<Params, Matmul>& cooperative, unsigned char* shared,
                           bool begins_late)
      : layout_(cooperative.layout),
        staging_(cooperative.staging),
        shared_(shared),
        signals_(cooperative.params.signals, cooperative.unit_groups, begins_late) {}

  // The row of the weights whose gradients are at a column of matmul P's operand; negative if
  // none are.
  template <class Cell, int P>
  ROTCELL_DEVICE int64_t weight_row(int column, int hidden) const {
    return MatmulRows<Cell, P>::weight_row(column, hidden);
  }

  ROTCELL_DEVICE void wait(int64_t tile) { signals_.wait(tile); }
  ROTCELL_DEVICE void skip(int64_t tile) { signals_.skip(tile); }
  ROTCELL_DEVICE void next_pass() { signals_.next_pass(); }
  ROTCELL_DEVICE void next_step() {}
  ROTCELL_DEVICE void end() {}

  // Rows that have no past are read where h0 is.
  ROTCELL_DEVICE void begin_rows(int64_t, int64_t, int64_t, const T*, int) const {}

  // The results of matmul P with up to 16 rows. address(row, column) says where its operand is.
  template <int P, class Address>
  ROTCELL_DEVICE void multiply(Matmul& matmul, typename Matmul::A* results, int64_t first_row,
                               int64_t rows, Address address) const {
    multiply_staged(staging_, matmul, layout_.matrix[P], layout_.depth[P], layout_.staged[P],
                    reinterpret_cast<T*>(shared_ + layout_.operand[P]), results, first_row, rows,
                    address);
  }

  // A pair of units of matmul P's next operand, whose rows are `row` in global memory.
  template <int P>
  ROTCELL_DEVICE void give(const CooperativeItem& item, const Pair<typename Matmul::A>& made,
                           T* row) const {
    store_pair(item.units, row, made);
  }

  // The gradients of a stage's gates, whose rows are `row` in global memory.
  template <int S, class Cell>
  ROTCELL_DEVICE void give_gates(const CooperativeItem& item,
                                 const Gates<Cell, typename Matmul::A>& grads, T* row) const {
    write_gates<S>(item, grads, row);
  }

  // Everything that others read of this pass has been given; P is the matmul that sees it next.
  template <int P>
  ROTCELL_DEVICE void finish(int64_t tile) {
    signals_.finish(tile);
  }

 private:
  const SharedLayout<typename Matmul::Matrix>& layout_;
  Staging staging_;
  unsigned char* shared_;
  TileSignals signals_;
};

}  // namespace rotcell::cuda
