// Blocks of rows with the batch in the lanes: `block[k]` is element k of kBlockRows rows at once,
// as kBlockVectors vectors. Rows enter and leave blocks by transposition.
#pragma once

#include <cstdint>
#include <new>

#include "cpu/simd/vectors.h"

namespace rotcell::cpu::ROTCELL_ISA {

// One with 64-byte vectors, so that a batch of 32 gives each of two threads a block.
constexpr int kBlockVectors = kVectorBytes == 64 ? 1 : 2;
template <class T>
constexpr int kBlockRows = kBlockVectors * kLanes<T>;

// Not std::swap: no function of the C++ library is compiled for this instruction set.
template <class T>
ROTCELL_INLINE void swap_pointers(T*& a, T*& b) {
  T* const old = a;
  a = b;
  b = old;
}

// A matrix [count, kBlockRows] of scratch, zero at first.
template <class T>
class Block {
 public:
  explicit Block(int64_t count)
      : count_(count), data_(static_cast<T*>(::operator new(bytes(count), kAlignment))) {
    clear();
  }
  ~Block() { ::operator delete(data_, kAlignment); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void clear() { std::memset(static_cast<void*>(data_), 0, bytes(count_)); }

  // With a block of the same size.
  void swap(Block& other) { swap_pointers(data_, other.data_); }

  ROTCELL_INLINE T* row(int64_t k) const { return data_ + k * kBlockRows<T>; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static size_t bytes(int64_t count) { return count * kBlockRows<T> * sizeof(T); }
  int64_t count_;
  T* data_;
};

// Lanes [begin, end) of a block.
struct Lanes {
  int64_t begin, end;

  int64_t count() const { return end - begin; }
};

template <class T>
ROTCELL_INLINE int64_t lanes_of_vector(const Lanes& lanes, int vector) {
  return lanes.end - vector * kLanes<T>;
}

// Memory that will be read or written after some matmuls, asked for into the second-level cache: a
// few lines before every tile of these matmuls. Hundreds at once gain next to nothing, presumably
// because they are more than a processor can have open.
class Prefetches {
 public:
  template <class T>
  void add(const T* elements, int64_t count) {
    if (count_ == kMostRanges) return;  // it is only a hint
    const auto* begin = reinterpret_cast<const char*>(elements);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    ranges_[count_++] = {begin, begin + bytes};
    lines_ += bytes / kLineBytes + 1;
  }

  // Spreads the lines evenly over the tiles, once all are known.
  void spread_over(int64_t tiles) { lines_of_tile_ = lines_ / (tiles > 0 ? tiles : 1) + 1; }

  void ask_for_some() {
    for (int64_t lines = lines_of_tile_; lines > 0 && done_ < count_;) {
      Range& range = ranges_[done_];
      for (; lines > 0 && range.begin < range.end; --lines, range.begin += kLineBytes) {
        __builtin_prefetch(range.begin, 0, 2);
      }
      if (range.begin >= range.end) ++done_;
    }
  }

 private:
  static constexpr int kLineBytes = 64, kMostRanges = 8;
  struct Range {
    const char *begin, *end;
  };

  Range ranges_[kMostRanges];
  int count_ = 0, done_ = 0;
  int64_t lines_ = 0, lines_of_tile_ = 0;
};

// Columns of `lanes.count()` rows, `stride` apart, into these lanes of a block; other lanes do
// not change.
template <class T>
void load_lanes(const T* rows, int64_t stride, int64_t columns, const Lanes& lanes, T* block) {
  if (lanes.count() <= 0) return;
  constexpr int L = kLanes<T>;
  if (lanes.begin > 0) {
    for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      const T* row = rows + (lane - lanes.begin) * stride;
      for (int64_t k = 0; k < columns; ++k) block[k * kBlockRows<T> + lane] = row[k];
    }
    return;
  }
  for (int vector = 0; vector < kBlockVectors; ++vector) {
    const int64_t here = lanes_of_vector<T>(lanes, vector);
    if (here <= 0) break;
    const T* source = rows + vector * L * stride;
    T* target = block + vector * L;
    for (int64_t k = 0; k < columns; k += L) {
      Vec<T> tile[L];
      const int64_t width = columns - k;
      if (here >= L && width >= L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) tile[i] = load(source + i * stride + k);
      } else {
        for (int i = 0; i < L; ++i) {
          tile[i] = i < here ? load_first(source + i * stride + k, width) : Vec<T>{};
        }
      }
      transpose<T>(tile);
      if (here >= L && width >= L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) store(target + (k + i) * kBlockRows<T>, tile[i]);
      } else {
        for (int i = 0; i < L && i < width; ++i) {
          store_first(target + (k + i) * kBlockRows<T>, tile[i], here);
        }
      }
    }
  }
}

