"""FLOP counts of the ops' matmuls, for torch.utils.flop_counter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.utils import flop_counter

from .cell_ops import CellOps

__all__ = ["register"]


def register(ops: CellOps) -> None:
    """Let torch.utils.flop_counter count a cell's matmuls, as it does those of other ops."""
    forward_names, backward_names = ops.plain.forward.arguments, ops.plain.backward.arguments

    # torch replaces every tensor by its shape. Other overloads only have more arguments.
    def forward(*shapes: Any, out_shape: Any = None, **_: Any) -> int:
        a = dict(zip(forward_names, shapes, strict=False))
        return _flops(a["x"], a["w_ih"], a.get("w_hh"), a.get("w_hr"))

    def backward(*shapes: Any, out_shape: Any = None, **_: Any) -> int:
        a = dict(zip(backward_names, shapes, strict=False))
        # The states' gradients repeat the matmuls with w_hh and w_hr. Those of the weights repeat
        # every matmul, and that of the input the one with w_ih.
        through_time = _flops(a["x"], a.get("w_hh"), a.get("w_hr"))
        with_x = _flops(a["x"], a["w_ih"])
        flops = through_time
        if a["needs_grad_x"]:
            flops += with_x
        if a["needs_grad_weights"]:
            flops += through_time + with_x
        return flops

    for op, formula in ((ops.plain.forward, forward), (ops.plain.backward, backward)):
        flop_counter.register_flop_formula(op.call.overloadpacket)(formula)


def _flops(x: Sequence[int], *weights: Sequence[int] | None) -> int:
    """FLOPs of the matmuls of every token of x with weights of these shapes; None is no weight."""
    elements = sum(shape[0] * shape[1] for shape in weights if shape is not None)
    return 2 * math.prod(x[:-1]) * elements
