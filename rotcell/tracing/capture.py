"""What the kernels save for backward, split into named parts.

All of tracing that knows the ops and how they lay out what they save is in this file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rotcell import ops
from rotcell.base import RotRNN
from rotcell.layers import RotLSTM
from rotcell.reference import ROTATION, gate_sizes, rotate

from .layout import Layout


@dataclass(frozen=True)
class Captured:
    """One direction of one layer; tokens are flat, ``[N, ...]``, in the kernels' number type."""

    layout: Layout
    reverse: bool
    gates: dict[str, Tensor]  # each [N, H], after its activation
    angles: Tensor | None  # [N, H // 2], radians; None if the cell does not rotate
    output: Tensor  # [N, P]

    @property
    def initial_memory(self) -> Tensor:
        """``[B, H]``, what `memory` is before the first step."""
        raise NotImplementedError

    @property
    def memory(self) -> Tensor:
        """``[N, H]``, what the next step starts from."""
        raise NotImplementedError

    @property
    def kept(self) -> Tensor:
        """``[N, H]``, what a gate leaves of the memory that the step started from."""
        raise NotImplementedError

    @property
    def before_rotation(self) -> Tensor:
        """``[N, H]``, what is rotated."""
        raise NotImplementedError

    @property
    def after_rotation(self) -> Tensor:
        """``[N, H]``, what came of it."""
        raise NotImplementedError

    @property
    def previous_memory(self) -> Tensor:
        """``[N, H]``, what each step started from."""
        return self.layout.previous(self.memory, self.initial_memory, self.reverse)


@dataclass(frozen=True)
class CapturedLSTM(Captured):
    """c = U(u) d of d = f c + i g."""

    cells: Tensor  # [N, H]
    c_0: Tensor  # [B, H]

    @property
    def initial_memory(self) -> Tensor:
        return self.c_0

    @property
    def memory(self) -> Tensor:
        return self.cells

    @property
    def kept(self) -> Tensor:
        return self.gates["f"] * self.previous_memory

    @property
    def before_rotation(self) -> Tensor:
        return self.cells if self.angles is None else rotate(self.cells, -self.angles)

    @property
    def after_rotation(self) -> Tensor:
        return self.cells


@dataclass(frozen=True)
class CapturedGRU(Captured):
    """The candidate sees U(u) d of d = h r; the memory is the output."""

    h_0: Tensor  # [B, H]

    @property
    def initial_memory(self) -> Tensor:
        return self.h_0

    @property
    def memory(self) -> Tensor:
        return self.output

    @property
    def kept(self) -> Tensor:
        return self.before_rotation

    @property
    def before_rotation(self) -> Tensor:
        return self.gates["r"] * self.previous_memory

    @property
    def after_rotation(self) -> Tensor:
        before = self.before_rotation
        return before if self.angles is None else rotate(before, self.angles)


@dataclass(frozen=True)
class Capture:
    """A run of a layer."""

    cell: str
    layout: Layout
    output: Any  # as the layer gives it
    state: Any
    directions: list[Captured]  # in the order of h_n


@torch.no_grad()
def capture(layer: nn.Module, x: Tensor | PackedSequence, state: Any = None) -> Capture:
    """Run a layer as its own forward does, keeping what the kernels save."""
    cell = type(layer).__name__
    rotates = not isinstance(layer, nn.LSTM)
    if isinstance(layer, nn.LSTM):
        layer = _as_rot_lstm(layer)
    if not isinstance(layer, RotRNN):
        raise TypeError(
            "layer must be a RotLSTM, a RotGRU or an nn.LSTM"
            + (", and nn.GRU resets after the product" if isinstance(layer, nn.GRU) else "")
            + f": got {type(layer).__name__}"
        )
    if not isinstance(x, (Tensor, PackedSequence)):
        raise TypeError(f"x must be a tensor or a PackedSequence, got {type(x).__name__}")
    found: list[Captured] = []
    # A shallow copy shares the parameters; all but running a direction is the layer's own code.
    twin: Any = copy.copy(layer)
    layout: list[Layout] = []

    def run_direction(
        x: Tensor,
        state: tuple[Tensor, ...],
        weights: Sequence[Tensor],
        batch_sizes: Tensor | None,
        reverse: bool,
    ) -> tuple[Tensor, ...]:
        w_ih, w_hh, *rest = weights
        w_hr = rest.pop() if layer.proj_size else None
        b_ih, b_hh = rest if layer.bias else (None, None)
        tensors = (x, *state, w_ih, w_hh, b_ih, b_hh)
        tensors = ops._autocast(x.device.type, *tensors, w_hr)
        if ops._needs_reference(x.device.type, tensors):
            raise RuntimeError(
                "trace reads what the kernels save, and here the layer would run on the reference "
                f"code (device {x.device.type!r}, or inside use_reference() or a transform)"
            )
        if not layout:
            layout.append(Layout.of(given, layer.batch_first))
        if isinstance(layer, RotLSTM):
            out, *last, gates, cells = ops._rot_lstm(*tensors, batch_sizes, reverse, True)
            named, angles = _by_gate(gates, layer._gates, layer.hidden_size, rotates)
            c_0 = state[1]
            found.append(CapturedLSTM(layout[0], reverse, named, angles, out, cells, c_0))
        else:
            out, *last, gates = ops._rot_gru(*tensors[:-1], batch_sizes, reverse, True)
            named, angles = _by_gate(gates, layer._gates, layer.hidden_size, rotates)
            found.append(CapturedGRU(layout[0], reverse, named, angles, out, state[0]))
        return (out, *last)

    given = x
    twin._run_direction = run_direction
    output, last_state = twin.forward(x, state)
    return Capture(cell, layout[0], output, last_state, found)


def _by_gate(
    saved: Tensor, gates: Sequence[str], hidden_size: int, rotates: bool
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Views of the saved tensor. It holds sigmoids for the angles, which become radians."""
    parts = saved.split_with_sizes(gate_sizes(gates, hidden_size), dim=1)
    named = dict(zip(gates, parts, strict=True))
    share_of_turn = named.pop(ROTATION)
    return named, share_of_turn.mul_(2 * math.pi) if rotates else None


def _as_rot_lstm(lstm: nn.LSTM) -> RotLSTM:
    """The same layer with the rotation off, biases of zero added if it has none."""
    if lstm.bias:
        return RotLSTM.from_lstm(lstm)
    weights = dict(lstm.state_dict())
    for name, weight in lstm.state_dict().items():
        if name.startswith(("weight_ih", "weight_hh")):
            weights[name.replace("weight", "bias")] = weight.new_zeros(weight.shape[0])
    rotating = RotLSTM.from_lstm(weights, batch_first=lstm.batch_first, dropout=lstm.dropout)
    return rotating.train(lstm.training)


__all__ = ["Capture", "Captured", "capture"]
