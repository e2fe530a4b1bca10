"""The compiled ops as one differentiable function, `sequence`, for every cell.

The ops themselves, ``torch.ops.rotcell.NAME`` and ``NAME_backward`` for every cell, come from the
compiled library. This package registers what else torch needs to know about them:

- `cell_ops`: the ops of a cell, and where their arguments and results are, by name.
- `sequences`: `sequence`, which runs one direction of one layer; `row_bias`: the same with a bias
  per row of the batch; `saved`: the same with what the kernels save for backward.
- `quantized`: the same with int8 weights.
- `autograd`: derivatives. `fake`: shapes without data. `flops`: counts for torch's FLOP counter.
- `availability`: when the reference runs instead of a kernel. `by_reference`: how it does.
- `private_torch`: every private API of torch that rotcell uses.
"""

from . import autograd, fake, flops
from .availability import use_reference
from .by_reference import as_tokens, laid_out_as
from .cell_ops import CELL_OPS
from .row_bias import append_to_every_token, sequence_with_row_bias, takes_row_bias
from .saved import gradients_from_saved, kernel_with_saved, sequence_with_saved
from .sequences import sequence

__all__ = [
    "append_to_every_token",
    "as_tokens",
    "gradients_from_saved",
    "kernel_with_saved",
    "laid_out_as",
    "sequence",
    "sequence_with_row_bias",
    "sequence_with_saved",
    "takes_row_bias",
    "use_reference",
]

for _ops in CELL_OPS.values():
    autograd.register(_ops)
    fake.register(_ops)
    flops.register(_ops)
