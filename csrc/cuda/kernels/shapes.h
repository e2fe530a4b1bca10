// Sizes that host and kernel must agree on: the layout of a matrix on chip and the places in
// shared memory. Plain C++, so that the choice of a path can be tested anywhere.
#pragma once

#include <cstdint>

#include "cells/list.h"

namespace rotcell::cuda {

enum class Pass { kForward, kBackward };

// The most stages, so matmuls, that a step of any cell has.
inline constexpr int kMostStages = [] {
  int most = 0;
  for (const CellDescription& cell : kCells) most = cell.stages > most ? cell.stages : most;
  return most;
}();

// Something for each matmul of a step.
template <class T>
struct PerMatmul {
  T of[kMostStages];

  ROTCELL_INLINE constexpr T& operator[](int matmul) { return of[matmul]; }
  ROTCELL_INLINE constexpr const T& operator[](int matmul) const { return of[matmul]; }
};

// Constants of all kernels, in one place.
struct Tiles {
  static constexpr int kWarp = 32;
  static constexpr int kMaxThreads = 1024;  // of a block, by CUDA
  static constexpr int kChunkBytes = 16;    // the widest load of a thread
  static constexpr int kResidentRows = 4;   // rows of the batch a resident block carries, or 1
  static constexpr int kCooperativeThreads = 256;
  static constexpr int kCooperativeRows = 16;  // rows of the batch multiplied at once: a tile
  // Each thread has one pair of units of one row of a tile.
  static constexpr int kCooperativeUnits = 2 * kCooperativeThreads / kCooperativeRows;
  // Threads of a block of a cluster. The most units with four gates and a rotation have 9 tiles of
  // 16 rows, each with a warp; 12 warps spread evenly over a multiprocessor's four partitions.
  static constexpr int kClusterThreads = 384;
  static constexpr int kLanesOfSentRow = 4;  // that send a row to another block: 64 bytes at a time
  static constexpr int kSignalStride = 16;   // counters between those of two tiles: a line of L2
  // Bytes of a row that are staged in shared memory at once: all of it, or less if it does not fit.
  static constexpr int kWholeRow = 1 << 24;
  static constexpr int kStagedBytes[] = {kWholeRow, 1024, 512};
  static constexpr int kNarrowStage[] = {
      256};  // the last resort: even more tiles per block are faster
  // Threads that load a row of a tile: 256 bytes of it at a time.
  static constexpr int kThreadsOfRow = kCooperativeThreads / kCooperativeRows;
  static constexpr int kStepThreads = 128;  // of a block of a stepwise kernel
  static constexpr int kTensorSide = 16;    // of a tensor core's tile
  static constexpr int kTensorGroup = 4;    // tiles of a warp multiplied without a check in between

  // The most threads of a resident block, and the target of its matmuls. Wider dtypes and more rows
  // of the batch take more registers. A block of this size has enough of them: each of the four
  // partitions of a multiprocessor has 16384, for its share of the warps.
  static ROTCELL_INLINE constexpr int resident_threads(int element_bytes, int rows) {
    if (element_bytes == 8) return 384;
    if (element_bytes == 4) return rows > 1 ? 384 : 512;
    return rows > 1 ? 640 : 736;
  }

  // Chunks of its weights that a thread of a resident block has in registers, for each matmul of a
  // step. A chunk of fp16 or bf16 takes as many more registers to convert.
  static ROTCELL_INLINE constexpr int register_chunks(int matmuls, int element_bytes) {
    return 4 / matmuls / (element_bytes == 2 ? 2 : 1);
  }

  // Tiles of its weights that a warp of a cooperative block has in registers, for each matmul of a
  // step. A tile takes four registers.
  static ROTCELL_INLINE constexpr int register_tiles(int matmuls) { return 32 / matmuls; }
  // The same for a block of a cluster, which has more threads, so fewer registers for each.
  static ROTCELL_INLINE constexpr int cluster_register_tiles(int matmuls) { return 16 / matmuls; }

