"""Cells whose equations take a row of units as a whole, in plain PyTorch.

Layer-normalized LSTMs and RUM have sums over a row between matmul and activation; GORU and EURNN
have constant rotations of the whole state. They keep to the rules of `rotcell.reference`: nothing
happens in place, any float type, any device. Each states its equations as a whole timestep, and has
its own tuple of weights. `ROW_CELLS` is the list; csrc/cells has the same cells for machines.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import GATE_FUNCTIONS, LSTM, NONE, PAIRS, Cell, Recurrence, Rotation, StateHooks

__all__ = [
    "LAYER_NORM_EPS",
    "ROW_CELLS",
    "EURNNWeights",
    "GORUWeights",
    "LayerNormWeights",
    "RUMWeights",
    "RowCell",
    "eurnn",
    "goru",
    "layer_norm_lstm",
    "modrelu",
    "rotate_by_layers",
    "rotate_from_to",
    "rum",
]


class Step(NamedTuple):
    """The arguments of a timestep's equations, except for the weights."""

    x: Tensor  # [B, I]
    states: Sequence[Tensor]  # h [B, P], and c [B, H] for an LSTM
    read_h: Tensor  # [B, P], h as the matmuls read it: times the mask of recurrent dropout
    gate_activation: Callable[[Tensor], Tensor]
    angle_activation: Callable[[Tensor], Tensor]


def _no_step(*arguments: Any) -> tuple[Tensor, ...]:
    raise NotImplementedError("the equations of a RowCell are those of its step()")


