// How work is shared out among threads.
#pragma once

#include <functional>
#include <vector>

#include "cpu/kernels.h"

namespace rotcell::ops {

// Runs body(share) for all shares of a work on this many elements, on as many threads as it is
// worth.
void for_shares(int64_t elements, const std::function<void(cpu::Share)>& body);

// Runs body(begin, end) on ranges of rows, multiples of row_tile but for the last, likewise.
void for_row_tiles(int64_t rows, int64_t row_tile, int64_t multiplications_per_row,
                   const std::function<void(int64_t, int64_t)>& body);

// What decides how many threads work on a layer, and on what.
struct LayerSizes {
  int64_t tokens, batch, hidden;
  int64_t weights, weight_bytes;  // how many a step multiplies each row with; bytes of each
  int64_t row_tile, unit_tile;    // of the kernels
  bool units_can_be_shared;
};

// Every thread carries a range of rows through the sequence. With fewer rows than threads, or with
// few rows and large weights, several threads work on the same rows, each on a range of units.
class Sharing {
 public:
  explicit Sharing(const LayerSizes& sizes);

  // For kernels of type T; sizes are those of a cell's arguments.
  template <class T, class Sizes>
  static Sharing of(const Sizes& sizes, bool units_can_be_shared) {
    const cpu::Kernels<T>& kernels = cpu::kernels<T>();
    return Sharing({sizes.tokens, sizes.batch, sizes.hidden, sizes.recurrent_weights(), sizeof(T),
                    kernels.row_tile, kernels.unit_tile, units_can_be_shared});
  }

  const std::vector<cpu::UnitRange>& units() const { return units_; }
  bool units_are_shared() const { return units_.size() > 1; }

  // Runs body for all that there is to do on these steps.
  void run(const cpu::Steps& steps, const std::function<void(const cpu::Work&)>& body) const;

 private:
  int64_t row_tile_, row_threads_;
  std::vector<cpu::UnitRange> units_;
};

}  // namespace rotcell::ops
