"""What the kernels save for backward, split into named parts.

All of tracing that knows the ops and how they lay out what they save is in this file.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rotcell import ops
from rotcell.base import Layer, with_context_beside
from rotcell.layers import LSTM, ClassicGRU, RotGRU, RotLSTM
from rotcell.reference import Cell, StateChanges, Weights, rotate

from .layout import Layout


@dataclass(frozen=True)
class Captured:
    """One direction of one layer; tokens are flat, ``[N, ...]``, in the kernels' number type."""

    layout: Layout
    reverse: bool
    gates: dict[str, Tensor]  # each [N, H], after its activation
    angles: Tensor | None  # [N, H // 2], radians; None if the cell does not rotate
    output: Tensor  # [N, P]
    fresh: Tensor | None  # bool [N, 1]: steps that start from zero; None if no episode begins

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
        previous = self.layout.previous(self.memory, self.initial_memory, self.reverse)
        return previous if self.fresh is None else previous.masked_fill(self.fresh, 0)


@dataclass(frozen=True)
class CapturedLSTM(Captured):
    """c = U(u) d of d = f c + i g."""

    cells: Tensor  # [N, H]
    c_0: Tensor  # [B, H]
    zoneout: bool  # cells hold a share of what was there before

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
        if self.zoneout:
            return self.kept + self.gates["i"] * self.gates["g"]
        return self.cells if self.angles is None else rotate(self.cells, -self.angles)

    @property
    def after_rotation(self) -> Tensor:
        if self.zoneout:
            before = self.before_rotation
            return before if self.angles is None else rotate(before, self.angles)
        return self.cells


@dataclass(frozen=True)
class CapturedGRU(Captured):
    """The candidate sees U(u) d of d = h r; the memory is the output."""

    h_0: Tensor  # [B, H]
    dropout: Tensor | None  # [N, H], factors of h where it enters the products

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
        before = self.gates["r"] * self.previous_memory
        return before if self.dropout is None else before * self.dropout

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
def capture(
    layer: nn.Module,
    x: Tensor | PackedSequence,
    state: Any = None,
    resets: Tensor | PackedSequence | None = None,
    context: Tensor | None = None,
) -> Capture:
    """Run a layer as its own forward does, keeping what the kernels save."""
    cell_name = type(layer).__name__
    if isinstance(layer, nn.LSTM):
        layer = _as_own_lstm(layer)
    if not isinstance(layer, Layer):
        names = ", ".join(kind.__name__ for kind in (RotLSTM, RotGRU, LSTM, ClassicGRU))
        raise TypeError(
            f"layer must be a {names} or an nn.LSTM"
            + (", and nn.GRU resets after the product" if isinstance(layer, nn.GRU) else "")
            + f": got {cell_name}"
        )
    if not isinstance(x, (Tensor, PackedSequence)):
        raise TypeError(f"x must be a tensor or a PackedSequence, got {type(x).__name__}")
    found: list[Captured] = []
    layout: list[Layout] = []

    def run_direction(
        given: Tensor,
        given_states: tuple[Tensor, ...],
        weights: Weights,
        batch_sizes: Tensor | None,
        reverse: bool,
        batch_first: bool,
        changes: StateChanges,
        return_cells: bool,
    ) -> tuple[Tensor, ...]:
        if not layout:
            layout.append(Layout.of(x, layer.batch_first))
        tokens, states = ops.as_tokens(given), tuple(map(ops.as_tokens, given_states))
        arguments = (
            tokens, states, weights, batch_sizes, reverse, layer.gates, layer.angle_gates, changes,
        )  # fmt: skip
        results = ops.sequence_with_saved(layer._cell, *arguments)
        if results is None:
            raise RuntimeError(
                "trace reads what the kernels save, and here the layer would run on the reference "
                f"code (device {tokens.device.type!r}, or inside use_reference() or a transform)"
            )
        (out, *last), (gates, *memory) = results
        named, angles = _by_gate(gates, layer._cell, layer.hidden_size)
        fresh = _fresh_steps(changes.resets, layout[0], len(states[0]), reverse)
        common = (layout[0], reverse, named, angles, out, fresh)
        if memory:
            zoneout = changes.zoneout_c is not None
            found.append(CapturedLSTM(*common, memory[0], states[1], zoneout))
        else:
            found.append(
                CapturedGRU(*common, states[0], _mask_of_tokens(changes, batch_sizes, out))
            )
        return ops.laid_out_as(given, given_states, (out, *last), batch_first)

    # A shallow copy shares the parameters; all but running a direction is the layer's own code.
    twin: Any = copy.copy(layer)
    twin._run_direction = run_direction
    twin._run_with_context = with_context_beside(run_direction)
    output, last_state = twin.forward(x, state, resets=resets, context=context)
    return Capture(cell_name, layout[0], output, last_state, found)


def _fresh_steps(resets: Tensor | None, layout: Layout, rows: int, reverse: bool) -> Tensor | None:
    """Which steps start from zero, ``[N, 1]``, given where episodes begin, ``[N]``."""
    if resets is None:
        return None
    begins = resets.unsqueeze(1)
    # Backwards a step comes after the first of the next episode.
    return layout.previous(begins, begins.new_zeros(rows, 1), reverse) if reverse else begins


def _mask_of_tokens(
    changes: StateChanges, batch_sizes: Tensor | None, out: Tensor
) -> Tensor | None:
    """Recurrent dropout's factors for every token, ``[N, H]``."""
    mask = changes.recurrent_dropout
    if mask is None:
        return None
    if batch_sizes is None:
        return mask.repeat(len(out) // len(mask), 1)
    return torch.cat([mask[:rows] for rows in batch_sizes.tolist()])


def _by_gate(
    saved: Tensor, cell: Cell, hidden_size: int
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Views of the saved tensor. It holds shares of a turn for the angles, which become radians."""
    parts = saved.split_with_sizes(cell.gate_sizes(hidden_size), dim=1)
    named = dict(zip(cell.gates, parts, strict=True))
    if not cell.rotates:
        return named, None
    (angles,) = (named.pop(gate) for gate in cell.rotation.gates)
    return named, angles.mul_(2 * math.pi)


def _as_own_lstm(lstm: nn.LSTM) -> LSTM:
    """Our layer with the same parameters, which have the same names and shapes."""
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout",
             "bidirectional", "proj_size")  # fmt: skip
    own = LSTM(**{name: getattr(lstm, name) for name in names}, device="meta")
    for name in dict(own.named_parameters()):
        setattr(own, name, getattr(lstm, name))
    return own.train(lstm.training)


__all__ = ["Capture", "Captured", "capture"]
