// The list of cells, from which CPU kernels, GPU kernels and ops are instantiated. Ops and
// rotcell/reference.py use the same names.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "cells/eurnn.h"
#include "cells/goru.h"
#include "cells/gru.h"
#include "cells/layer_norm_lstm.h"
#include "cells/lstm.h"
#include "cells/rum.h"
#include "cells/sizes.h"
#include "cells/torch_gru.h"

namespace rotcell {

struct RotLstm : Lstm<PairRotation> {
  static constexpr const char* kName = "rot_lstm";
};
struct RotGru : Gru<PairRotation> {
  static constexpr const char* kName = "rot_gru";
};
struct PlainLstm : Lstm<NoRotation> {
  static constexpr const char* kName = "lstm";
};
struct ClassicGru : Gru<NoRotation> {
  static constexpr const char* kName = "classic_gru";
};
struct TorchGru : TorchGruMath {
  static constexpr const char* kName = "gru";
};

struct LayerNormLstm : LayerNormLstmMath<NoRotation> {
  static constexpr const char* kName = "layer_norm_lstm";
};
struct LayerNormRotLstm : LayerNormLstmMath<PairRotation> {
  static constexpr const char* kName = "layer_norm_rot_lstm";
};
struct Rum : RumMath {
  static constexpr const char* kName = "rum";
};
struct Goru : GoruMath {
  static constexpr const char* kName = "goru";
};
struct Eurnn : EurnnMath {
  static constexpr const char* kName = "eurnn";
};

// Rotations of larger groups.
struct RotLstm3 : Lstm<GroupRotation<3>> {
  static constexpr const char* kName = "rot_lstm_3";
};
struct RotLstm4 : Lstm<GroupRotation<4>> {
  static constexpr const char* kName = "rot_lstm_4";
};
struct RotLstm8 : Lstm<GroupRotation<8>> {
  static constexpr const char* kName = "rot_lstm_8";
};
struct RotGru3 : Gru<GroupRotation<3>> {
  static constexpr const char* kName = "rot_gru_3";
};
struct RotGru4 : Gru<GroupRotation<4>> {
  static constexpr const char* kName = "rot_gru_4";
};
struct RotGru8 : Gru<GroupRotation<8>> {
  static constexpr const char* kName = "rot_gru_8";
};

template <class... Types>
struct TypeList {
  static constexpr int kCount = sizeof...(Types);

  template <class... More>
  static TypeList<Types..., More...> with(TypeList<More...>);
};

#if defined(ROTCELL_FEW_CELLS)  // for builds that test the framework, not the cells
using Cells = TypeList<RotLstm, RotGru>;
#else
using Cells = TypeList<RotLstm, RotGru, PlainLstm, ClassicGru, TorchGru, RotLstm3, RotGru3,
                       RotLstm4, RotGru4, RotLstm8, RotGru8>;
#endif

// Cells whose math sees whole rows (cells/row_cell.h): for CPUs only.
#if defined(ROTCELL_FEW_CELLS)
using RowCells = TypeList<LayerNormRotLstm, Goru>;
#else
using RowCells = TypeList<LayerNormLstm, LayerNormRotLstm, Rum, Goru, Eurnn>;
#endif
using AllCells = decltype(Cells::with(RowCells{}));

// Position of a cell in the list of all: how code that is not a template names it.
using CellIndex = int;

namespace detail {
template <class Body, class... Types>
void for_each_cell(const Body& body, TypeList<Types...>) {
  (body(static_cast<Types*>(nullptr)), ...);
}
}  // namespace detail

// body(Cell*) for every cell, with a null pointer of the type.
template <class Body>
void for_cells(const Body& body) {
  detail::for_each_cell(body, Cells{});
}

// A description at run time, for code that need not be a template.
struct CellDescription {
  const char* name;
  int gates;
  int stages;
  bool has_cell_state, reads_output, can_project, has_angles;
  bool resident, cooperative, stepwise;
  bool sees_rows;                         // cells/row_cell.h
  int64_t (*rows)(int64_t hidden);        // columns of the gates
  int64_t (*input_rows)(int64_t hidden);  // of w_ih
  int64_t (*bias_rows)(int64_t hidden);   // of b_ih
  RecurrentSpans (*recurrent_spans)(int64_t hidden, HiddenFeeds feeds);
  int64_t (*rows_of_matmul)(int matmul, int64_t hidden);
  int64_t (*first_row_of_matmul)(int matmul, int64_t hidden);
  int64_t (*span_of_matmul)(int matmul, int64_t hidden);
  bool adds_biases = false, has_norm = false;  // these and the next two: see cells/row_cell.h
  int parameter_count = 0;
  RowParameter (*parameter)(int number) = nullptr;

