"""Calls that return what the kernels save for backward, or start from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from rotcell.reference import NO_HOOKS, Cell, StateHooks, Weights
from rotcell.reference_rows import RowCell

from .autograd import BackwardCall
from .availability import needs_reference
from .cell_ops import ACTIVATION_NUMBERS, CELL_OPS, CellArguments
from .private_torch import below_autograd
from .saved_format import as_activations, as_saved, saved_dtype
from .sequences import autocast

__all__ = ["gradients_from_saved", "kernel_with_saved", "sequence_with_saved"]


def sequence_with_saved(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    batch_sizes: Tensor | None,
    reverse: bool,
    gate_activation: str,
    angle_activation: str,
    hooks: StateHooks = NO_HOOKS,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]] | None:
    """As `sequence`, without gradients, and with what the kernel saves for backward.

    That is the gates after activation, ``[N, rows]``, angles as fractions of a turn, and for each
    state but the output its value after every step. None where the reference would run instead of
    a kernel, and for a cell of `rotcell.reference_rows` that is not an LSTM. Of those LSTMs the
    kernels do not save the gates, so the reference computes them.
    """
    device_type = x.device.type
    if cell.is_quantized:
        raise ValueError(
            "a quantized layer keeps no gates to look at: trace the float32 layer it was made from"
        )
    if isinstance(cell, RowCell):
        given, hooks = autocast(device_type, (x, *states, *weights), hooks)
        return cell.sequence_with_gates(
            *CellArguments(cell).split(given), batch_sizes, reverse, gate_activation,
            angle_activation, hooks,
        )  # fmt: skip
    ops = CELL_OPS.get(cell.op_name)
    if ops is None:
        return None
    tensors: tuple[Any, ...] = (x, *states, *weights[: ops.num_weights])
    tensors, hooks = autocast(device_type, tensors, hooks)
    if needs_reference(cell, x.device, device_type, tensors, hooks is not NO_HOOKS):
        return None
    return kernel_with_saved(
        cell, *ops.split(tensors), batch_sizes, reverse, gate_activation, angle_activation, hooks
    )


def kernel_with_saved(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    batch_sizes: Tensor | None,
    reverse: bool,
    gate_activation: str,
    angle_activation: str,
    hooks: StateHooks = NO_HOOKS,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """As `sequence_with_saved`, always by the kernel."""
    ops = CELL_OPS[cell.op_name]
    tensors = (x, *states, *weights[: ops.num_weights])
    options = reverse, ACTIVATION_NUMBERS[gate_activation], ACTIVATION_NUMBERS[angle_activation]
    extension = ops.extension(hooks, False)
    forward = ops.overload(extension).forward.call
    with below_autograd():
        results = forward(*tensors, batch_sizes, *options, True, *extension)
    saved = as_activations(cell, results[len(ops.results) :], states[-1].shape[-1])
    return ops.returned(results, False), saved


def gradients_from_saved(
    cell: Cell,
    grads: Sequence[Tensor | None],
    x: Tensor,
    states: Sequence[Tensor],
    weights: Weights,
    batch_sizes: Tensor | None,
    reverse: bool,
    gate_activation: str,
    angle_activation: str,
    out: Tensor,
    saved: Sequence[Tensor],
    hooks: StateHooks = NO_HOOKS,
) -> tuple[Tensor | None, ...]:
    """Gradients of x, states and weights by the kernel, from those of output and last states.

    `out` and `saved` are what `sequence_with_saved` returned.
    """
    ops = CELL_OPS[cell.op_name]
    tensors = (x, *states, *weights[: ops.num_weights])
    options = reverse, ACTIVATION_NUMBERS[gate_activation], ACTIVATION_NUMBERS[angle_activation]
    needed = [t is not None for t in tensors]
    saved = as_saved(cell, saved, states[-1].shape[-1], saved_dtype(cell, x))
    given = hooks[: len(ops.hooks)] if hooks is not NO_HOOKS else ()
    backward = BackwardCall(ops, ops.overload(given))
    return backward(grads, tensors, batch_sizes, options, out, saved, needed, given)
