// The matmul of a timestep: rows [rows, depth] times packed weights [depth, columns].
//
// Weights are packed once per sequence into panels: all of a panel's columns for depth 0, then for
// depth 1, and so on, so the innermost loop reads them as one stream. A register tile of a few rows
// and one panel's columns stays in registers over the whole depth.
#pragma once

#include <cstdint>

#include "cpu/loops/kernels.h"
#include "cpu/matmul/factors.h"
#include "cpu/simd/vectors.h"

namespace rotcell::cpu::ROTCELL_ISA {

struct Tile {
  static constexpr int kRows = kVectorRegisters == 32 ? 8 : 4;
  static constexpr int kVectors = 3;
  // Accumulators, the weights of one depth, one broadcast row element.
  static_assert(kRows * kVectors + kVectors + 1 <= kVectorRegisters);
};

// A panel of a large layer is longer than the first-level cache: the weights are asked for this
// many depths before they are needed. With long vectors a depth is whole lines, one behind the
// other, which the processor asks for itself.
constexpr int kPrefetchDepth = kVectorBytes == 64 ? 0 : 16;
constexpr int kCacheLine = 64;  // bytes

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How columns are cut into panels of at most Tile::kVectors vectors, all about equally wide, the
// wider ones first.
template <class T>
struct PanelCut {
  int64_t columns;
  int64_t vectors = divide_up(columns, kLanes<T>);
  int64_t panels = divide_up(vectors, Tile::kVectors);

  int64_t narrow = panels > 0 ? vectors / panels : 0;  // vectors of a narrow panel
  int64_t wide_panels = vectors - narrow * panels;     // with a vector more

  // The first column of a panel.
  constexpr int64_t begin(int64_t panel) const {
    return (narrow * panel + (panel < wide_panels ? panel : wide_panels)) * kLanes<T>;
  }
  constexpr int vectors_of(int64_t panel) const {
    return static_cast<int>((begin(panel + 1) - begin(panel)) / kLanes<T>);
  }
  // Columns of a panel that are no padding.
  constexpr int64_t columns_of(int64_t panel) const {
    const int64_t end = begin(panel + 1);
    return (end < columns ? end : columns) - begin(panel);
  }
};

template <class T>
constexpr int64_t panel_elements(int64_t depth, int64_t columns) {
  return packed_depth<T>(depth) * divide_up(columns, kLanes<T>) * kLanes<T>;
}

template <class T>
struct Panels {
  const T* data;  // panels as PanelCut says, each [depth, its vectors]
  int64_t depth;
  int64_t columns;
};

// Copies `depth` rows of weights, `stride` apart, into a panel: `columns` elements of each, filled
// up with zeros to its width.
template <class T, int VECTORS = Tile::kVectors>
void copy_to_panel(const T* weights, int64_t stride, int64_t depth, int64_t columns, T* panel,
                   int64_t width) {
  constexpr int L = kLanes<T>;
  if constexpr (VECTORS > 1) {
    if (width < VECTORS * L) {
      copy_to_panel<T, VECTORS - 1>(weights, stride, depth, columns, panel, width);
      return;
    }
  }
  const int64_t of_last = columns - (VECTORS - 1) * L;
  for (int64_t k = 0; k < depth; ++k, weights += stride, panel += VECTORS * L) {
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      store(panel + v * L, load_first(weights + v * L, v + 1 < VECTORS ? L : of_last));
    }
  }
}

// The same with rows of weights that become columns of the panel. Blocks are taken along the rows:
// the other way round more of them would be read at once than a processor foresees.
template <class T>
void transpose_to_panel(const T* weights, int64_t stride, int64_t depth, int64_t columns, T* panel,
                        int64_t width) {
  constexpr int L = kLanes<T>;
  for (int64_t column = 0; column < columns; column += L) {
    const T* rows = weights + column * stride;
    for (int64_t k = 0; k < depth; k += L) {
      Vec<T> block[L];
      if (columns - column >= L && depth - k >= L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) block[i] = load(rows + i * stride + k);
      } else {
        for (int i = 0; i < L; ++i) {
          block[i] = column + i < columns ? load_first(rows + i * stride + k, depth - k) : Vec<T>{};
        }
      }
      transpose<T>(block);
      T* target = panel + k * width + column;
      if (depth - k >= L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) store(target + i * width, block[i]);
      } else {
        for (int i = 0; i < L && i < depth - k; ++i) store(target + i * width, block[i]);
      }
    }
  }
}

