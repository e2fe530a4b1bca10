#include "torch/sequence.h"

namespace rotcell::ops {

Sequence sequence_of(const Tensor& batch_sizes, int64_t tokens, int64_t batch, bool reverse) {
  if (!batch_sizes) {
    check(batch == 0 ? tokens == 0 : tokens % batch == 0, "expected x with a multiple of ", batch,
          " rows (one for each row of h0 and step), got ", tokens);
    return Sequence::padded(batch == 0 ? 0 : tokens / batch, batch, reverse);
  }
  check(batch_sizes.dim() == 1 && batch_sizes.dtype() == int64() && batch_sizes.device().is_cpu(),
        "expected batch_sizes to be a 1-dimensional int64 tensor on the CPU");
  // Every step has a row at least. More steps than rows are refused before anything is copied:
  // an expanded tensor of any length takes no memory.
  const int64_t count = batch_sizes.numel();
  check(count <= tokens, "expected batch_sizes with at most ", tokens,
        " steps, as x has rows, got ", count);
  const Tensor contiguous = batch_sizes.as_contiguous();
  const int64_t* begin = contiguous.const_data<int64_t>();
  std::vector<int64_t> sizes(begin, begin + count);
  int64_t sum = 0;
  for (size_t step = 0; step < sizes.size(); ++step) {
    const int64_t rows = sizes[step];
    check(rows > 0 && (step == 0 || rows <= sizes[step - 1]),
          "expected batch_sizes to be positive and never increasing, got ", rows, " at step ",
          step);
    check(rows <= tokens - sum, "batch_sizes sum to more than the ", tokens, " rows of x");
    sum += rows;
  }
  const int64_t first = sizes.empty() ? 0 : sizes[0];
  check(sizes.empty() || first == batch, "expected h0 with ", first, " rows (batch_sizes[0]), got ",
        batch);
  check(sum == tokens, "batch_sizes sum to ", sum, ", but x has ", tokens, " rows");
  return Sequence::packed(std::move(sizes), reverse);
}

}  // namespace rotcell::ops
