// How the blocks of a cluster exchange results: each writes it into the shared memory
// of all others. Nothing that a step waits for goes through global memory.
#pragma once

#include "cuda/kernels/cooperative.h"

namespace rotcell::cuda {

// The interface is that of ThroughL2. A cluster has one tile. The whole operand of each matmul is
// in shared memory, in two buffers: results of a step are written to one of them while slower
// blocks still read the other. Its columns are those of the first block, then of the second, and so
// on.
template <class MatmulType>
class InCluster {
 public:
  using Matmul = MatmulType;
  using T = typename Matmul::Storage;
  using A = typename Matmul::A;
  static constexpr int kThreads = Tiles::kClusterThreads;
  static constexpr bool kIsCluster = true;
  static constexpr bool kCanRun = has_clusters;

  template <class Params>
  ROTCELL_DEVICE InCluster(const Cooperative<Params, Matmul>& cooperative, unsigned char* shared,
                           bool)
      : layout_(cooperative.layout),
        made_(cooperative.made),
        shared_(shared),
        blocks_(cooperative.unit_groups),
        units_(cooperative.units),
        rank_(static_cast<int>(blockIdx.x) % cooperative.unit_groups),
        has_units_(rank_ * units_ < cooperative.params.hidden) {
    // Columns that no block writes are multiplied, too.
    uint4* chunks = reinterpret_cast<uint4*>(shared + layout_.operand[0]);
    const int count = static_cast<int>((layout_.results - layout_.operand[0]) / Tiles::kChunkBytes);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) chunks[i] = uint4{};
    block_barrier();
    arrive();
  }

  template <class Cell, int P>
  ROTCELL_DEVICE int64_t weight_row(int column, int hidden) const {
    const UnitGroup maker{column / made_[P] * units_, units_, hidden};
    return maker.weight_row<Cell, P>(column % made_[P]);
  }

  // Waits until all blocks have sent what this one reads, and have read what it will overwrite.
  ROTCELL_DEVICE void wait(int64_t) { wait(); }
  ROTCELL_DEVICE void skip(int64_t) {}
  ROTCELL_DEVICE void next_pass() {}
  ROTCELL_DEVICE void next_step() { turn_ ^= 1; }
  // Other blocks may write to this one until they have finished.
  ROTCELL_DEVICE void end() { wait(); }

  // Rows of a tile from `carried` on, which no block made: everybody fetches them for himself.
  ROTCELL_DEVICE void begin_rows(int64_t first_row, int64_t carried, int64_t rows, const T* h0,
                                 int hidden) const {
    if (carried >= rows || carried >= first_row + Tiles::kCooperativeRows) return;
    const int row_in_tile = static_cast<int>(threadIdx.x) / Tiles::kThreadsOfRow;
    const int64_t row = first_row + row_in_tile;
    if (row_in_tile < Tiles::kCooperativeRows && row >= carried && row < rows) {
      T* to = operand<0>(turn_) + row_in_tile * stride<0>();
      for (int column = static_cast<int>(threadIdx.x) % Tiles::kThreadsOfRow; column < hidden;
           column += Tiles::kThreadsOfRow) {
        to[column] = h0[row * hidden + column];
      }
    }
    block_barrier();
  }

  template <int P, class Address>
  ROTCELL_DEVICE void multiply(Matmul& matmul, A* results, int64_t, int64_t, Address) const {
    matmul.clear();
    matmul.accumulate(operand<P>(turn_), stride<P>(), 0, layout_.depth[P]);
    share_results(matmul, layout_.matrix[P], results);
  }

  template <int P>
  ROTCELL_DEVICE void give(const CooperativeItem& item, const Pair<A>& made, T*) const {
    T* row = own_row<P>(item);
    item.block_units.write(0, made, [&](int64_t i, A value) { row[i] = to_storage<T>(value); });
  }

  template <int S, class Cell>
  ROTCELL_DEVICE void give_gates(const CooperativeItem& item, const Gates<Cell, A>& grads,
                                 T*) const {
    for_stages<Cell>([&](auto matmul) {
      constexpr int P = decltype(matmul)::value;
      T* row = own_row<P>(item);
      write_matmul<P, S>(item.block_units, grads, [&](int64_t place, int64_t, A value) {
        row[place] = to_storage<T>(value);
      });
    });
  }

  // Sends what this block gave for matmul P. A warp serves one block at a time.
  template <int P>
  ROTCELL_DEVICE void finish(int64_t) {
    constexpr int kElements = WeightChunk<T>::kElements, kWarps = kThreads / Tiles::kWarp;
    constexpr int kRows = Tiles::kWarp / Tiles::kLanesOfSentRow;
    block_barrier();
    wait();
    const int warp = static_cast<int>(threadIdx.x) / Tiles::kWarp;
    const int lane = static_cast<int>(threadIdx.x) % Tiles::kWarp;
    T* first = operand<P>(turn_for<P>()) + rank_ * made_[P] +
               lane / Tiles::kLanesOfSentRow * stride<P>() +
               lane % Tiles::kLanesOfSentRow * kElements;
    const int left = made_[P] - lane % Tiles::kLanesOfSentRow * kElements;
    for (int other = warp + 1; has_units_ && other < blocks_; other += kWarps) {
      const int rank = rank_ + other < blocks_ ? rank_ + other : rank_ + other - blocks_;
      for (int row = 0; row < Tiles::kCooperativeRows; row += kRows) {
        for (int column = 0; column < left; column += Tiles::kLanesOfSentRow * kElements) {
          uint4* chunk = reinterpret_cast<uint4*>(first + row * stride<P>() + column);
          store_in_cluster(chunk, static_cast<unsigned>(rank), *chunk);
        }
      }
    }
    arrive();
  }

 private:
  ROTCELL_DEVICE void arrive() {
    cluster_arrive();
    waits_ = true;
  }
  ROTCELL_DEVICE void wait() {
    if (waits_) cluster_wait();
    waits_ = false;
  }

  template <int P>
  ROTCELL_DEVICE int stride() const {
    return layout_.depth[P] + layout_.matrix[P].operand_padding();
  }
  template <int P>
  ROTCELL_DEVICE T* operand(int turn) const {
    return reinterpret_cast<T*>(shared_ + layout_.operand[P]) +
           turn * Tiles::kCooperativeRows * stride<P>();
  }
  // The first matmul sees what is made now at the next step, others still at this one.
  template <int P>
  ROTCELL_DEVICE int turn_for() const {
    return P == 0 ? turn_ ^ 1 : turn_;
  }
  template <int P>
  ROTCELL_DEVICE T* own_row(const CooperativeItem& item) const {
    return operand<P>(turn_for<P>()) + item.row_in_tile * stride<P>() + rank_ * made_[P];
  }

  const SharedLayout<typename Matmul::Matrix>& layout_;
  const PerMatmul<int>& made_;
  unsigned char* shared_;
  int blocks_;
  int units_;
  int rank_;
  bool has_units_;  // the last blocks may have none
  int turn_ = 0;
  bool waits_ = false;  // has arrived at a barrier, and not waited for the others yet
};

}  // namespace rotcell::cuda