  static_assert(kCooperativeRows == kTensorSide, "rows multiplied at once fill one tile");
  static_assert(kCooperativeThreads % kWarp == 0 && kCooperativeThreads <= kMaxThreads);
  static_assert(kThreadsOfRow * kCooperativeRows == kCooperativeThreads);
};

ROTCELL_INLINE constexpr int divide_up(int a, int b) { return (a + b - 1) / b; }
ROTCELL_INLINE constexpr int round_up(int a, int b) { return divide_up(a, b) * b; }
ROTCELL_INLINE constexpr int larger(int a, int b) { return a > b ? a : b; }
ROTCELL_INLINE constexpr int smaller(int a, int b) { return a < b ? a : b; }

constexpr int64_t tiles_of(int64_t batch) {
  return (batch + Tiles::kCooperativeRows - 1) / Tiles::kCooperativeRows;
}
// Counters by which the blocks of a cooperative launch wait for each other.
constexpr int64_t signal_count(int64_t batch) { return tiles_of(batch) * Tiles::kSignalStride; }

// A matrix [rows, depth] on chip, in chunks of 16 bytes along the depth. A thread owns one row and
// every slices-th chunk of it, so slices > 1 puts more threads to work on few rows. The first
// register_chunks chunks of a thread are in its registers, the others in shared memory.
struct ChunkedMatrix {
  int rows;
  int depth;
  int element_bytes;
  int slices;
  int register_chunks;

  ROTCELL_INLINE constexpr int chunk_elements() const { return Tiles::kChunkBytes / element_bytes; }
  ROTCELL_INLINE constexpr int chunks_per_slice() const {
    return divide_up(divide_up(depth, chunk_elements()), slices);
  }
  // The depth is worked on in multiples of this, and may be brought on chip so.
  ROTCELL_INLINE constexpr int granule() const { return slices * chunk_elements(); }
  ROTCELL_INLINE constexpr int stage_granule() const { return granule(); }
  // What is multiplied with the matrix must be finite from depth to here.
  ROTCELL_INLINE constexpr int padded_depth() const { return chunks_per_slice() * granule(); }
  ROTCELL_INLINE constexpr int operand_padding() const { return 0; }
  ROTCELL_INLINE constexpr int result_rows() const { return rows; }
  ROTCELL_INLINE constexpr int threads() const { return rows * slices; }
  ROTCELL_INLINE constexpr int64_t shared_bytes() const {
    return int64_t{1} * larger(chunks_per_slice() - register_chunks, 0) * slices * rows *
           Tiles::kChunkBytes;
  }

  // As many slices as bring the threads near the number aimed at.
  static ROTCELL_INLINE constexpr ChunkedMatrix sliced(int rows, int depth, int element_bytes,
                                                       int threads, int register_chunks) {
    const int chunks = divide_up(depth, Tiles::kChunkBytes / element_bytes);
    const int slices = larger(1, smaller(chunks, rows == 0 ? 1 : threads / rows));
    return {rows, depth, element_bytes, slices, register_chunks};
  }

  // The same with a power of two, so that the slices of a row are neighbors in a warp.
  static ROTCELL_INLINE constexpr ChunkedMatrix sliced_in_lanes(int rows, int depth,
                                                                int element_bytes, int threads,
                                                                int register_chunks) {
    ChunkedMatrix matrix = sliced(rows, depth, element_bytes, threads, register_chunks);
    int slices = 1;
    while (2 * slices <= smaller(matrix.slices, Tiles::kWarp)) slices *= 2;
    matrix.slices = slices;
    return matrix;
  }
};

// A matrix [rows, depth] of fp16 or bf16 on chip, in tiles of 16 rows and 16 columns for tensor
// cores. A warp owns 16 rows and every slices-th tile of them, each lane 16 bytes of a tile. The
// first register_tiles tiles of a warp are in its registers, the others in shared memory.
struct TensorMatrix {
  int rows;
  int depth;
  int slices;
  int register_tiles;

