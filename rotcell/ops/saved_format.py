"""The format in which the kernels save gates and cell states for backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rotcell import _libraries
from rotcell.reference import FIXED_ACTIVATIONS, Cell

__all__ = ["as_activations", "as_saved", "saved_dtype"]

_HALF = (torch.float16, torch.bfloat16)

#: Device types whose kernels save gates and cell states of fp16 and bf16 layers in that dtype.
#: CPU kernels do so for bf16 if they compute in it, and otherwise save in float32. In fp16 and
#: bf16 a gate above 0.5 whose values lie between 0 and 1 is saved as its distance from 1 with the
#: sign flipped, because these dtypes are too coarse near 1.
_SAVES_HALVES = {"cuda"}


def saved_dtype(cell: Cell, x: Tensor) -> torch.dtype:
    """The dtype that a kernel of a cell saves in, given its input."""
    if x.dtype not in _HALF or x.device.type in _SAVES_HALVES:
        return x.dtype
    in_bfloat16 = x.dtype == torch.bfloat16 and x.device.type == "cpu"
    in_bfloat16 = in_bfloat16 and not cell.sees_rows  # such cells run in float32
    return x.dtype if in_bfloat16 and _libraries.computes_in_bfloat16() else torch.float32


def as_activations(cell: Cell, saved: Sequence[Tensor], hidden_size: int) -> tuple[Tensor, ...]:
    """What a kernel saved, as activations and values of the states."""
    if saved[0].dtype not in _HALF:
        return tuple(saved)
    gates, *rest = [t.float() for t in saved]
    for columns in _fractions(cell, gates, hidden_size):
        columns.copy_(torch.where(torch.signbit(columns), 1 + columns, columns))
    return gates, *rest


def as_saved(
    cell: Cell, activations: Sequence[Tensor], hidden_size: int, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Activations and values of the states as a kernel saves them in this dtype."""
    if dtype not in _HALF:
        return tuple(activations)
    gates, *rest = activations
    gates = gates.clone()
    for columns in _fractions(cell, gates, hidden_size):
        columns.copy_(torch.where(columns > 0.5, -(1 - columns), columns))
    return tuple(t.to(dtype) for t in (gates, *rest))


def _fractions(cell: Cell, gates: Tensor, hidden_size: int) -> Iterator[Tensor]:
    """The columns of the gates whose values lie between 0 and 1, as a layer's choices all do."""
    for gate in cell.gates:
        if cell.activations[gate] not in FIXED_ACTIVATIONS:
            yield gates[:, cell.rows_of(gate, hidden_size)]