  bool has_recurrent_weights() const { return recurrent_spans(1, HiddenFeeds::kAll).count > 0; }
  bool has_biases() const { return bias_rows(1) > 0; }
};

template <RowCell Cell>
constexpr CellDescription describe_row_cell() {
  static_assert(check_row_cell<Cell>());
  return {.name = Cell::kName,
          .gates = Cell::kBlockCount,
          .stages = 1,
          .has_cell_state = Cell::kHasCellState,
          .reads_output = Cell::kReadsOutput,
          .can_project = Cell::kCanProject,
          .has_angles = false,
          .resident = false,
          .cooperative = false,
          .stepwise = false,
          .sees_rows = true,
          .rows = CellRows<Cell>::count,
          .input_rows = CellRows<Cell>::of_input,
          .bias_rows = Cell::bias_columns,
          .recurrent_spans = CellRows<Cell>::recurrent_spans,
          .rows_of_matmul = CellRows<Cell>::of_matmul,
          .first_row_of_matmul = CellRows<Cell>::first_of_matmul,
          .span_of_matmul = CellRows<Cell>::span_of_matmul,
          .adds_biases = Cell::kAddsBiases,
          .has_norm = Cell::kHasNorm,
          .parameter_count = Cell::kParameterCount,
          .parameter = Cell::parameter};
}

template <class Cell>
constexpr CellDescription describe() {
  static_assert(check_cell<Cell>());
  return {.name = Cell::kName,
          .gates = Cell::kGateCount,
          .stages = Cell::kStages,
          .has_cell_state = Cell::kHasCellState,
          .reads_output = Cell::kReadsOutput,
          .can_project = Cell::kCanProject,
          .has_angles = Cell::Rotation::kHasAngles,
          .resident = Cell::kResident && runs_on_gpus<Cell>(),
          .cooperative = Cell::kCooperative && runs_on_gpus<Cell>(),
          .stepwise = runs_on_gpus<Cell>(),
          .sees_rows = false,
          .rows = CellRows<Cell>::count,
          .input_rows = CellRows<Cell>::of_input,
          .bias_rows = CellRows<Cell>::of_input,
          .recurrent_spans = CellRows<Cell>::recurrent_spans,
          .rows_of_matmul = CellRows<Cell>::of_matmul,
          .first_row_of_matmul = CellRows<Cell>::first_of_matmul,
          .span_of_matmul = CellRows<Cell>::span_of_matmul};
}

namespace detail {
template <class Cell>
constexpr CellDescription describe_any() {
  if constexpr (RowCell<Cell>) {
    return describe_row_cell<Cell>();
  } else {
    return describe<Cell>();
  }
}
template <class... Types>
constexpr std::array<CellDescription, sizeof...(Types)> describe_all(TypeList<Types...>) {
  return {describe_any<Types>()...};
}
}  // namespace detail

inline constexpr std::array<CellDescription, AllCells::kCount> kCells =
    detail::describe_all(AllCells{});

inline LayerSizes layer_sizes(const CellDescription& cell, int64_t tokens, int64_t inputs,
                              int64_t batch, int64_t hidden, int64_t outputs,
                              HiddenFeeds feeds = HiddenFeeds::kAll) {
  return {.tokens = tokens,
          .inputs = inputs,
          .batch = batch,
          .hidden = hidden,
          .outputs = outputs,
          .gate_rows = cell.rows(hidden),
          .input_rows = cell.input_rows(hidden),
          .bias_rows = cell.bias_rows(hidden),
          .sees_rows = cell.sees_rows,
          .hidden_feeds = feeds,
          .recurrent = cell.recurrent_spans(hidden, feeds)};
}

}  // namespace rotcell
