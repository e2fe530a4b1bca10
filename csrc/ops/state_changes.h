// What happens to the state between steps, as the kernels of the CPU want it: masks, and the
// scratch that they need.
#pragma once

#include "cells/list.h"
#include "cpu/kernels.h"
#include "ops/arguments.h"

namespace rotcell::ops {

// Masks, contiguous and of type T; marks are bool. Undefined where nothing happens.
template <class T>
struct ChangeMasks {
  explicit ChangeMasks(const ChangeTensors& changes);

  void write(cpu::Changes<T>& pointers) const;

  Tensor resets, recurrent_dropout, zoneout_h, zoneout_c;
};

// Without any change these have no memory.
template <class T>
class ForwardChanges {
 public:
  ForwardChanges(const CellDescription& cell, const LayerSizes& sizes,
                 const ChangeTensors& tensors);

  cpu::Changes<T> pointers() const;

 private:
  StateChanges what_;
  ChangeMasks<T> masks_;
  Tensor h_, c_, seen_;
};

template <class T>
class BackwardChanges {
 public:
  BackwardChanges(const CellDescription& cell, const LayerSizes& sizes,
                  const ChangeTensors& tensors, int64_t chunk_tokens);

  cpu::Changes<T> pointers() const;
  // What the first product saw, of a chunk of so many tokens: [tokens, P]. Undefined if nothing
  // changed.
  Tensor seen(int64_t tokens) const { return seen_ ? seen_.narrow(0, 0, tokens) : Tensor(); }

 private:
  StateChanges what_;
  ChangeMasks<T> masks_;
  Tensor h_, c_, seen_, grad_seen_, grad_h_past_, grad_c_past_, fresh_c_;
};

}  // namespace rotcell::ops