// The first `columns` elements of the lanes of a block as rows, `stride` apart.
template <class T>
void store_lanes(const T* block, int64_t columns, const Lanes& lanes, T* rows, int64_t stride) {
  if (lanes.count() <= 0) return;
  constexpr int L = kLanes<T>;
  if (lanes.begin > 0) {
    for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      T* row = rows + (lane - lanes.begin) * stride;
      for (int64_t k = 0; k < columns; ++k) row[k] = block[k * kBlockRows<T> + lane];
    }
    return;
  }
  for (int vector = 0; vector < kBlockVectors; ++vector) {
    const int64_t here = lanes_of_vector<T>(lanes, vector);
    if (here <= 0) break;
    const T* source = block + vector * L;
    T* target = rows + vector * L * stride;
    for (int64_t k = 0; k < columns; k += L) {
      Vec<T> tile[L];
      const int64_t width = columns - k;
      if (here >= L && width >= L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) tile[i] = load(source + (k + i) * kBlockRows<T>);
      } else {
        for (int i = 0; i < L; ++i) {
          tile[i] = i < width ? load(source + (k + i) * kBlockRows<T>) : Vec<T>{};
        }
      }
      transpose<T>(tile);
      if (here >= L && width >= L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) store(target + i * stride + k, tile[i]);
      } else {
        for (int i = 0; i < L && i < here; ++i)
          store_first(target + i * stride + k, tile[i], width);
      }
    }
  }
}

// A row of a few vectors: faster than memcpy, which must find out how long it is.
template <class T>
ROTCELL_INLINE void copy_row(const T* from, int64_t count, T* to) {
  constexpr int L = kLanes<T>;
  int64_t i = 0;
  for (; i + L <= count; i += L) store(to + i, load(from + i));
  store_first(to + i, load_first(from + i, count - i), count - i);
}

// All lanes of `block` but the first `alive` take the values of `before`.
template <class T>
void keep_other_lanes(T* block, const T* before, int64_t count, int64_t alive) {
  constexpr int L = kLanes<T>;
  for (int vector = 0; vector < kBlockVectors; ++vector) {
    const Bits<T> is_alive = first_lanes<T>(alive - vector * L);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t at = k * kBlockRows<T> + vector * L;
      store(block + at, is_alive ? load(block + at) : load(before + at));
    }
  }
}

// sums += block, both [count, kBlockRows], in the first `alive` lanes.
template <class T>
void add_lanes(const T* block, int64_t count, int64_t alive, T* sums) {
  constexpr int L = kLanes<T>;
  for (int vector = 0; vector < kBlockVectors; ++vector) {
    const Bits<T> is_alive = first_lanes<T>(alive - vector * L);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t at = k * kBlockRows<T> + vector * L;
      store(sums + at, load(sums + at) + (is_alive ? load(block + at) : Vec<T>{}));
    }
  }
}

// ---- Matmuls with a block: a register tile of up to kTileRows rows of weights.

constexpr int kTileRows = 12 / kBlockVectors;
static_assert(kTileRows * kBlockVectors + kBlockVectors + 1 <= kVectorRegisters);

