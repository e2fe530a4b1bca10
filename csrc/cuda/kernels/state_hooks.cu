// Resets and recurrent dropout: one thread per element of a row, the same for all cells.
#include "cuda/kernels/device_math.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/shapes.h"
#include "cuda/kernels/stepwise.h"

namespace rotcell::cuda {
namespace {

// This thread's place in a matrix of rows that are as wide as the wider of h and c.
struct Place {
  int64_t row;
  int column;

  static ROTCELL_INLINE int width(int outputs, int hidden, bool uses_hidden) {
    return uses_hidden && hidden > outputs ? hidden : outputs;
  }

  ROTCELL_DEVICE explicit Place(int width) {
    const int64_t item = int64_t{1} * blockIdx.x * blockDim.x + threadIdx.x;
    row = item / width;
    column = static_cast<int>(item - row * width);
  }
};

template <class Params>
Grid grid_for(const Params& p) {
  const int64_t items = p.rows * Place::width(p.outputs, p.hidden, p.has_cell_state);
  return {static_cast<unsigned>((items + Tiles::kStepThreads - 1) / Tiles::kStepThreads),
          Tiles::kStepThreads, 0};
}

template <class T>
ROTCELL_DEVICE void run_step(const EnterStep& p) {
  using A = Compute<T>;
  const Place place(Place::width(p.outputs, p.hidden, p.has_cell_state));
  if (place.row >= p.rows) return;
  const bool restarts = p.hooks.resets && p.starts_sequence(place.row);
  if (place.column < p.outputs) {
    const int64_t at = place.row * p.outputs + place.column;
    T* h = static_cast<T*>(p.h) + at;
    if (restarts) *h = to_storage<T>(A(0));
    if (p.hooks.recurrent_dropout) {
      const A mask = to_compute(static_cast<const T*>(p.dropout)[at]);
      static_cast<T*>(p.masked_h)[at] = to_storage<T>(to_compute(*h) * mask);
    }
  }
  if (restarts && p.has_cell_state && place.column < p.hidden) {
    static_cast<A*>(p.c)[place.row * p.hidden + place.column] = A(0);
  }
}

template <class T>
ROTCELL_DEVICE void run_step(const LeaveStep& p) {
  using A = Compute<T>;
  const Place place(Place::width(p.outputs, p.hidden, p.has_cell_state));
  if (place.row >= p.rows) return;
  const bool restarts = p.hooks.resets && p.starts_sequence(place.row);
  if (place.column < p.outputs) {
    const int64_t at = place.row * p.outputs + place.column;
    const T* before = static_cast<const T*>(place.row < p.carried ? p.out_before : p.h0) + at;
    const A mask =
        p.hooks.recurrent_dropout ? to_compute(static_cast<const T*>(p.dropout)[at]) : A(1);
    static_cast<T*>(p.masked_h_t)[at] = to_storage<T>(restarts ? A(0) : to_compute(*before) * mask);
    T* grad_h = static_cast<T*>(p.grad_h) + at;
    *grad_h = to_storage<T>(restarts ? A(0) : to_compute(*grad_h) * mask);
    if (restarts && p.has_direct) static_cast<A*>(p.grad_direct)[at] = A(0);
  }
  if (restarts && p.has_cell_state && place.column < p.hidden) {
    static_cast<A*>(p.grad_c)[place.row * p.hidden + place.column] = A(0);
  }
}

template <class T, class Params>
ROTCELL_GLOBAL void step_kernel(Params p) {
  run_step<T>(p);
}

template <class Params>
void launch_step(const char* name, Number number, const Params& p, Stream stream) {
  with_storage_type(number, [&](auto tag) {
    launch(name, step_kernel<typename decltype(tag)::Type, Params>, grid_for(p), stream, p);
  });
}

}  // namespace

void enter(Number number, const EnterStep& p, Stream stream) {
  launch_step("enter_step", number, p, stream);
}

void leave(Number number, const LeaveStep& p, Stream stream) {
  launch_step("leave_step", number, p, stream);
}

}  // namespace rotcell::cuda
