"""Fake kernels: the shapes of the ops' results without data, for meta and fake tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .cell_ops import CellOps, Op
from .saved_format import saved_dtype

__all__ = ["check_devices", "register"]


def register(ops: CellOps) -> None:
    """Register the fake kernels of a cell's ops."""
    for forward, backward in filter(None, (ops.plain, ops.extended, ops.row_bias)):
        torch.library.register_fake(forward.call, FakeForward(ops, forward))
        torch.library.register_fake(backward.call, FakeBackward(ops, backward))


def check_devices(names: Sequence[str], arguments: Sequence[Any]) -> None:
    """Refuse tensors on different devices, with the error that the kernels raise.

    One tensor on "meta" makes the dispatcher call the fake kernel. Without this check it would
    return uninitialized tensors on the device of the input.
    """
    device = arguments[names.index("x")].device
    for name, argument in zip(names, arguments, strict=True):
        if not isinstance(argument, Tensor) or argument.device == device:
            continue
        if name != "batch_sizes":
            raise RuntimeError(f"rotcell: expected {name} on {device}, as x, got {argument.device}")
        if argument.is_meta:
            raise RuntimeError("rotcell: expected batch_sizes on cpu, got meta")


class FakeForward:
    """The fake kernel of a forward op."""

    def __init__(self, ops: CellOps, op: Op) -> None:
        self._ops = ops
        self._arguments = op.arguments

    def __call__(self, *values: Any) -> tuple[Tensor, ...]:
        check_devices(self._arguments, values)
        a = dict(zip(self._arguments, values, strict=True))
        x, save = a["x"], a["save"]
        states = [a[name] for name in self._ops.states]
        tokens = math.prod(x.shape[:-1])
        hidden_size = states[-1].shape[-1]
        widths = {"gates": self._ops.cell.saved_rows(hidden_size), "cells": hidden_size}
        kept = {"gates": save, "cells": save or a.get("return_cells", False)}
        return (
            x.new_empty(*x.shape[:-1], a["h0"].shape[-1]),
            *(state.new_empty(state.shape) for state in states),
            *(
                x.new_empty(
                    (tokens, widths[n]) if kept[n] else (0,), dtype=saved_dtype(self._ops.cell, x)
                )
                for n in self._ops.saved
            ),
        )


class FakeBackward:
    """The fake kernel of a backward op."""

    def __init__(self, ops: CellOps, op: Op) -> None:
        self._ops = ops
        self._arguments, self._results = op.arguments, op.results

    def __call__(self, *values: Any) -> tuple[Tensor, ...]:
        check_devices(self._arguments, values)
        a = dict(zip(self._arguments, values, strict=True))
        x = a["x"]
        hidden_size = a[self._ops.states[-1]].shape[-1]
        rows = self._ops.cell.saved_rows(hidden_size)
        shapes = {"x": x.shape if a["needs_grad_x"] else (0,)}
        shapes |= {name: a[name].shape for name in self._ops.states}
        weights = {name: a[name] for name in self._ops.weights if name in self._results}
        of_weights = {name: (0,) if w is None else w.shape for name, w in weights.items()}
        of_weights["bias"] = (self._ops.cell.bias_columns(hidden_size),)
        shapes |= of_weights if a["needs_grad_weights"] else dict.fromkeys(of_weights, (0,))
        shapes["row_bias"] = (a["h0"].shape[-2], rows)
        return tuple(x.new_empty(shapes[name]) for name in self._results)
