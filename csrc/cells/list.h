// The list of cells. All that is made for every cell, for a CPU, for a GPU and for torch, is made
// from it. The names are those of the ops, and of the descriptions in rotcell/reference.py.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "cells/gru.h"
#include "cells/lstm.h"

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

template <class... Types>
struct TypeList {
  static constexpr int kCount = sizeof...(Types);
};

#if defined(ROTCELL_FEW_CELLS)  // for builds that look for faults of the frames, not of cells
using Cells = TypeList<RotLstm, RotGru>;
#else
using Cells = TypeList<RotLstm, RotGru, PlainLstm, ClassicGru>;
#endif

// Position of a cell in the list: how code that is not a template names it.
using CellIndex = int;

namespace detail {
template <class Body, class... Types>
void for_each_cell(const Body& body, TypeList<Types...>) {
  (body(static_cast<Types*>(nullptr)), ...);
}
}  // namespace detail

// body(Cell*) for every cell, with a null pointer that tells the type.
template <class Body>
void for_cells(const Body& body) {
  detail::for_each_cell(body, Cells{});
}

// A description at run time, for code that need not be a template.
struct CellDescription {
  const char* name;
  int gates;
  int stages;
  bool has_memory, reads_output, can_project, has_angles;
  bool resident, cooperative;
  int64_t (*rows)(int64_t hidden);  // of the weights
  int64_t (*rows_of_product)(int product, int64_t hidden);
  int64_t (*first_row_of_product)(int product, int64_t hidden);
};

template <class Cell>
constexpr int64_t first_row_of_product(int product, int64_t hidden) {
  for (int gate = 0; gate < Cell::kGateCount; ++gate) {
    if (Cell::product(gate) == product) return CellRows<Cell>::offset(gate, hidden);
  }
  return 0;
}

template <class Cell>
constexpr CellDescription describe() {
  return {.name = Cell::kName,
          .gates = Cell::kGateCount,
          .stages = Cell::kStages,
          .has_memory = Cell::kHasMemory,
          .reads_output = Cell::kReadsOutput,
          .can_project = Cell::kCanProject,
          .has_angles = Cell::Rotation::kHasAngles,
          .resident = Cell::kResident,
          .cooperative = Cell::kCooperative,
          .rows = CellRows<Cell>::count,
          .rows_of_product = CellRows<Cell>::of_product,
          .first_row_of_product = first_row_of_product<Cell>};
}

namespace detail {
template <class... Types>
constexpr std::array<CellDescription, sizeof...(Types)> describe_all(TypeList<Types...>) {
  return {describe<Types>()...};
}
}  // namespace detail

inline constexpr std::array<CellDescription, Cells::kCount> kCells = detail::describe_all(Cells{});

// Negative if there is no cell of that name.
constexpr CellIndex cell_named(std::string_view name) {
  for (int i = 0; i < Cells::kCount; ++i) {
    if (name == kCells[i].name) return i;
  }
  return -1;
}

}  // namespace rotcell
