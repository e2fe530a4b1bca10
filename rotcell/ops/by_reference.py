"""Calls and gradients by the reference, with the arguments of the ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rotcell.reference import StateHooks

from .cell_ops import ACTIVATION_NAMES, CellArguments, CellOps
from .fake import check_devices

__all__ = ["as_tokens", "gradients_by_reference", "laid_out_as", "sequence_by_reference"]


def as_tokens(tensor: Tensor) -> Tensor:
    """``[T, B, .]``, or the state ``[1, B, .]`` of one layer and direction, as ``[N, .]``."""
    return tensor if tensor.dim() == 2 else tensor.flatten(0, 1)


def laid_out_as(
    x: Tensor, states: Sequence[Tensor], results: Sequence[Tensor], batch_first: bool = False
) -> tuple[Tensor, ...]:
    """Output ``[N, P]`` and last states ``[B, .]``, as input and first states are laid out.

    Results after these stay as they are.
    """
    out, *rest = results
    if x.dim() == 3:
        out = out.unflatten(0, x.shape[:2])
        out = out.transpose(0, 1) if batch_first else out
    if states[0].dim() == 3:
        # Stacked, because views would reject detach_(), which users of nn.LSTM call.
        rest[: len(states)] = [torch.stack([state]) for state in rest[: len(states)]]
    return out, *rest


def sequence_by_reference(
    ops: CellArguments,
    tensors: Sequence[Any],
    batch_sizes: Tensor | None,
    options: tuple[bool, str, str],
    batch_first: bool,
    hooks: StateHooks,
    return_cells: bool,
) -> tuple[Tensor, ...]:
    """The results of `sequence`."""
    check_devices((*ops.tensors, *StateHooks._fields), (*tensors, *hooks))
    x, states, weights = ops.split(tensors)
    tokens, rows = as_tokens(x), [as_tokens(state) for state in states]
    found = ops.cell.sequence(tokens, rows, weights, batch_sizes, *options, hooks, return_cells)
    return laid_out_as(x, states, found, batch_first)


def gradients_by_reference(
    ops: CellOps,
    tensors: Sequence[Tensor | None],
    batch_sizes: Tensor | None,
    options: Sequence[Any],
    hooks: StateHooks,
    return_cells: bool,
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of the tensors that need them, which can be differentiated again."""
    reverse, gate_activation, angle_activation, *constants = options
    # A view for each input: the same tensor may come in twice, with a gradient for each place.
    views = [None if t is None else t.view_as(t) for t in tensors]
    names = (reverse, ACTIVATION_NAMES[gate_activation], ACTIVATION_NAMES[angle_activation])
    given = ops.with_constants(constants)
    outputs = sequence_by_reference(given, views, batch_sizes, names, False, hooks, return_cells)
    reached = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None]
    targets = [v for v, n in zip(views, needed, strict=True) if n and v is not None]
    if not reached:
        return tuple(None for _ in tensors)
    found = iter(
        torch.autograd.grad(
            [o for o, _ in reached],
            targets,
            [g for _, g in reached],
            create_graph=True,
            allow_unused=True,
        )
    )
    return tuple(next(found) if n else None for n in needed)