// Packs the weights whose element (k, column) is weights[k * depth_stride + column *
// column_stride], one of the strides being 1, as the depths from first_depth on of panels that are
// panel_depth deep. One slice of the panels is done.
template <class T>
void pack_panels(const T* weights, int64_t depth_stride, int64_t column_stride, int64_t depth,
                 int64_t columns, T* packed, int64_t first_depth, int64_t panel_depth,
                 Slice slice) {
  const PanelCut<T> cut{columns};
  for (int64_t panel = slice.begin(cut.panels); panel < slice.end(cut.panels); ++panel) {
    const int64_t first = cut.begin(panel), width = cut.vectors_of(panel) * kLanes<T>;
    const T* source = weights + first * column_stride;
    T* target =
        packed + packed_depth<T>(panel_depth) * first + packed_depth<T>(first_depth) * width;
    if (column_stride == 1) {
      copy_to_panel(source, depth_stride, depth, cut.columns_of(panel), target, width);
    } else {
      transpose_to_panel(source, column_stride, depth, cut.columns_of(panel), target, width);
    }
  }
}

// Rows that enter a matmul, `depth` elements each, `stride` apart.
template <class T>
struct Rows {
  const T* data;
  int64_t stride;
  int64_t depth;

  ROTCELL_INLINE Rows from(int64_t row) const { return {data + row * stride, stride, depth}; }
};

// The rows that a matmul is added to: `stride` 0 for a bias, the same for all; no data for zero.
template <class T>
struct Addend {
  const MathType<T>* data;
  int64_t stride;
};

// sum += rows x a panel, in one register tile. Element (r, k) of the rows is rows[r * row_stride +
// k * depth_stride].
template <class T, int ROWS, int VECTORS>
ROTCELL_INLINE void add_matmuls(const T* rows, int64_t row_stride, int64_t depth_stride,
                                int64_t depth, const T* panel, Vec<T> (&sum)[ROWS][VECTORS]) {
  using F = Factors<T>;
  constexpr int D = F::kDepths, W = D * kLanes<T>;
  const auto add = [&](int64_t k, auto of_row) ROTCELL_LAMBDA_INLINE {
    typename F::Vector weight[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) weight[v] = F::of_panel(panel + v * W);
    if constexpr (kPrefetchDepth > 0) {
      const T* later = panel + kPrefetchDepth * VECTORS * W;
      for (const T* line = later; line < later + VECTORS * W; line += kCacheLine / sizeof(T)) {
        __builtin_prefetch(line);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const typename F::Vector x = of_row(rows + r * row_stride + k * depth_stride);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) F::multiply_add(sum[r][v], x, weight[v]);
    }
  };
  int64_t k = 0;
  for (; k + D <= depth; k += D, panel += VECTORS * W) {
    add(k, [](const T* p) ROTCELL_LAMBDA_INLINE { return F::of_row(p); });
  }
  if constexpr (D > 1) {
    if (k < depth) add(k, [](const T* p) ROTCELL_LAMBDA_INLINE { return F::of_row_end(p); });
  }
}

// One register tile: ROWS rows of [first, second] times VECTORS vectors of columns, of which
// `columns` exist.
template <class T, int ROWS, int VECTORS, class R>
ROTCELL_INLINE void multiply_columns(
    const Rows<T>& first, const Rows<T>& second,
    const T* panel,  // [first.depth + second.depth, VECTORS * kLanes], each depth as packed
    const Addend<T>& addend,
    R* result,  // [ROWS, columns], row stride result_stride; T or its MathType
    int64_t result_stride, int64_t columns) {
  constexpr int L = kLanes<T>;
  Vec<T> sum[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      sum[r][v] = addend.data ? load_first(addend.data + r * addend.stride + v * L, columns - v * L)
                              : Vec<T>{};
    }
  }
  Rows<T> rows = first;
  for (int part = 0; part < 2; ++part, rows = second) {
    add_matmuls(rows.data, rows.stride, 1, rows.depth, panel, sum);
    panel += packed_depth<T>(rows.depth) * VECTORS * L;
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      store_first(result + r * result_stride + v * L, sum[r][v], columns - v * L);
    }
  }
}

