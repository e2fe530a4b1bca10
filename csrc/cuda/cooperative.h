// What the cooperative kernels share. A block has the weights of its units on chip and works on its
// tiles of the batch, 16 rows each, at best on one; what the blocks with the other units made of a
// tile is read from global memory when they have signalled it.
#pragma once

#include "cells/steps.h"
#include "cuda/cell_io.h"
#include "cuda/chunked_product.h"
#include "cuda/kernels.h"
#include "cuda/launchers.h"
#include "cuda/tensor_product.h"

namespace rotcell::cuda {

// How rows come into shared memory.
enum class Staging {
  kByChunks,    // of 16 bytes: all of them, and the rows, lie at multiples of that
  kByElements,  // of other sizes
};

template <class Params, class Product>
struct Cooperative {
  Params params;
  int units;        // of a block, an even number
  int unit_groups;  // blocks that share out the units
  int tile_groups;  // such groups of blocks; they share out the tiles
  Staging staging;
  SharedLayout<typename Product::Matrix> layout;
};

// Which part of the units and of the tiles a block has.
struct GridPlace {
  int unit_group;
  int tile_group;
  int tile_groups;

  template <class Params, class Product>
  explicit ROTCELL_DEVICE GridPlace(const Cooperative<Params, Product>& cooperative)
      : unit_group(static_cast<int>(blockIdx.x) % cooperative.unit_groups),
        tile_group(static_cast<int>(blockIdx.x) / cooperative.unit_groups),
        tile_groups(cooperative.tile_groups) {}
};

template <class T>
using CooperativeProduct = ChunkedProduct<T, Tiles::kCooperativeRows, 0, Slices::kApart>;

// The units of a block. The last block may have fewer than `units`.
struct UnitGroup {
  int first;
  int units;
  int hidden;

  // The row of the weights at a place of product P, whose rows are in the block's own order.
  // Negative if the block has no such unit.
  template <class Cell, int P>
  ROTCELL_DEVICE int64_t weight_row(int place) const {
    using Rows = ProductRows<Cell, P>;
    const int position = place / units, unit = first + place % units;
    if (position < Rows::kGates) {
      return unit < hidden ? CellRows<Cell>::offset(Rows::gate_at(position), hidden) + unit : -1;
    }
    const int64_t angle = first / 2 + place - Rows::angles(units);
    return angle < Cell::Rotation::angles(hidden) ? CellRows<Cell>::angles(hidden) + angle : -1;
  }

  // A unit of the block by its place, or negative.
  ROTCELL_DEVICE int unit(int place) const { return first + place < hidden ? first + place : -1; }
};

// The pair of units and the row of a tile that a thread works on, in every tile and step: what it
// wrote itself it can read without waiting for anybody.
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

// How the blocks that share out a tile's units wait for each other. Rows of different tiles do not
// depend on each other, so every tile has a counter of its own. A pass is one stage of one step;
// every block signals the end of every pass of a tile, and before it reads what the others wrote it
// waits until all have signalled all passes before.
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

  // Everything that others may read has been written. All threads of the block take part.
  ROTCELL_DEVICE void finish(int64_t tile) const {
    block_barrier();
    if (threadIdx.x == 0) signal(counter(tile));
  }

  // A pass without rows. If they have ended nobody will wait again, and a signal ahead of the
  // others would be taken for one of theirs. If they have not begun, nobody waits before all have
  // signalled as often.
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
template <class Product, class Address>
ROTCELL_DEVICE void multiply_staged(Staging staging, Product& product,
                                    const typename Product::Matrix& matrix, int depth, int staged,
                                    typename Product::Storage* operand,
                                    typename Product::A* results, int64_t first_row, int64_t rows,
                                    Address address) {
  const int stride = staged + matrix.operand_padding();
  const auto bring = [&](int buffer, int begin) {
    bring_stage(staging, operand + buffer * Tiles::kCooperativeRows * stride, stride, begin,
                smaller(begin + staged, depth), matrix.depth, first_row, rows, address);
  };
  product.clear();
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
    product.accumulate(operand + buffer * Tiles::kCooperativeRows * stride, stride, begin,
                       smaller(next, depth));
    if (more) block_barrier();  // it has been read, and its place may be taken
  }
  product.store(results);
  block_barrier();
  if (matrix.slices == 1) return;
  // A cell's thread would add up the slices of all its gates alone, so everybody does a few.
  const int count = Tiles::kCooperativeRows * matrix.result_rows();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    results[i] = sum_of_slices(results + i, matrix.slices, count);
  }
  block_barrier();
}

