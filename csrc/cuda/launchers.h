// From the number type known at run time to a kernel's template argument.
#pragma once

#include "cuda/numbers.h"
#include "cuda/platform.h"

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

}  // namespace rotcell::cuda