// The same, with separate code for the usual case that all columns exist.
template <class T, int ROWS, int VECTORS, class R>
void multiply_tile(const Rows<T>& first, const Rows<T>& second, const T* panel,
                   const Addend<T>& addend, R* result, int64_t result_stride, int64_t columns) {
  constexpr int64_t kAll = VECTORS * kLanes<T>;
  if (columns == kAll) {
    multiply_columns<T, ROWS, VECTORS>(first, second, panel, addend, result, result_stride, kAll);
  } else {
    multiply_columns<T, ROWS, VECTORS>(first, second, panel, addend, result, result_stride,
                                       columns);
  }
}

template <class T, class R>
using TileFunction = void (*)(const Rows<T>&, const Rows<T>&, const T*, const Addend<T>&, R*,
                              int64_t, int64_t);

// The tile function for a number of rows and vectors.
template <class T, class R = T, int... RV>
TileFunction<T, R> tile_function(int rows, int vectors, std::integer_sequence<int, RV...>) {
  static constexpr TileFunction<T, R> table[] = {
      multiply_tile<T, RV / Tile::kVectors + 1, RV % Tile::kVectors + 1, R>...};
  return table[(rows - 1) * Tile::kVectors + vectors - 1];
}

// A single row times several panels at once, first WIDE ones of Tile::kVectors vectors, then NARROW
// ones of a vector less: one panel alone has too few sums to hide the time that a multiplication
// takes.
template <class T, int WIDE, int NARROW, class R>
void multiply_row(const Rows<T>& first, const Rows<T>& second, const T* panel, int64_t depth,
                  const MathType<T>* addend, R* result, int64_t columns) {
  using F = Factors<T>;
  constexpr int D = F::kDepths;
  constexpr int L = kLanes<T>, V = Tile::kVectors, PANELS = WIDE + NARROW;
  constexpr auto vectors_before = [](int p) { return p < WIDE ? p * V : p * (V - 1) + WIDE; };
  constexpr int kSums = vectors_before(PANELS);
  // All columns exist, but for some of the last vector.
  const int64_t of_last = columns - (kSums - 1) * L;
  Vec<T> sum[kSums];
#pragma GCC unroll 32
  for (int v = 0; v < kSums; ++v) {
    sum[v] = addend ? load_first(addend + v * L, v + 1 < kSums ? L : of_last) : Vec<T>{};
  }
  const T* weights[PANELS];
#pragma GCC unroll 8
  for (int p = 0; p < PANELS; ++p) weights[p] = panel + depth * vectors_before(p) * L;
  const auto add = [&](typename F::Vector x) ROTCELL_LAMBDA_INLINE {
#pragma GCC unroll 8
    for (int p = 0; p < PANELS; ++p) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        if (p < WIDE || v + 1 < V) {
          F::multiply_add(sum[vectors_before(p) + v], x, F::of_panel(weights[p] + v * D * L));
        }
      }
      weights[p] += (p < WIDE ? V : V - 1) * D * L;
    }
  };
  Rows<T> row = first;
  for (int part = 0; part < 2; ++part, row = second) {
    int64_t k = 0;
    for (; k + D <= row.depth; k += D) add(F::of_row(row.data + k));
    if constexpr (D > 1) {
      if (k < row.depth) add(F::of_row_end(row.data + k));
    }
  }
#pragma GCC unroll 32
  for (int v = 0; v < kSums; ++v) {
    store_first(result + v * L, sum[v], v + 1 < kSums ? L : of_last);
  }
}

template <class T, class R>
using RowFunction = void (*)(const Rows<T>&, const Rows<T>&, const T*, int64_t, const MathType<T>*,
                             R*, int64_t);

// The most panels of each width that multiply_row takes at once. With long vectors three hide the
// time a multiplication takes, and even small layers have more than one group to read in turns.
constexpr int kRowWidePanels = kVectorBytes == 64 ? 3 : kVectorRegisters == 32 ? 6 : 4;
constexpr int kRowNarrowPanels = 2;

