// What happens to the state between steps outside the cell's math (cells/state_hooks.h): one
// thread's part of it. Rows are those of the thread, columns those of its units.
#pragma once

#include <cstring>

#include "cpu/loops/kernels.h"
#include "cpu/loops/row_step.h"

// The time loops are to be compiled as if this did not happen.
#define ROTCELL_COLD __attribute__((noinline))

namespace rotcell::cpu::ROTCELL_ISA {

template <class T>
class HookedStep {
 public:
  HookedStep(const HookPointers<T>& hooks, const Call& call, const RowStep& step, UnitRange units)
      : p_(hooks),
        step_(step),
        width_(call.outputs),
        hidden_(call.hidden),
        units_(units),
        // With a projection all units are one thread's, and so are all outputs.
        columns_(call.projection == Projection::kPresent ? UnitRange{0, call.outputs} : units),
        starts_sequence_(hooks.what.resets ? beginnings(hooks.reset_mask, call.steps, step.step)
                                           : kNoBeginnings) {}

  // The state that the step starts from. h_before(row) [P] is the output of the step before;
  // masked_h [B, P] becomes what the matmuls see of it.
  template <class Before>
  ROTCELL_COLD void enter_h(const Before& h_before, T* masked_h) const {
    for (int64_t row = step_.begin; row < step_.end; ++row) {
      T* h = p_.h + row * width_;
      T* masked_row = masked_h + row * width_;
      enter(row, h_before(row), h, columns_);
      if (p_.what.recurrent_dropout) {
        const T* mask = p_.dropout + row * width_;
        for (int64_t i = columns_.begin; i < columns_.end; ++i) masked_row[i] = h[i] * mask[i];
      } else if (masked_row != h) {
        copy(h, masked_row, columns_);
      }
    }
  }

  template <class Before, class C>
  ROTCELL_COLD void enter_c(const Before& c_before, C* c) const {
    for (int64_t row = step_.begin; row < step_.end; ++row) {
      enter(row, c_before(row), c + row * hidden_, units_);
    }
  }

  // Zoneout. The new state of this step, [alive rows, width], becomes that of the next.
  ROTCELL_COLD void mix_h(T* h_new) const {
    if (p_.what.zoneout_h) mix(p_.zoneout_h, p_.h, h_new);
  }
  ROTCELL_COLD void mix_c(MathType<T>* c_new) const {
    if (p_.what.zoneout_c) mix(p_.zoneout_c, p_.c, c_new);
  }

  // The backward pass of zoneout: the gradient of the mixed state [B, width] becomes that of the
  // new state; the gradient of the old state is stored. grad_out [N, P] is added first, if given.
  ROTCELL_COLD void split_h(MathType<T>* grad_h, OutputGradient output_gradient,
                            const T* grad_out) const {
    if (!p_.what.zoneout_h) return;
    if (output_gradient == OutputGradient::kGiven) {
      for (int64_t row = step_.begin; row < step_.end; ++row) {
        const T* given = grad_out + (step_.step.token + row) * width_;
        add(given, grad_h + row * width_, columns_);
      }
    }
    split(p_.zoneout_h, grad_h, p_.grad_h_past);
  }
  ROTCELL_COLD void split_c(MathType<T>* grad_c) const {
    if (p_.what.zoneout_c) split(p_.zoneout_c, grad_c, p_.grad_c_past);
  }

  ROTCELL_COLD void clear_grad_masked_h() const {
    for (int64_t row = step_.begin; row < step_.end; ++row) {
      clear(p_.grad_masked_h + row * width_, columns_);
    }
  }

  // The gradients of the state before this step. If the cell reads its old output, grad_h [B, P]
  // holds the part that no matmul carries.
  ROTCELL_COLD void leave_h(MathType<T>* grad_h, bool reads_output) const {
    for (int64_t row = step_.begin; row < step_.end; ++row) {
      MathType<T>* grad = grad_h + row * width_;
      MathType<T>* grad_masked_h = p_.grad_masked_h + row * width_;
      if (!reads_output || starts_sequence_(row)) clear(grad, columns_);
      if (starts_sequence_(row)) continue;
      if (p_.what.recurrent_dropout) {
        const T* mask = p_.dropout + row * width_;
        for (int64_t i = columns_.begin; i < columns_.end; ++i) grad_masked_h[i] *= mask[i];
      }
      add(grad_masked_h, grad, columns_);
      if (p_.what.zoneout_h) add(p_.grad_h_past + row * width_, grad, columns_);
    }
  }
  ROTCELL_COLD void leave_c(MathType<T>* grad_c) const {
    for (int64_t row = step_.begin; row < step_.end; ++row) {
      MathType<T>* grad = grad_c + row * hidden_;
      if (starts_sequence_(row)) {
        clear(grad, units_);
      } else if (p_.what.zoneout_c) {
        add(p_.grad_c_past + row * hidden_, grad, units_);
      }
    }
  }

 private:
  // On rows, without functions of the C++ library: none is compiled for this instruction set.
  template <class V>
  static void clear(V* row, UnitRange columns) {
    std::memset(static_cast<void*>(row + columns.begin), 0,
                (columns.end - columns.begin) * sizeof(V));
  }
  template <class V>
  static void copy(const V* from, V* to, UnitRange columns) {
    std::memcpy(to + columns.begin, from + columns.begin,
                (columns.end - columns.begin) * sizeof(V));
  }
  template <class V>
  static void add(const V* from, MathType<T>* to, UnitRange columns) {
    for (int64_t i = columns.begin; i < columns.end; ++i) to[i] += from[i];
  }

  template <class V>
  void enter(int64_t row, const V* before, V* entered, UnitRange columns) const {
    if (starts_sequence_(row)) {
      clear(entered, columns);
    } else {
      copy(before, entered, columns);
    }
  }

  // Zoneout is for states without a projection: all are `hidden_` wide.
  template <class V>
  void mix(const ZoneoutKeep<T>& keep, const V* old, V* unmixed) const {
    for (int64_t row = step_.begin; row < step_.end; ++row) {
      const T* share = keep.of(step_.step.token + row);
      const V* before = old + row * hidden_;
      V* after = unmixed + row * hidden_;
      for (int64_t i = units_.begin; i < units_.end; ++i) {
        after[i] = share[i] * before[i] + (1 - share[i]) * after[i];
      }
    }
  }

  void split(const ZoneoutKeep<T>& keep, MathType<T>* grads, MathType<T>* past) const {
    for (int64_t row = step_.begin; row < step_.end; ++row) {
      const T* share = keep.of(step_.step.token + row);
      MathType<T>*grad = grads + row * hidden_, *old = past + row * hidden_;
      for (int64_t i = units_.begin; i < units_.end; ++i) {
        old[i] = share[i] * grad[i];
        grad[i] = (1 - share[i]) * grad[i];
      }
    }
  }

  const HookPointers<T>& p_;
  const RowStep& step_;
  int64_t width_, hidden_;
  UnitRange units_, columns_;
  Beginnings starts_sequence_;
};

}  // namespace rotcell::cpu::ROTCELL_ISA

#undef ROTCELL_COLD
