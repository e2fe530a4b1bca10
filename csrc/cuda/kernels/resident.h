// What the resident kernels share. A block carries its rows of the batch through all steps; a
// thread has two roles: its part of the matmuls (ChunkedMatmul), with what becomes of their sums,
// and one pair of units of one row, whose state it keeps in registers.
#pragma once

#include "cells/steps.h"
#include "cuda/kernels/cell_io.h"
#include "cuda/kernels/chunked_matmul.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/launchers.h"

namespace rotcell::cuda {

template <class Params>
struct Resident {
  Params params;
  SharedLayout<ChunkedMatrix> layout;
};

template <class Cell, class T, int kRows>
using ResidentMatmul =
    ChunkedMatmul<T, kRows, Tiles::register_chunks(Cell::kStages, sizeof(T)), Slices::kInLanes>;

template <class T, int kRows>
constexpr int resident_threads = Tiles::resident_threads(sizeof(T), kRows);

// The pair of units and the row of the batch that a thread keeps.
struct ResidentItem {
  int row_in_block;
  int64_t row;
  PairOfUnits units;
  bool exists;

  ROTCELL_DEVICE ResidentItem(int rows_in_block, int64_t batch, int hidden) {
    const int pairs = divide_up(hidden, 2), thread = static_cast<int>(threadIdx.x);
    row_in_block = thread / pairs;
    row = int64_t{1} * blockIdx.x * rows_in_block + row_in_block;
    units = {thread % pairs * 2, hidden};
    exists = row_in_block < rows_in_block && row < batch;
  }
};

// Fills an operand [rows, stride] in shared memory; value(row, column) for all of it.
template <class T, class Value>
ROTCELL_DEVICE void fill_operand(T* operand, int rows, int stride, Value value) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * stride;
       i += static_cast<int>(blockDim.x)) {
    operand[i] = value(i / stride, i % stride);
  }
}

// The matmul with its whole operand.
template <class Matmul>
ROTCELL_DEVICE void multiply_resident(Matmul& matmul, const typename Matmul::Storage* operand,
                                      int depth) {
  matmul.clear();
  matmul.accumulate(operand, depth, 0, depth);
}

// Launches kernel<Cell, T, rows of a block>, given as kernels(TypeTag<Cell>, TypeTag<T>, rows as a
// constant).
template <class Params, class Kernels>
void launch_resident(const char* name, const Request& request, const Plan& plan,
                     const Params& params, Stream stream, Kernels kernels) {
  const Resident<Params> resident{params, resident_layout(request, plan.rows_per_block)};
  const Grid grid{static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads),
                  static_cast<size_t>(plan.shared_bytes)};
  with_cell(request.cell, [&](auto cell) {
    using Cell = typename decltype(cell)::Type;
    if constexpr (Cell::kResident) {
      with_storage_type(request.number, [&](auto tag) {
        const auto launch_rows = [&](auto rows) {
          launch({Cell::kName, name}, kernels(cell, tag, rows), grid, stream, resident);
        };
        if (plan.rows_per_block == 1) {
          launch_rows(std::integral_constant<int, 1>{});
        } else {
          launch_rows(std::integral_constant<int, Tiles::kResidentRows>{});
        }
      });
    }
  });
}

}  // namespace rotcell::cuda