  ROTCELL_INLINE constexpr int granule() const { return slices * Tiles::kTensorSide; }
  ROTCELL_INLINE constexpr int stage_granule() const { return Tiles::kTensorGroup * granule(); }
  ROTCELL_INLINE constexpr int tiles_per_slice() const { return divide_up(depth, granule()); }
  ROTCELL_INLINE constexpr int padded_depth() const { return tiles_per_slice() * granule(); }
  // Rows of 16 bytes more than a multiple of 32 do not all begin in the same bank.
  ROTCELL_INLINE constexpr int operand_padding() const { return 8; }
  ROTCELL_INLINE constexpr int result_rows() const { return round_up(rows, Tiles::kTensorSide); }
  ROTCELL_INLINE constexpr int threads() const {
    return result_rows() / Tiles::kTensorSide * slices * Tiles::kWarp;
  }
  ROTCELL_INLINE constexpr int64_t shared_bytes() const {
    return int64_t{1} * larger(tiles_per_slice() - register_tiles, 0) * threads() *
           Tiles::kChunkBytes;
  }

  static ROTCELL_INLINE constexpr TensorMatrix sliced(int rows, int depth, int threads,
                                                      int register_tiles) {
    const int tiles = larger(1, divide_up(rows, Tiles::kTensorSide));
    const int slices =
        smaller(divide_up(depth, Tiles::kTensorSide), threads / Tiles::kWarp / tiles);
    return {rows, depth, larger(1, slices), register_tiles};
  }
};

// The layout of a block's shared memory, in bytes from its start, matmul by matmul.
// A matmul that a cell does not have is a matrix without rows.
template <class Matrix>
struct SharedLayout {
  PerMatmul<Matrix> matrix;
  // Elements of an operand's row: all of them with their padding, and how many are there at once.
  // Kept here because a kernel would divide for them at every step.
  PerMatmul<int> depth;
  PerMatmul<int> staged;
  PerMatmul<int64_t> weights;
  PerMatmul<int64_t> operand;  // T [buffers, batch rows, staged + padding]: two buffers if what is
                               // staged is not all of a row, otherwise one, in a cluster two
  int64_t results;             // compute type, what the matmuls give
  int64_t total;

  // Operands are there as a whole, each in its place, if staged_bytes is 0, in so many buffers;
  // otherwise about that many bytes of a row at once, in one place for all matmuls.
  static constexpr SharedLayout of(const PerMatmul<Matrix>& matrices, int staged_bytes,
                                   int batch_rows, int element_bytes, int64_t result_bytes,
                                   int whole_buffers = 1) {
    SharedLayout layout{matrices, {}, {}, {}, {}, 0, 0};
    int64_t end = 0;
    for (int i = 0; i < kMostStages; ++i) {
      layout.weights[i] = end;
      end += aligned(matrices[i].shared_bytes());
    }
    int64_t largest_operand = 0;
    for (int i = 0; i < kMostStages; ++i) {
      const Matrix& matrix = matrices[i];
      const int granule = matrix.stage_granule(), requested = staged_bytes / element_bytes;
      layout.depth[i] = matrix.padded_depth();
      layout.staged[i] = staged_bytes == 0
                             ? layout.depth[i]
                             : smaller(layout.depth[i], larger(1, requested / granule) * granule);
      const int buffers = layout.staged[i] < layout.depth[i] ? 2 : whole_buffers;
      const int64_t operand_bytes =
          matrix.rows == 0 ? 0
                           : aligned(int64_t{1} * buffers * batch_rows * element_bytes *
                                     (layout.staged[i] + matrix.operand_padding()));
      layout.operand[i] = end;
      if (staged_bytes == 0) end += operand_bytes;
      largest_operand = larger_of(largest_operand, operand_bytes);
    }
    layout.results = staged_bytes == 0 ? end : end + largest_operand;
    layout.total = layout.results + result_bytes;
    return layout;
  }

 private:
  static constexpr int64_t aligned(int64_t bytes) { return (bytes + 31) / 32 * 32; }
  static constexpr int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }
};

}  // namespace rotcell::cuda
