"""`sequence`: one direction of one layer over a whole sequence, as `reference.Cell.sequence` does.

On the CPU, and on GPUs if built for them, a kernel runs. For what a kernel cannot do (differentiate
twice, forward-mode AD, ``torch.func`` transforms, other devices) the reference runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rotcell.reference import NO_HOOKS, Cell, StateHooks, Weights

from .autograd import DERIVATIVES, differentiable_sequence
from .availability import lowers_float32, needs_reference, warn_of_missing_ops
from .by_reference import as_tokens, laid_out_as, sequence_by_reference
from .cell_ops import ACTIVATION_NUMBERS, CELL_OPS, CellArguments
from .private_torch import below_autograd, is_tracing
from .quantized import quantized_sequence

__all__ = ["any_requires_grad", "autocast", "sequence"]


def sequence(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
    gate_activation: str = "sigmoid",
    angle_activation: str = "sigmoid",
    batch_first: bool = False,
    hooks: StateHooks = NO_HOOKS,
    return_cells: bool = False,
) -> tuple[Tensor, ...]:
    """Run a sequence through one direction of one layer: see `reference.Cell.sequence`.

    Tokens are ``[N, I]`` and states ``[B, .]``, or in nn.LSTM's layout for one layer and direction,
    ``[T, B, I]`` and ``[1, B, .]``; then output and last states are returned in that layout, too.
    With `batch_first` the output of such input is ``[B, T, P]``. No result is a view. Cell states
    are ``[N, H]``, in the dtype that the kernel saves them in.
    """
    ops = CELL_OPS.get(cell.op_name)
    options = (reverse, gate_activation, angle_activation)
    if cell.is_quantized or ops is None:
        run = quantized_sequence if cell.is_quantized else _without_kernels
        return run(cell, x, states, weights, batch_sizes, options, batch_first, hooks, return_cells)
    device = x.device
    device_type = device.type  # kept: torch makes a string of it each time
    tensors: tuple[Any, ...] = (x, *states, *weights[: ops.num_weights])
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        tensors, hooks = autocast(device_type, tensors, hooks)
    if needs_reference(cell, device, device_type, tensors, hooks is not NO_HOOKS):
        given = ops.with_constants(cell.constants)
        return sequence_by_reference(
            given, tensors, batch_sizes, options, batch_first, hooks, return_cells
        )
    may_lower = device_type == "cpu" and x.dtype == torch.float32 and not cell.sees_rows
    if may_lower and lowers_float32():
        return _in_bfloat16(cell, tensors, batch_sizes, options, batch_first, hooks, return_cells)
    arguments = (
        *tensors, batch_sizes, reverse, ACTIVATION_NUMBERS[gate_activation],
        ACTIVATION_NUMBERS[angle_activation], *cell.constants,
    )  # fmt: skip
    extension = ops.extension(hooks, return_cells) if return_cells or hooks is not NO_HOOKS else ()
    op = (ops.extended if extension else ops.plain).forward.call
    needs_gradient = torch.is_grad_enabled() and any_requires_grad(tensors)
    compiling = torch.compiler.is_compiling()
    if compiling or is_tracing():
        # A trace is for any run, with or without gradients, so it saves nothing for them.
        flat = [as_tokens(t) for t in tensors[: ops.first_weight]]
        results = op(*flat, *arguments[len(flat) :], compiling and needs_gradient, *extension)
        return laid_out_as(x, states, ops.returned(results, return_cells), batch_first)
    # The ops are differentiable by themselves, but then each call takes the dispatcher on a detour
    # through Python. Below its autograd there is nothing but the kernel.
    if needs_gradient:
        derivative = DERIVATIVES[cell.op_name][bool(extension)]
        return differentiable_sequence(derivative, batch_first, extension, *arguments)
    with below_autograd():
        results = op(*arguments, False, *extension)
        if batch_first:
            results[0].transpose_(0, 1)
        return ops.returned(results, return_cells)


def _in_bfloat16(
    cell: Cell,
    tensors: tuple[Any, ...],
    batch_sizes: Tensor | None,
    options: tuple[bool, str, str],
    batch_first: bool,
    hooks: StateHooks,
    return_cells: bool,
) -> tuple[Tensor, ...]:
    """As `sequence`, for float32 tensors, computed in bfloat16."""
    tensors, hooks = _cast(tensors, hooks, {torch.float32: torch.bfloat16})
    x, states, weights = CELL_OPS[cell.op_name].split(tensors)
    results = sequence(
        cell, x, states, weights, batch_sizes, *options, batch_first, hooks, return_cells
    )
    return tuple(t.to(torch.float32) for t in results)


def _without_kernels(
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
    """As `sequence`, for a cell that has no compiled ops, or where nothing is compiled."""
    warn_of_missing_ops(cell)
    tensors, hooks = autocast(x.device.type, (x, *states, *weights), hooks)
    return sequence_by_reference(
        CellArguments(cell), tensors, batch_sizes, options, batch_first, hooks, return_cells
    )


def any_requires_grad(tensors: Sequence[Tensor | None]) -> bool:
    """Whether one of the tensors requires a gradient."""
    # Not any(): a generator takes longer than most searches here do.
    for tensor in tensors:  # noqa: SIM110
        if tensor is not None and tensor.requires_grad:
            return True
    return False


def autocast(
    device_type: str, tensors: tuple[Any, ...], hooks: StateHooks
) -> tuple[tuple[Any, ...], StateHooks]:
    """Cast all floats but float64 to the dtype of autocast, where it is on, as for nn.LSTM."""
    if device_type == "meta" or not torch.is_autocast_enabled(device_type):
        return tensors, hooks
    dtype = torch.get_autocast_dtype(device_type)
    return _cast(tensors, hooks, dict.fromkeys(_LOWERED_BY_AUTOCAST, dtype))


#: All floats but float64.
_LOWERED_BY_AUTOCAST = (torch.float32, torch.float16, torch.bfloat16)


def _cast(
    tensors: tuple[Any, ...], hooks: StateHooks, dtypes: dict[torch.dtype, torch.dtype]
) -> tuple[tuple[Any, ...], StateHooks]:
    """Cast the tensors of some dtypes to another."""

    def cast(values: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        return tuple(t if t is None else t.to(dtypes.get(t.dtype, t.dtype)) for t in values)

    return cast(tensors), hooks if hooks is NO_HOOKS else StateHooks(*cast(hooks))
