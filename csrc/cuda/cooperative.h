// What the cooperative kernels share. A block has the weights of its units on chip and works on all
// rows of the batch, 16 at a time; what other blocks made of a step is read from global memory
// after a grid barrier.
#pragma once

#include "cells/steps.h"
#include "cuda/cell_io.h"
#include "cuda/chunked_product.h"
#include "cuda/kernels.h"
#include "cuda/launchers.h"
#include "cuda/tensor_product.h"

namespace rotcell::cuda {

template <class Params, class Product>
struct Cooperative {
  Params params;
  int units;  // of a block, an even number
  SharedLayout<typename Product::Matrix> layout;
};

template <class T>
using CooperativeProduct = ChunkedProduct<T, Tiles::kCooperativeRows, 0>;

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

// A row of the batch and a pair of units, which always fall to the same thread.
struct CooperativeItem {
  int row_in_tile;
  int64_t row;
  PairOfUnits units;        // in the layer
  PairOfUnits block_units;  // in the block
};

// body(item) for the block's pairs of units of the rows from first_row on, at most 16.
template <class Body>
ROTCELL_DEVICE void for_items(const UnitGroup& group, int64_t first_row, int64_t rows, Body body) {
  const int pairs = group.units / 2;
  const int count = static_cast<int>(
      rows - first_row < Tiles::kCooperativeRows ? rows - first_row : Tiles::kCooperativeRows);
  for (int i = static_cast<int>(threadIdx.x); i < count * pairs;
       i += static_cast<int>(blockDim.x)) {
    const int row_in_tile = i / pairs, unit = i % pairs * 2;
    if (group.first + unit < group.hidden) {
      body(CooperativeItem{row_in_tile,
                           first_row + row_in_tile,
                           {group.first + unit, group.hidden},
                           {unit, group.units}});
    }
  }
}

template <class A>
ROTCELL_DEVICE A sum_of_slices(const A* first, int slices, int stride) {
  A sum(0);
  for (int slice = 0; slice < slices; ++slice) sum += first[slice * stride];
  return sum;
}

// Multiplies up to 16 rows, from first_row on, which are brought into shared memory stage by stage;
// value(row, column) is asked for inside rows and depth only. Afterwards all threads may read the
// results. All threads of the block take part.
template <class Product, class Value>
ROTCELL_DEVICE void multiply_staged(Product& product, const typename Product::Matrix& matrix,
                                    int staged, typename Product::Storage* operand,
                                    typename Product::A* results, int64_t first_row, int64_t rows,
                                    Value value) {
  using T = typename Product::Storage;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % Tiles::kWarp;
  const int stride = staged + matrix.operand_padding();
  product.clear();
  for (int begin = 0; begin < matrix.padded_depth(); begin += staged) {
    const int end = smaller(begin + staged, matrix.padded_depth());
    block_barrier();  // the stage before has been read
    for (int r = thread / Tiles::kWarp; r < Tiles::kCooperativeRows;
         r += static_cast<int>(blockDim.x) / Tiles::kWarp) {
      for (int column = begin + lane; column < end; column += Tiles::kWarp) {
        const bool exists = first_row + r < rows && column < matrix.depth;
        operand[r * stride + column - begin] =
            exists ? value(first_row + r, column) : to_storage<T>(0);
      }
    }
    block_barrier();
    product.accumulate(operand, stride, begin, end);
  }
  product.store(results);
  block_barrier();
  // A cell's thread would add up the slices of all its gates alone, so everybody does a few.
  const int count = Tiles::kCooperativeRows * matrix.result_rows();
  for (int i = thread; i < count; i += static_cast<int>(blockDim.x)) {
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

// body(first row) for the tiles of a step's rows.
template <class Body>
ROTCELL_DEVICE void for_tiles(int64_t rows, Body body) {
  for (int64_t tile = 0; tile < rows; tile += Tiles::kCooperativeRows) body(tile);
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
    launch_cooperative({Cell::kName, name}, kernels(cell, product), grid, stream,
                       Cooperative<Params, Product>{params, plan.units_per_block, layout});
  };
  with_cell(request.cell, [&](auto cell) {
    if constexpr (decltype(cell)::Type::kCooperative) {
      with_storage_type(request.number, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        if constexpr (sizeof(T) == 2) {
          if (plan.tensor_cores) {
            return launch_product(cell, TypeTag<TensorProduct<T>>{},
                                  tensor_layout(request, plan.units_per_block));
          }
        }
        launch_product(cell, TypeTag<CooperativeProduct<T>>{},
                       cooperative_layout(request, plan.units_per_block));
      });
    }
  });
}

}  // namespace rotcell::cuda