// One of the results that multiply_staged left.
template <class Matrix, class A>
ROTCELL_DEVICE A staged_result(const Matrix& matrix, const A* results, const CooperativeItem& item,
                               int64_t row) {
  return results[item.row_in_tile * matrix.result_rows() + row];
}

// What a product with a row a unit gives for the item's two units.
template <class Product>
ROTCELL_DEVICE Pair<typename Product::A> block_results(const typename Product::Matrix& matrix,
                                                       const typename Product::A* results,
                                                       const CooperativeItem& item) {
  return item.block_units.template read<typename Product::A>(
      0, [&](int64_t place) { return staged_result(matrix, results, item, place); });
}

// body(tile, first row) for the block's tiles of the batch.
template <class Body>
ROTCELL_DEVICE void for_tiles(const GridPlace& place, int64_t batch, Body body) {
  for (int64_t tile = place.tile_group; tile * Tiles::kCooperativeRows < batch;
       tile += place.tile_groups) {
    body(tile, tile * Tiles::kCooperativeRows);
  }
}

ROTCELL_INLINE bool at_chunk(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % Tiles::kChunkBytes == 0;
}

// Rows of what the products multiply, and the gates among them, must begin at chunks.
inline Staging staging_of(const Request& request, const Forward& p) {
  const int64_t elements = Tiles::kChunkBytes / storage_bytes(request.number);
  const bool aligned = at_chunk(p.out) && at_chunk(p.h0) && at_chunk(p.operands);
  return aligned && p.hidden % elements == 0 ? Staging::kByChunks : Staging::kByElements;
}
inline Staging staging_of(const Request& request, const Backward& p) {
  const int64_t elements = Tiles::kChunkBytes / storage_bytes(request.number);
  const int64_t gate_rows = kCells[request.cell].rows(p.hidden);
  return at_chunk(p.grad_gates) && p.hidden % elements == 0 && gate_rows % elements == 0
             ? Staging::kByChunks
             : Staging::kByElements;
}

// Launches kernel<Cell, Product>, given as kernels(TypeTag<Cell>, TypeTag<Product>).
template <class Params, class Kernels>
void launch_cooperatively(const char* name, const Request& request, const Plan& plan,
                          const Params& params, Stream stream, Kernels kernels) {
  const Grid grid{static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads),
                  static_cast<size_t>(plan.shared_bytes)};
  const auto launch_product = [&](auto cell, auto product, const auto& layout) {
    using Cell = typename decltype(cell)::Type;
    using Product = typename decltype(product)::Type;
    launch_cooperative(
        {Cell::kName, name}, kernels(cell, product), grid, stream,
        Cooperative<Params, Product>{params, plan.units_per_block,
                                     static_cast<int>(plan.blocks / plan.tile_groups),
                                     plan.tile_groups, staging_of(request, params), layout});
  };
  with_cell(request.cell, [&](auto cell) {
    using Cell = typename decltype(cell)::Type;
    if constexpr (Cell::kCooperative) {
      with_storage_type(request.number, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        if constexpr (sizeof(T) == 2) {
          if (plan.tensor_cores) {
            constexpr int kTiles = Tiles::register_tiles(Cell::kStages);
            return launch_product(cell, TypeTag<TensorProduct<T, kTiles>>{},
                                  tensor_layout(request, plan.units_per_block, plan.staged_bytes));
          }
        }
        launch_product(cell, TypeTag<CooperativeProduct<T>>{},
                       cooperative_layout(request, plan.units_per_block, plan.staged_bytes));
      });
    }
  });
}

}  // namespace rotcell::cuda
