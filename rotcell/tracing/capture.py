"""What the kernels save for the backward pass, split into named parts.

All of tracing that knows the ops and how they lay out what they save is in this file.
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rotcell import ops
from rotcell.layers import LSTM
from rotcell.layers.layer import DirectionCall, Layer
from rotcell.reference import Cell, Rotation, StateHooks
from rotcell.reference_rows import RowCell

from .layout import Layout


@dataclass(frozen=True)
class Captured:
    """One direction of one layer; tokens are flat, ``[N, ...]``, in the kernels' dtype."""

    layout: Layout
    reverse: bool
    gates: dict[str, Tensor]  # each [N, H], after its activation
    rotation: Rotation
    angles: Tensor | None  # [N, angles], radians; None if the cell does not rotate
    output: Tensor  # [N, P]
    fresh: Tensor | None  # bool [N, 1]: steps that start from zero; None if no episode begins

    @property
    def initial_state(self) -> Tensor:
        """``[B, H]``, what `state` is before the first step."""
        raise NotImplementedError

    @property
    def state(self) -> Tensor:
        """``[N, H]``, what the next step starts from."""
        raise NotImplementedError

    @property
    def kept(self) -> Tensor:
        """``[N, H]``, what a gate leaves of the state that the step started from."""
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
    def previous_state(self) -> Tensor:
        """``[N, H]``, what each step started from."""
        previous = self.layout.previous(self.state, self.initial_state, self.reverse)
        return previous if self.fresh is None else previous.masked_fill(self.fresh, 0)


@dataclass(frozen=True)
class CapturedLSTM(Captured):
    """c = U(u) d of d = f c + i g."""

    cells: Tensor  # [N, H]
    c_0: Tensor  # [B, H]
    zoneout: bool  # whether cells are mixed with the old ones

    @property
    def initial_state(self) -> Tensor:
        return self.c_0

    @property
    def state(self) -> Tensor:
        return self.cells

    @property
    def kept(self) -> Tensor:
        return self.gates["f"] * self.previous_state

    @property
    def before_rotation(self) -> Tensor:
        if self.zoneout:
            return self.kept + self.gates["i"] * self.gates["g"]
        return self.cells if self.angles is None else self.rotation.undo(self.cells, self.angles)

    @property
    def after_rotation(self) -> Tensor:
        if self.zoneout:
            before = self.before_rotation
            return before if self.angles is None else self.rotation.turn(before, self.angles)
        return self.cells


@dataclass(frozen=True)
class CapturedGRU(Captured):
    """The candidate sees U(u) d of d = h r; the state is the output.

    In a `GRU`, which resets after its matmul, h r is shown as well but enters no matmul.
    """

    h_0: Tensor  # [B, H]
    dropout: Tensor | None  # [N, H], factors of h where it enters the matmuls

    @property
    def initial_state(self) -> Tensor:
        return self.h_0

    @property
    def state(self) -> Tensor:
        return self.output

    @property
    def kept(self) -> Tensor:
        return self.before_rotation

    @property
    def before_rotation(self) -> Tensor:
        before = self.gates["r"] * self.previous_state
        return before if self.dropout is None else before * self.dropout

    @property
    def after_rotation(self) -> Tensor:
        before = self.before_rotation
        return before if self.angles is None else self.rotation.turn(before, self.angles)


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
        given = f"nn.{cell_name}" if type(layer).__module__.startswith("torch.nn.") else cell_name
        advice = ": load its state_dict into a rotcell.GRU" if isinstance(layer, nn.GRU) else ""
        raise TypeError(
            "layer must be a RotLSTM, LinearRotLSTM, RotGRU, LSTM, GRU, ClassicGRU or nn.LSTM, got "
            f"{given}{advice}"
        )
    if isinstance(layer._cell, RowCell) and not layer._cell.names_gates:
        raise TypeError(f"trace needs a layer with gates and angles per timestep, got {cell_name}")
    if not isinstance(x, (Tensor, PackedSequence)):
        raise TypeError(f"x must be a tensor or a PackedSequence, got {type(x).__name__}")
    recorder = _Recorder(x, layer.batch_first)
    # A shallow copy shares the parameters, and leaves the layer itself to its other users.
    twin: Any = copy.copy(layer)
    twin.direction_runner = recorder
    output, last_state = twin.forward(x, state, resets=resets, context=context)
    return Capture(cell_name, recorder.layout, output, last_state, recorder.directions)


