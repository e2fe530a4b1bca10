"""`sequence` for cells with int8 weights: on the CPU, forward only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from rotcell import _libraries
from rotcell.reference import Cell, StateHooks
from rotcell.reference_int8 import INT8_CELLS, Int8Weights

from .availability import needs_reference, warn_of_missing_ops
from .by_reference import as_tokens, laid_out_as, sequence_by_reference
from .cell_ops import ACTIVATION_NUMBERS, CellArguments, Op
from .fake import check_devices
from .private_torch import below_autograd, is_tracing, register_derivative

__all__ = ["quantized_sequence"]


class Int8Op(CellArguments):
    """The op of a cell with int8 weights."""

    def __init__(self, name: str) -> None:
        cell = INT8_CELLS[name]
        self.op = Op(cell.name, "default")
        names = self.op.arguments
        super().__init__(cell, tuple(n for n in Int8Weights._fields if n in names))
        self.hooks = tuple(n for n in StateHooks._fields if n in names)
        self.has_cells = "cells" in self.op.results

    def fake(self, *values: Any) -> tuple[Tensor, ...]:
        """The shapes of the results."""
        check_devices(self.op.arguments, values)
        a = dict(zip(self.op.arguments, values, strict=True))
        x, states = a["x"], [a[name] for name in self.states]
        results = [x.new_empty(*x.shape[:-1], a["h0"].shape[-1])]
        results += [state.new_empty(state.shape) for state in states]
        if self.has_cells:
            tokens, hidden_size = math.prod(x.shape[:-1]), states[-1].shape[-1]
            results.append(x.new_empty((tokens, hidden_size) if a["return_cells"] else (0,)))
        return tuple(results)


def _refuse(ctx: Any, *grads: Tensor | None) -> NoReturn:
    raise RuntimeError(
        "a quantized layer cannot be trained or differentiated: its weights are int8. Call it in "
        "torch.no_grad(), or train the float32 layer that it was made from"
    )


class _Undifferentiable(torch.autograd.Function):
    """Copies of the first `count` tensors, which the others led to; any derivative is an error."""

    generate_vmap_rule = True

    @staticmethod
    def forward(count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.clone() for t in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None: ...

    backward = staticmethod(_refuse)
    jvp = staticmethod(_refuse)


_undifferentiable: Callable[..., tuple[Tensor, ...]] = _Undifferentiable.apply


#: Empty where nothing is compiled.
INT8_OPS = (
    {cell.name: Int8Op(name) for name, cell in INT8_CELLS.items()} if _libraries.load() else {}
)

for _op in INT8_OPS.values():
    torch.library.register_fake(_op.op.call, _op.fake)
    register_derivative(_op.op.call, _refuse)


def quantized_sequence(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Any],
    batch_sizes: Tensor | None,
    options: tuple[bool, str, str],
    batch_first: bool,
    hooks: StateHooks,
    return_cells: bool,
) -> tuple[Tensor, ...]:
    """The results of `sequence`, float32."""
    if x.device.type not in ("cpu", "meta"):
        raise RuntimeError(f"a quantized layer runs on the CPU only, got input on {x.device}")
    if torch.is_autocast_enabled("cpu"):
        x, states = x.float(), [state.float() for state in states]
        hooks = StateHooks(hooks.resets, *(t if t is None else t.float() for t in hooks[1:]))
    ops = INT8_OPS.get(cell.name)
    if ops is None:
        warn_of_missing_ops(cell)
    if ops is None or needs_reference(cell, x.device, x.device.type, (x, *states)):
        with torch.no_grad():
            results = sequence_by_reference(
                CellArguments(cell), (x, *states, *weights), batch_sizes, options, batch_first,
                hooks, return_cells,
            )  # fmt: skip
        if torch.compiler.is_compiling():
            return results
        return _undifferentiable(len(results), *results, x, *states)
    reverse, gate_activation, angle_activation = options
    arguments = (
        *weights[: ops.num_weights], batch_sizes, reverse, ACTIVATION_NUMBERS[gate_activation],
        ACTIVATION_NUMBERS[angle_activation],
        *(getattr(hooks, name) for name in ops.hooks), *([return_cells] if ops.has_cells else []),
    )  # fmt: skip
    count = 1 + len(states) + return_cells
    if torch.compiler.is_compiling() or is_tracing():
        flat = [as_tokens(t) for t in (x, *states)]
        return laid_out_as(x, states, ops.op.call(*flat, *arguments)[:count], batch_first)
    if torch.is_grad_enabled() and (x.requires_grad or any(s.requires_grad for s in states)):
        results = ops.op.call(x, *states, *arguments)  # backward will say what is wrong
    else:
        with below_autograd():
            results = ops.op.call(x, *states, *arguments)
    out, *rest = results[:count]
    return (out.transpose(0, 1) if batch_first else out), *rest