// How rows are cut into tiles: about equally high, because a low tile has too few sums to hide the
// time that a multiplication takes.
struct TileCut {
  int64_t rows;
  int64_t most_rows = kTileRows;  // of a tile
  int64_t tiles = (rows + most_rows - 1) / most_rows;

  constexpr int64_t begin(int64_t tile) const { return rows * tile / tiles; }
  constexpr int height(int64_t tile) const {
    return static_cast<int>(begin(tile + 1) - begin(tile));
  }
};

// body(height as a compile-time constant) for a tile of so many rows.
template <int ROWS = kTileRows, class Body>
ROTCELL_INLINE void with_tile_rows(int rows, const Body& body) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS) return with_tile_rows<ROWS - 1>(rows, body);
  }
  body(Constant<int, ROWS>{});
}

enum class TileStart {
  kBias,  // the weights begin with a bias for each row
  kZero,
  kResult,  // the matmul is added to the result
  kBlock,   // the matmul is added to another block
};

// The weights of a tile: `rows` biases if there are any, then for every depth `rows` weights.
template <class T>
constexpr int64_t tile_elements(int64_t rows, int64_t depth, TileStart start) {
  return rows * (depth + (start == TileStart::kBias ? 1 : 0));
}

// Elements of a block, `depth` of them, that enter a matmul.
template <class T>
struct Operand {
  const T* block;  // [depth, kBlockRows]
  int64_t depth;
};

template <class T, int ROWS, TileStart START>
__attribute__((noinline)) void multiply_block_tile(const T* weights, Operand<T> first,
                                                   Operand<T> second,
                                                   const T* start,  // [ROWS, kBlockRows], if kBlock
                                                   T* result        // [ROWS, kBlockRows]
) {
  constexpr int L = kLanes<T>, BR = kBlockRows<T>;
  Vec<T> sum[ROWS][kBlockVectors];
#pragma GCC unroll 12
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kBlockVectors; ++v) {
      if constexpr (START == TileStart::kBias) {
        sum[r][v] = broadcast(weights[r]);
      } else if constexpr (START == TileStart::kResult) {
        sum[r][v] = load(result + r * BR + v * L);
      } else if constexpr (START == TileStart::kBlock) {
        sum[r][v] = load(start + r * BR + v * L);
      } else {
        sum[r][v] = Vec<T>{};
      }
    }
  }
  if constexpr (START == TileStart::kBias) weights += ROWS;
  Operand<T> operand = first;
  for (int part = 0; part < 2; ++part, operand = second) {
    const T* element = operand.block;
#pragma GCC unroll 2
    for (int64_t k = 0; k < operand.depth; ++k) {
      Vec<T> x[kBlockVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kBlockVectors; ++v) x[v] = load(element + v * L);
#pragma GCC unroll 12
      for (int r = 0; r < ROWS; ++r) {
        const Vec<T> w = broadcast(weights[r]);
#pragma GCC unroll 4
        for (int v = 0; v < kBlockVectors; ++v) sum[r][v] += w * x[v];
      }
      weights += ROWS;
      element += BR;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kBlockVectors; ++v) store(result + r * BR + v * L, sum[r][v]);
  }
}

// `rows` rows of weights, in tiles, times [first, second], added to `start` [rows, kBlockRows] if
// kBlock. Returns the weights behind them.
template <class T, TileStart START>
const T* multiply_block(const T* weights, int64_t rows, Operand<T> first, Operand<T> second,
                        T* result, Prefetches& soon, const T* start = nullptr) {
  const int64_t depth = first.depth + second.depth;
  const TileCut cut{rows};
  for (int64_t tile = 0; tile < cut.tiles; ++tile) {
    soon.ask_for_some();
    const int64_t place = cut.begin(tile) * kBlockRows<T>;
    const T* tile_start = START == TileStart::kBlock ? start + place : nullptr;
    with_tile_rows(cut.height(tile), [&](auto height) {
      multiply_block_tile<T, height(), START>(weights, first, second, tile_start, result + place);
    });
    weights += tile_elements<T>(cut.height(tile), depth, START);
  }
  return weights;
}