class RowCell(Cell):
    """A cell whose equations take a row of units as a whole.

    Attributes:
        weights_type: its weights, in place of `reference.Weights`.
        gates: short names of its gates, in the order of the rows of ``w_ih``.
    """

    sees_rows = True

    def __init__(
        self,
        name: str,
        gates: Mapping[str, str],
        states: tuple[str, ...],
        weights_type: type[Any],
        equations: Callable[[Step, Any], tuple[Tensor, ...]],
        rotation: Rotation = NONE,
        can_project: bool = False,
        recurrent_gates: Sequence[str] = (),
        gate_values: Callable[[Step, Any], list[Tensor]] | None = None,
        capacity: int = 0,
        biased_gates: Sequence[str] = (),
    ) -> None:
        recurrence = Recurrence(dict(gates), {}, states, can_project, step=_no_step)
        super().__init__(name, recurrence, rotation)
        self.weights_type = weights_type
        self._equations = equations
        self._gate_values = gate_values
        self._recurrent_gates = tuple(recurrent_gates)
        self._capacity = capacity
        self._biased_gates = tuple(biased_gates)

    @property
    def names_gates(self) -> bool:
        """Whether `sequence_with_gates` returns its gates."""
        return self._gate_values is not None

    def own_dimensions(self, hidden_size: int) -> dict[str, int]:
        """The letters of its parameters' shapes that other cells do not have."""
        return {"L": self._capacity, "A": hidden_size // 2}

    def recurrent_rows(self, hidden_size: int, angles_from: str = "both") -> int:
        """Rows of w_hh and b_hh."""
        if self._recurrent_gates:
            return len(self._recurrent_gates) * hidden_size
        return super().recurrent_rows(hidden_size, angles_from)

    def split_bias(self, bias: Tensor, recurrent_rows: int) -> tuple[Tensor, Tensor]:
        """The gradients of b_ih and b_hh, of the first rows, from that of the saved columns."""
        input_rows = bias.shape[0] * len(self._biased_gates) // len(self.gates)
        return bias[:input_rows].clone(), bias[:recurrent_rows].clone()

    def step(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        weights: Any,
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
        recurrent_dropout: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """One timestep; see `reference.Cell.step`."""
        h = states[0]
        step = Step(
            x,
            states,
            h if recurrent_dropout is None else h * recurrent_dropout,
            GATE_FUNCTIONS[gate_activation],
            GATE_FUNCTIONS[angle_activation],
        )
        return self._equations(step, self.weights_type(*weights))

    def sequence_with_gates(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        weights: Any,
        batch_sizes: Tensor | None,
        reverse: bool,
        gate_activation: str,
        angle_activation: str,
        hooks: StateHooks,
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]] | None:
        """As `sequence`; then the gates of every token ``[N, rows]``, and c ``[N, H]``.

        Angles come as fractions of a turn. None for a cell that is not an LSTM.
        """
        gate_values = self._gate_values
        if gate_values is None:
            return None
        every: list[Tensor] = []

        def record(step: Step, weights: Any) -> tuple[Tensor, ...]:
            every.append(torch.cat(gate_values(step, weights), dim=-1))
            return self._equations(step, weights)

        recorder = copy.copy(self)
        recorder._equations = record
        *results, cells = recorder.sequence(
            x, states, weights, batch_sizes, reverse, gate_activation, angle_activation, hooks,
            return_cells=True,
        )  # fmt: skip
        return tuple(results), (torch.cat(every[::-1] if reverse else every), cells)


# Layer norm

LAYER_NORM_EPS = 1e-5


class LayerNormWeights(NamedTuple):
    """`reference.Weights`, and the gains and bias of layer norm."""

    w_ih: torch.Tensor  # [R, I]
    w_hh: torch.Tensor  # [R, P]
    b_ih: torch.Tensor | None  # [R]
    b_hh: torch.Tensor | None  # [R]
    w_hr: torch.Tensor | None  # [P, H]
    gain_ih: torch.Tensor  # [R]
    gain_hh: torch.Tensor  # [R]
    gain_c: torch.Tensor  # [H]
    bias_c: torch.Tensor  # [H]


def _layer_norm(a: Tensor, gain: Tensor, bias: Tensor | None = None) -> Tensor:
    # Autocast computes layer norm in float32, but the state must keep its dtype.
    return F.layer_norm(a, a.shape[-1:], gain, bias, LAYER_NORM_EPS).to(a.dtype)


def _layer_norm_lstm_gates(cell: Cell, step: Step, weights: LayerNormWeights) -> list[Tensor]:
    # Ba et al. 2016: all rows of a weight are normalized together, those of the angles included.
    a = _layer_norm(F.linear(step.x, weights.w_ih), weights.gain_ih, weights.b_ih)
    a = a + _layer_norm(F.linear(step.read_h, weights.w_hh), weights.gain_hh, weights.b_hh)
    i, f, g, o, *rot = a.split_with_sizes(cell.gate_sizes(step.states[1].shape[-1]), dim=-1)
    activate = step.gate_activation
    angles = [step.angle_activation(fraction) for fraction in rot]
    return [activate(i), activate(f), torch.tanh(g), activate(o), *angles]


def _layer_norm_lstm_step(cell: Cell, step: Step, weights: LayerNormWeights) -> tuple[Tensor, ...]:
    # The cell state that is carried on is not normalized.
    i, f, g, o, *fractions = _layer_norm_lstm_gates(cell, step, weights)
    c = f * step.states[1] + i * g
    for fraction in fractions:
        c = cell.rotation.turn(c, 2 * math.pi * fraction)
    y = o * torch.tanh(_layer_norm(c, weights.gain_c, weights.bias_c))
    return (y if weights.w_hr is None else F.linear(y, weights.w_hr)), c


class _LayerNormLSTM(RowCell):
    def __init__(self, name: str, rotation: Rotation) -> None:
        super().__init__(
            name, LSTM.gates, LSTM.states, LayerNormWeights,
            functools.partial(_layer_norm_lstm_step, self),
            rotation=rotation, can_project=True,
            gate_values=functools.partial(_layer_norm_lstm_gates, self),
            biased_gates=(*LSTM.gates, *rotation.gates),
        )  # fmt: skip

    def saved_rows(self, hidden_size: int) -> int:
        """Columns that kernels save: what x gives to all gates, then what h does."""
        return 2 * self.rows(hidden_size)

    def bias_columns(self, hidden_size: int) -> int:
        """Numbers of the gradient that the kernels compute for both biases together."""
        return self.rows(hidden_size)


_LAYER_NORM_LSTMS = {
    "lstm": _LayerNormLSTM("layer_norm_lstm", NONE),
    "rot_lstm": _LayerNormLSTM("layer_norm_rot_lstm", PAIRS),
}


def layer_norm_lstm(plain: str) -> RowCell:
    """The layer-normalized variant of the cell with this name."""
    return _LAYER_NORM_LSTMS[plain]


# RUM


class RUMWeights(NamedTuple):
    """Rows r, u, e; those of the recurrent weights are r, u."""

    w_ih: torch.Tensor  # [3H, I]
    w_hh: torch.Tensor  # [2H, H]
    b_ih: torch.Tensor | None = None  # [3H]
    b_hh: torch.Tensor | None = None  # [2H]


def _inverse_norm(v: Tensor) -> Tensor:
    """``1 / |v|`` over the last dimension, kept; 0 for a zero vector, with finite gradients."""
    square = (v * v).sum(-1, keepdim=True)
    is_zero = square < torch.finfo(v.dtype).tiny
    return torch.where(is_zero, 0.0, torch.where(is_zero, 1.0, square).rsqrt())


def rotate_from_to(h: Tensor, e: Tensor, r: Tensor) -> Tensor:
    """Turn h in the plane of e and r by the angle from e to r.

    With the unit vectors p of e and q of r, and s = p + q, that is ``h - 2 s (s.h) / |s|^2 +
    2 q (p.h)``: regular where e and r are parallel. Opposite vectors have no plane; the divisor is
    then held at the rounding error, so values and gradients stay finite. If e or r is zero, h is
    not turned.

    Args:
        h: ``[..., H]``, the vectors to turn.
        e: ``[..., H]``, where the rotation starts.
        r: ``[..., H]``, where it ends.

    >>> x, y = torch.tensor([3.0, 0.0, 0.0]), torch.tensor([0.0, 0.5, 0.0])
    >>> rotate_from_to(torch.tensor([1.0, 0.0, 5.0]), x, y).round(decimals=3).tolist()
    [0.0, 1.0, 5.0]
    """
    dtype = h.dtype
    # Squares of fp16 overflow from 256 on.
    work = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    h, e, r = h.to(work), e.to(work), r.to(work)
    inverse_e, inverse_r = _inverse_norm(e), _inverse_norm(r)
    p, q = e * inverse_e, r * inverse_r
    s = p + q
    square = (s * s).sum(-1, keepdim=True).clamp(min=torch.finfo(work).eps)
    along_s, along_p = (s * h).sum(-1, keepdim=True), (p * h).sum(-1, keepdim=True)
    turned = h - s * (2 * along_s / square) + 2 * along_p * q
    return torch.where((inverse_e == 0) | (inverse_r == 0), h, turned).to(dtype)


def _rum_step(eta: float | None, step: Step, weights: RUMWeights) -> tuple[Tensor, ...]:
    (h,) = step.states
    w_ih, w_hh, b_ih, b_hh = weights
    ru_from_x, e = F.linear(step.x, w_ih, b_ih).tensor_split([w_hh.shape[0]], dim=-1)
    r, u = (ru_from_x + F.linear(step.read_h, w_hh, b_hh)).chunk(2, dim=-1)
    u = torch.sigmoid(u)
    c = torch.relu(e + rotate_from_to(h, e, r))
    h = u * h + (1 - u) * c
    if eta is not None:
        wide = h.float() if h.dtype in (torch.float16, torch.bfloat16) else h
        h = (wide * (eta * _inverse_norm(wide))).to(h.dtype)
    return (h,)


class _RUM(RowCell):
    constant_names = ("norm",)

    def __init__(self, eta: float | None) -> None:
        super().__init__(
            "rum", {"r": "target", "u": "update", "e": "embedding"}, ("h",), RUMWeights,
            functools.partial(_rum_step, eta), recurrent_gates=("r", "u"),
            biased_gates=("r", "u", "e"),
        )  # fmt: skip
        self.constants = (eta or 0.0,)

    def with_constants(self, *values: float) -> Cell:
        """The cell with another norm; 0 for none."""
        (norm,) = values
        return rum(norm or None)


@functools.cache
def rum(eta: float | None = None) -> RowCell:
    """The rotational unit of memory (lambda = 0); eta is the norm that every state gets."""
    return _RUM(eta)


# Constant rotations of the whole state


def rotate_by_layers(h: Tensor, angles: Tensor) -> Tensor:
    """Rotate all units by layers of plane rotations, one layer after the other.

    Args:
        h: ``[..., H]``.
        angles: ``[layers, H // 2]``, in radians. Even layers turn units (0, 1), (2, 3), ...; odd
            ones turn (1, 2), (3, 4), ... by the first ``(H - 1) // 2`` angles.

    >>> quarter = torch.full((2, 1), math.pi / 2)
    >>> rotate_by_layers(torch.tensor([1.0, 0.0, 0.0]), quarter).round().tolist()
    [-0.0, -0.0, 1.0]
    """
    size = h.shape[-1]
    for layer, u in enumerate(angles.unbind(0)):
        offset = layer % 2
        planes = (size - offset) // 2
        turned = PAIRS.turn(h[..., offset:], u[:planes])
        h = torch.cat([h[..., :offset], turned], dim=-1) if offset else turned
    return h


def modrelu(a: Tensor, threshold: Tensor, offset: float) -> Tensor:
    """``sign(a) relu(|a| + offset + threshold)``."""
    return torch.sign(a) * torch.relu(a.abs() + offset + threshold)


class GORUWeights(NamedTuple):
    """Rows r, g, c; those of the recurrent weights and of the biases are r, g."""

    w_ih: torch.Tensor  # [3H, I]
    w_hh: torch.Tensor  # [2H, H]
    b_ih: torch.Tensor | None  # [2H]
    b_hh: torch.Tensor | None  # [2H]
    threshold: torch.Tensor  # [H]
    angles: torch.Tensor  # [capacity, H // 2]


GORU_OFFSET = 0.001
EURNN_OFFSET = 0.01


def _goru_step(step: Step, weights: GORUWeights) -> tuple[Tensor, ...]:
    (h,) = step.states
    w_ih, w_hh, b_ih, b_hh, threshold, angles = weights
    rg_from_x, c_from_x = F.linear(step.x, w_ih).tensor_split([w_hh.shape[0]], dim=-1)
    a = rg_from_x + F.linear(step.read_h, w_hh, b_hh)
    r, g = torch.sigmoid(a if b_ih is None else a + b_ih).chunk(2, dim=-1)
    # The reset acts after the rotation.
    c = modrelu(c_from_x + r * rotate_by_layers(h, angles), threshold, GORU_OFFSET)
    return (g * h + (1 - g) * c,)


@functools.cache
def goru(capacity: int = 2) -> RowCell:
    """The gated orthogonal recurrent unit, with this number of layers of rotations."""
    return RowCell(
        "goru", {"r": "reset", "g": "update", "c": "candidate"}, ("h",), GORUWeights, _goru_step,
        recurrent_gates=("r", "g"), capacity=capacity, biased_gates=("r", "g"),
    )  # fmt: skip


class EURNNWeights(NamedTuple):
    """There is no recurrent weight: the angles take its place."""

    w_ih: torch.Tensor  # [H, I]
    threshold: torch.Tensor  # [H]
    angles: torch.Tensor  # [capacity, H // 2]


def _eurnn_step(step: Step, weights: EURNNWeights) -> tuple[Tensor, ...]:
    w_ih, threshold, angles = weights
    a = F.linear(step.x, w_ih) + rotate_by_layers(step.states[0], angles)
    return (modrelu(a, threshold, EURNN_OFFSET),)


@functools.cache
def eurnn(capacity: int = 2) -> RowCell:
    """The efficient unitary RNN, real-valued, with this number of layers of rotations."""
    return RowCell(
        "eurnn", {"n": "candidate"}, ("h",), EURNNWeights, _eurnn_step, capacity=capacity
    )


#: The cells with kernels, with their options at their defaults: the same ones, in the same order,
#: as RowCells in csrc/cells/list.h.
ROW_CELLS = (*_LAYER_NORM_LSTMS.values(), rum(), goru(), eurnn())
