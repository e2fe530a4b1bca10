// From what is known at run time to a kernel's template arguments.
#pragma once

#include "cells/list.h"
#include "cuda/kernels/numbers.h"
#include "cuda/platform/platform.h"

namespace rotcell::cuda {

template <class T>
struct TypeTag {
  using Type = T;
};

// Calls body(TypeTag<T>) with the storage type of this number.
template <class Body>
void with_storage_type(Number number, Body body) {
  switch (number) {
    case Number::kFloat32:
      return body(TypeTag<float>{});
    case Number::kFloat64:
      return body(TypeTag<double>{});
    case Number::kFloat16:
      return body(TypeTag<__half>{});
    case Number::kBFloat16:
      return body(TypeTag<__nv_bfloat16>{});
  }
}

// Calls body(TypeTag<Cell>) with the cell at this place of the list, if it runs on GPUs.
template <class Body>
void with_cell(CellIndex cell, Body body) {
  CellIndex place = 0;
  for_cells([&](auto* type) {
    using Cell = std::remove_pointer_t<decltype(type)>;
    if constexpr (runs_on_gpus<Cell>()) {
      if (place == cell) body(TypeTag<Cell>{});
    }
    ++place;
  });
}

}  // namespace rotcell::cuda