// ---- The weight gradient, of [w_ih, w_hh, bias] and padding to whole vectors.

// A register tile of it. With long vectors a narrow one: fewer sums are fetched before its first
// multiplication and stored after its last. The last columns of a row may be half a long vector.
struct GradientTile {
  static constexpr int kVectors = kVectorBytes == 64 ? 1 : 2;
  static constexpr int kSums = kVectorBytes == 64 ? 16 : kVectorRegisters == 32 ? 24 : 12;
  static constexpr int kLastBytes = kVectorBytes == 64 ? kVectorBytes / 2 : kVectorBytes;
};

template <class T>
int64_t gradient_width(int64_t inputs, int64_t outputs) {
  constexpr int64_t kMultiple = GradientTile::kLastBytes / sizeof(T);
  return (inputs + outputs + 1 + kMultiple - 1) / kMultiple * kMultiple;
}

// gradient [rows, width] += grads [rows, tokens] x factors [tokens,
// width], where a block of grads holds kBlockRows tokens in its lanes.

// The columns of VECTORS vectors of BYTES.
template <class T, int ROWS, int VECTORS, int BYTES>
__attribute__((noinline)) void add_outer_tile(const T* grads, int64_t block_stride,
                                              const T* factors, int64_t blocks, int64_t width,
                                              T* gradient) {
  typedef T V __attribute__((vector_size(BYTES)));
  constexpr int L = BYTES / sizeof(T), BR = kBlockRows<T>;
  V sum[ROWS][VECTORS];
#pragma GCC unroll 24
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) std::memcpy(&sum[r][v], gradient + r * width + v * L, BYTES);
  }
  for (int64_t b = 0; b < blocks; ++b, grads += block_stride) {
#pragma GCC unroll 4
    for (int lane = 0; lane < BR; ++lane, factors += width) {
      V factor[VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) std::memcpy(&factor[v], factors + v * L, BYTES);
#pragma GCC unroll 24
      for (int r = 0; r < ROWS; ++r) {
        const V grad = grads[r * BR + lane] - V{};
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) sum[r][v] += grad * factor[v];
      }
    }
  }
#pragma GCC unroll 24
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) std::memcpy(gradient + r * width + v * L, &sum[r][v], BYTES);
  }
}

// Narrow tiles have more rows, to keep as many sums in flight.
template <class T, int VECTORS, int BYTES>
void add_outer_columns(const T* grads, int64_t block_stride, int64_t rows, const T* factors,
                       int64_t blocks, int64_t width, T* gradient) {
  constexpr int kMostRows = GradientTile::kSums / VECTORS;
  const TileCut cut{rows, kMostRows};
  for (int64_t tile = 0; tile < cut.tiles; ++tile) {
    const int64_t row = cut.begin(tile);
    with_tile_rows<kMostRows>(cut.height(tile), [&](auto height) {
      add_outer_tile<T, height(), VECTORS, BYTES>(grads + row * kBlockRows<T>, block_stride,
                                                  factors, blocks, width, gradient + row * width);
    });
  }
}

// `width` is gradient_width; grads [blocks, block_stride] holds `rows` rows of a block each.
template <class T>
void add_outer_product(const T* grads, int64_t block_stride, int64_t rows, const T* factors,
                       int64_t blocks, int64_t width, T* gradient) {
  constexpr int V = GradientTile::kVectors, L = kLanes<T>;
  int64_t column = 0;
  for (; column + V * L <= width; column += V * L) {
    add_outer_columns<T, V, kVectorBytes>(grads, block_stride, rows, factors + column, blocks,
                                          width, gradient + column);
  }
  if (column < width) {  // a single vector, or half of one
    add_outer_columns<T, 1, GradientTile::kLastBytes>(grads, block_stride, rows, factors + column,
                                                      blocks, width, gradient + column);
  }
}

}  // namespace rotcell::cpu::ROTCELL_ISA