// multiply_row for so many panels.
template <class T, class R, int... WN>
RowFunction<T, R> row_function(int wide, int narrow, std::integer_sequence<int, WN...>) {
  constexpr int N = kRowNarrowPanels + 1;
  // Its first place, for no panels at all, is never asked for.
  static constexpr RowFunction<T, R> table[] = {multiply_row < T, WN / N, WN == 0 ? 1 : WN % N,
                                                R > ...};
  return table[wide * N + narrow];
}

// In which order panels are read. A single row reads all weights at every step: if every other step
// reads them backwards, it finds the last ones of the step before still in the cache.
enum class PanelOrder { kUp, kDown };

// As multiply, for a single row and more than one vector of columns.
template <class T, class R>
void multiply_single_row(const Rows<T>& first, const Rows<T>& second, const Panels<T>& panels,
                         const MathType<T>* addend, R* result, PanelOrder order) {
  using Shapes = std::make_integer_sequence<int, (kRowWidePanels + 1) * (kRowNarrowPanels + 1)>;
  const PanelCut<T> cut{panels.columns};
  const int64_t depth = packed_depth<T>(panels.depth);
  // Groups of kRowWidePanels; the last one has the narrow panels, too.
  const int64_t all_wide = cut.narrow == Tile::kVectors ? cut.panels : cut.wide_panels;
  const int64_t full = all_wide / kRowWidePanels;
  const int64_t groups = full + (cut.panels > full * kRowWidePanels ? 1 : 0);
  for (int64_t i = 0; i < groups; ++i) {
    const int64_t group = order == PanelOrder::kUp ? i : groups - 1 - i;
    const int64_t panel = group * kRowWidePanels;
    const int64_t end_panel = group < full ? panel + kRowWidePanels : cut.panels;
    const int64_t wide = group < full ? kRowWidePanels : all_wide - panel;
    const int64_t column = cut.begin(panel), end = cut.begin(end_panel);
    row_function<T, R>(static_cast<int>(wide), static_cast<int>(end_panel - panel - wide),
                       Shapes{})(first, second, panels.data + depth * column, depth,
                                 addend ? addend + column : nullptr, result + column,
                                 (end < panels.columns ? end : panels.columns) - column);
  }
}

// result = addend + [first, second] x panels, where a row of [first, second] is a row of `first`
// followed by one of `second`; the panels have the depth of both.
template <class T, class R>
void multiply(const Rows<T>& first, const Rows<T>& second, int64_t row_count,
              const Panels<T>& panels, Addend<T> addend,
              R* result,  // [row_count, panels.columns], row stride result_stride
              int64_t result_stride, PanelOrder order_of_single_row = PanelOrder::kUp) {
  using TileShapes = std::make_integer_sequence<int, Tile::kRows * Tile::kVectors>;
  if (row_count <= 0) return;
  const PanelCut<T> cut{panels.columns};
  if (row_count == 1 && cut.vectors > 1) {
    multiply_single_row(first, second, panels, addend.data, result, order_of_single_row);
    return;
  }
  // About equally high: a low tile has too few sums to hide the time that a multiplication takes.
  const int64_t tiles = divide_up(row_count, Tile::kRows);
  for (int64_t i = 0; i < cut.panels; ++i) {
    const int64_t column = cut.begin(i), columns = cut.columns_of(i);
    const int vectors = cut.vectors_of(i);
    const T* panel = panels.data + packed_depth<T>(panels.depth) * column;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = row_count * tile / tiles;
      const int rows = static_cast<int>(row_count * (tile + 1) / tiles - row);
      tile_function<T, R>(rows, vectors, TileShapes{})(
          first.from(row), second.from(row), panel,
          {addend.data ? addend.data + row * addend.stride + column : nullptr, addend.stride},
          result + row * result_stride + column, result_stride, columns);
    }
  }
}

// result = addend + rows x panels.
template <class T, class R>
void multiply(const Rows<T>& rows, int64_t row_count, const Panels<T>& panels, Addend<T> addend,
              R* result, int64_t result_stride) {
  multiply(rows, Rows<T>{rows.data, 0, 0}, row_count, panels, addend, result, result_stride);
}

}  // namespace rotcell::cpu::ROTCELL_ISA