class _Recorder:
    """Runs the directions of a layer, and keeps what the kernels save for backward."""

    def __init__(self, x: Tensor | PackedSequence, batch_first: bool) -> None:
        self._x, self._batch_first = x, batch_first
        self.directions: list[Captured] = []

    @functools.cached_property
    def layout(self) -> Layout:
        """Asked for once the layer has checked its input."""
        return Layout.of(self._x, self._batch_first)

    def __call__(self, call: DirectionCall) -> tuple[Tensor, ...]:
        tokens, states = ops.as_tokens(call.x), tuple(map(ops.as_tokens, call.states))
        results = ops.sequence_with_saved(
            call.cell, tokens, states, call.weights, call.batch_sizes, call.reverse,
            call.gate_activation, call.angle_activation, call.hooks,
        )  # fmt: skip
        if results is None:
            raise RuntimeError(
                "trace reads what the kernels save, but here the layer would run on the reference "
                f"code (device {tokens.device.type!r}, or inside use_reference() or a transform, "
                f"or without kernels; the cell is {call.cell.name!r})"
            )
        (out, *last), (gates, *cells) = results
        self.directions.append(self._captured(call, states, out, gates, cells))
        return ops.laid_out_as(call.x, call.states, (out, *last), call.batch_first)

    def _captured(
        self,
        call: DirectionCall,
        states: tuple[Tensor, ...],
        out: Tensor,
        gates: Tensor,
        cells: list[Tensor],
    ) -> Captured:
        named, angles = _by_gate(gates, call.cell, call.states[-1].shape[-1])
        fresh = _fresh_steps(call.hooks.resets, self.layout, len(states[0]), call.reverse)
        common = (self.layout, call.reverse, named, call.cell.rotation, angles, out, fresh)
        if cells:
            has_zoneout = call.hooks.zoneout_c is not None
            return CapturedLSTM(*common, cells[0], states[1], has_zoneout)
        return CapturedGRU(*common, states[0], _mask_of_tokens(call.hooks, call.batch_sizes, out))


def _fresh_steps(resets: Tensor | None, layout: Layout, rows: int, reverse: bool) -> Tensor | None:
    """Which steps start from zero, ``[N, 1]``, given where episodes begin, ``[N]``."""
    if resets is None:
        return None
    begins = resets.unsqueeze(1)
    # In reverse a step follows the first step of the next episode.
    return layout.previous(begins, begins.new_zeros(rows, 1), reverse) if reverse else begins


def _mask_of_tokens(hooks: StateHooks, batch_sizes: Tensor | None, out: Tensor) -> Tensor | None:
    """Recurrent dropout's factors for every token, ``[N, H]``."""
    mask = hooks.recurrent_dropout
    if mask is None:
        return None
    if batch_sizes is None:
        return mask.repeat(len(out) // len(mask), 1)
    return torch.cat([mask[:rows] for rows in batch_sizes.tolist()])


def _by_gate(
    saved: Tensor, cell: Cell, hidden_size: int
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Views of the saved tensor. Angles are saved as fractions of a turn, and become radians."""
    apart = cell.recurrence.apart
    sizes = cell.gate_sizes(hidden_size) + [hidden_size] * len(apart)
    parts = saved.split_with_sizes(sizes, dim=1)
    named = dict(zip(cell.gates, parts, strict=False))
    for (gate, value), part in zip(apart.items(), parts[len(named) :], strict=True):
        named[gate] = value(named[gate], part, named)
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
