"""The cells in plain PyTorch: what every kernel of this package is tested against.

Written to be read beside the paper. Nothing here happens in place, so autograd (any number of
times), forward-mode AD and ``torch.func`` work on any float type and any device.

A cell is a recurrence (LSTM, GRU), whose equations stand here once, with a rotation of its memory:
none, or of pairs of units by learned angles ``u = 2 pi sigmoid(W_rot [h, x] + b_rot)``. `CELLS`
describes all of them, and everything else in Python that differs from cell to cell is taken from
that description.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "CELLS",
    "GATE_FUNCTIONS",
    "Cell",
    "Gates",
    "Recurrence",
    "Rotation",
    "StateChanges",
    "Weights",
    "hard_sigmoid",
    "rotate",
]


# Gate functions


def hard_sigmoid(a: Tensor) -> Tensor:
    """``clip(0.2 a + 0.5, 0, 1)``, the gates of Keras before 2.3; its slope is 0 at both ends.

    >>> hard_sigmoid(torch.tensor([-3.0, 0.0, 1.0, 3.0])).tolist()
    [0.0, 0.5, 0.699999988079071, 1.0]
    """
    return F.hardtanh(0.2 * a + 0.5, 0.0, 1.0)


#: What may squash gates and angles, by name. The kernels know them by their position here.
GATE_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "hard_sigmoid": hard_sigmoid,
}


# Rotations


@dataclass(frozen=True, eq=False)
class Rotation:
    """What a recurrence does to its memory besides its gates."""

    #: Name of the angles' gate (short: long), which comes after those of the recurrence.
    gates: dict[str, str]
    #: How many angles, so rows of each weight, a layer of H units has.
    angles: Callable[[int], int]
    #: Rotates ``[..., H]`` by angles ``[..., angles(H)]`` in radians.
    turn: Callable[[Tensor, Tensor], Tensor]


def rotate(d: Tensor, u: Tensor) -> Tensor:
    """Multiply by the paper's block-diagonal matrix U(u): rotate each pair of units by its angle.

    Args:
        d: ``[..., H]``, the vectors to rotate; units 2k and 2k+1 are a pair.
        u: ``[..., H // 2]``, angles in radians.

    Returns:
        ``[..., H]``. If H is odd the last unit has no partner and stays as it is.

    >>> rotate(torch.tensor([1.0, 0.0, 7.0]), torch.tensor([math.pi / 2])).round().tolist()
    [-0.0, 1.0, 7.0]
    """
    paired = 2 * u.shape[-1]
    first, second = d[..., 0:paired:2], d[..., 1:paired:2]
    cos, sin = torch.cos(u), torch.sin(u)
    rotated = torch.stack([cos * first - sin * second, sin * first + cos * second], dim=-1)
    return torch.cat([rotated.flatten(-2), d[..., paired:]], dim=-1)


NONE = Rotation({}, angles=lambda hidden_size: 0, turn=lambda d, u: d)
PAIRS = Rotation({"rot": "rotation"}, angles=lambda hidden_size: hidden_size // 2, turn=rotate)


# Recurrences


class Weights(NamedTuple):
    """The weights of one direction of one layer; R rows, those of the gates in their order."""

    w_ih: torch.Tensor  # [R, I]
    w_hh: torch.Tensor  # [R, P]; P, the size of the output, is H without a projection
    b_ih: torch.Tensor | None = None  # [R]
    b_hh: torch.Tensor | None = None  # [R]
    w_hr: torch.Tensor | None = None  # [P, H], projection of the output


@dataclass(frozen=True, eq=False)
class Gates:
    """A cell's gates at one timestep, as its recurrence sees them."""

    cell: Cell
    hidden_size: int
    #: What squashes the gates, between 0 and 1.
    squash: Callable[[Tensor], Tensor]
    #: What squashes the angles, into fractions of a full turn.
    squash_angles: Callable[[Tensor], Tensor]
    from_x: Tensor  # [B, R], W x + b_ih
    w_hh: Tensor
    b_hh: Tensor | None
    mask: Tensor | None = None  # [B, P], recurrent dropout

    def seen(self, h: Tensor) -> Tensor:
        """What products see of the old output."""
        return h if self.mask is None else h * self.mask

    def affine(self, memory: Tensor, *gates: str) -> tuple[Tensor, ...]:
        """``W_gate [memory, x] + b_gate`` of gates that are neighbours in the weights."""
        each = [self.cell.rows_of(gate, self.hidden_size) for gate in gates]
        rows = slice(each[0].start, each[-1].stop)
        bias = None if self.b_hh is None else self.b_hh[rows]
        a = self.from_x[..., rows] + F.linear(memory, self.w_hh[rows], bias)
        return a.split_with_sizes([r.stop - r.start for r in each], dim=-1)

    def turn(self, d: Tensor, memory: Tensor) -> Tensor:
        """``U(u) d``, with the angles u that the memory gives."""
        if not self.cell.rotates:
            return d
        (a,) = self.affine(memory, *self.cell.rotation.gates)
        return self.cell.rotation.turn(d, 2 * math.pi * self.squash_angles(a))


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The equations of a timestep, but for what is a cell's choice."""

    #: Names of the gates (short: long), in the order of the weights' rows.
    gates: dict[str, str]
    #: Names of the states. The first is the output.
    states: tuple[str, ...]
    can_project: bool
    #: From the gates, the states and ``w_hr`` to the new states.
    step: Callable[[Gates, Sequence[Tensor], Tensor | None], tuple[Tensor, ...]]


def _lstm_step(a: Gates, states: Sequence[Tensor], w_hr: Tensor | None) -> tuple[Tensor, ...]:
    h, c = a.seen(states[0]), states[1]
    i, f, g, o = a.affine(h, "i", "f", "g", "o")
    d = a.squash(f) * c + a.squash(i) * torch.tanh(g)
    c = a.turn(d, h)
    y = a.squash(o) * torch.tanh(c)
    return (y if w_hr is None else F.linear(y, w_hr)), c


def _gru_step(a: Gates, states: Sequence[Tensor], w_hr: Tensor | None) -> tuple[Tensor, ...]:
    # As in the paper the reset acts before the candidate's product (in nn.GRU after it), so the
    # rows "n" of w_hh multiply the rotated memory; and z weighs the new (in nn.GRU the old).
    (h,) = states
    m = a.seen(h)
    r, z = (a.squash(gate) for gate in a.affine(m, "r", "z"))
    d = m * r
    (n,) = a.affine(a.turn(d, m), "n")
    return ((1 - z) * h + z * torch.tanh(n),)


LSTM = Recurrence(
    {"i": "input", "f": "forget", "g": "candidate", "o": "output"},
    states=("h", "c"),
    can_project=True,
    step=_lstm_step,
)
GRU = Recurrence(
    {"r": "reset", "z": "update", "n": "candidate"},
    states=("h",),
    can_project=False,
    step=_gru_step,
)


# Between the steps


class StateChanges(NamedTuple):
    """What happens to the state between two steps, besides a cell's equations.

    The old state is reset first; products see its output through a mask; and the new state is mixed
    with what the reset left of the old one.
    """

    #: bool ``[N]``: at this token a new sequence begins, from zeros. No state crosses the border
    #: before it, in neither direction.
    resets: torch.Tensor | None = None
    #: ``[B, P]``: factors of the old output where it enters a product.
    recurrent_dropout: torch.Tensor | None = None
    #: ``[N, H]``, or ``[1, H]`` for all tokens: which share of h stays as it was.
    zoneout_h: torch.Tensor | None = None
    #: The same of c.
    zoneout_c: torch.Tensor | None = None

    def start(
        self, states: Sequence[Tensor], sizes: Sequence[int], t: int, reverse: bool
    ) -> Sequence[Tensor]:
        """The states that step t starts from, of those that the step before left."""
        marked = t + 1 if reverse else t
        if self.resets is None or marked == len(sizes):
            return states
        marks = self.resets.split_with_sizes(list(sizes))[marked].unsqueeze(-1)
        rows = len(marks)
        return [torch.cat([s[:rows].masked_fill(marks, 0), s[rows:]]) for s in states]

    def mix(
        self, new: Sequence[Tensor], old: Sequence[Tensor], sizes: Sequence[int], t: int
    ) -> tuple[Tensor, ...]:
        """The new states of step t, with the share of the old ones that stays."""
        shares = (self.zoneout_h, self.zoneout_c)
        mixed = []
        for n, o, share in zip(new, old, shares, strict=False):
            if share is None:
                mixed.append(n)
            else:
                s = share if len(share) == 1 else share.split_with_sizes(list(sizes))[t]
                mixed.append(s * o + (1 - s) * n)
        return tuple(mixed)


#: Nothing happens between the steps.
UNCHANGED = StateChanges()


# Cells


class Cell:
    """A cell: what it consists of, and its reference code.

    Attributes:
        name: that of its ops, and of its description in csrc/cells/list.h.
        recurrence: its equations.
        rotation: what happens to its memory.
        gates: short names of all gates, in the order of the weights' rows; angles are last.
        states: names of its states; the first is the output.
        can_project: whether the output may be projected to a smaller size.
        rotates: whether there are angles.

    >>> cell = CELLS["rot_lstm"]
    >>> cell.gates, cell.states
    (('i', 'f', 'g', 'o', 'rot'), ('h', 'c'))
    """

    def __init__(self, name: str, recurrence: Recurrence, rotation: Rotation) -> None:
        self.name = name
        self.recurrence = recurrence
        self.rotation = rotation
        self.gates = (*recurrence.gates, *rotation.gates)
        self.states = recurrence.states
        self.can_project = recurrence.can_project
        self.rotates = bool(rotation.gates)
        self._short_names = {long: short for short, long in recurrence.gates.items()} | {
            long: short for short, long in rotation.gates.items()
        }

    def __repr__(self) -> str:
        return f"<cell {self.name}>"

    def gate_sizes(self, hidden_size: int) -> list[int]:
        """Rows each gate has: one a unit, and for a rotation one an angle.

        >>> CELLS["rot_lstm"].gate_sizes(5)
        [5, 5, 5, 5, 2]
        """
        sizes = [hidden_size] * len(self.recurrence.gates)
        return sizes + [self.rotation.angles(hidden_size)] * len(self.rotation.gates)

    def rows(self, hidden_size: int) -> int:
        """Rows of each weight and bias."""
        return sum(self.gate_sizes(hidden_size))

    def state_sizes(self, hidden_size: int, output_size: int) -> list[int]:
        """Features of each state."""
        return [output_size] + [hidden_size] * (len(self.states) - 1)

    def rows_of(self, gate: str, hidden_size: int) -> slice:
        """Rows of a gate, which may be given by its short or its long name.

        >>> CELLS["rot_lstm"].rows_of("forget", 5)
        slice(5, 10, None)
        """
        short = self._short_names.get(gate, gate)
        if short not in self.gates:
            known = [f"{s!r} ({long})" for long, s in self._short_names.items()]
            raise ValueError(f"gate must be one of {', '.join(known)}; got {gate!r}")
        sizes = self.gate_sizes(hidden_size)
        position = self.gates.index(short)
        start = sum(sizes[:position])
        return slice(start, start + sizes[position])

    def step(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        weights: Weights,
        gates: str = "sigmoid",
        angle_gates: str = "sigmoid",
        recurrent_dropout: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """One timestep.

        Args:
            x: ``[B, I]``, input.
            states: the last output ``h [B, P]`` and, of an LSTM, the memory ``c [B, H]``.
            weights: see `Weights`; a tuple of the same will do.
            gates: what squashes the gates, one of `GATE_FUNCTIONS`.
            angle_gates: what squashes the angles.
            recurrent_dropout: ``[B, P]``, factors of the old output where it enters a product.

        Returns:
            The new states.
        """
        w_ih, w_hh, b_ih, b_hh, w_hr = Weights(*weights)
        a = Gates(
            self,
            states[-1].shape[-1],
            GATE_FUNCTIONS[gates],
            GATE_FUNCTIONS[angle_gates],
            F.linear(x, w_ih, b_ih),
            w_hh,
            b_hh,
            recurrent_dropout,
        )
        return self.recurrence.step(a, states, w_hr)

    def sequence(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        weights: Weights,
        batch_sizes: Tensor | None = None,
        reverse: bool = False,
        gates: str = "sigmoid",
        angle_gates: str = "sigmoid",
        changes: StateChanges = UNCHANGED,
        return_cells: bool = False,
    ) -> tuple[Tensor, ...]:
        """Run a sequence through one direction of one layer.

        Args:
            x: ``[N, I]``, the tokens of all timesteps, one timestep after the other.
            states: before the first step, as in `step`.
            weights: as in `step`.
            batch_sizes: how many rows each timestep has, as in PackedSequence (int64, on the CPU,
                never increasing, starting at B). None: all have B.
            reverse: run from the last timestep to the first; each row starts at its own last token.
            gates: as in `step`.
            angle_gates: as in `step`.
            changes: what happens to the state between the steps.
            return_cells: whether to return c of every step, of a cell that has it.

        Returns:
            ``out [N, P]``, the states after the last step of each row, and ``cells [N, H]`` if
            asked for.
        """
        sizes = _rows_per_step(x, states[0].shape[0], batch_sizes)
        tokens = x.split_with_sizes(sizes)
        outputs = list(tokens)
        cells = list(tokens)
        states = tuple(states)
        for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
            active = sizes[t]
            old = changes.start([s[:active] for s in states], sizes, t, reverse)
            mask = changes.recurrent_dropout
            mask = None if mask is None else mask[:active]
            new = self.step(tokens[t], old, weights, gates, angle_gates, mask)
            new = changes.mix(new, old, sizes, t)
            outputs[t], cells[t] = new[0], new[-1]
            # Rows beyond the active ones have ended (forward) or have not begun (reverse).
            states = tuple(
                torch.cat([n, s[active:]]) if active < s.shape[0] else n
                for n, s in zip(new, states, strict=True)
            )
        return torch.cat(outputs), *states, *([torch.cat(cells)] if return_cells else [])


def _rows_per_step(x: Tensor, batch: int, batch_sizes: Tensor | None) -> list[int]:
    tokens = x.shape[0]
    if batch_sizes is None:
        # An empty batch does not tell its number of steps, nor does it matter.
        sizes = [batch] * (tokens // batch if batch else 1)
    else:
        sizes = batch_sizes.tolist()
        if sizes[:1] != [batch] or sizes != sorted(sizes, reverse=True):
            raise RuntimeError(
                f"batch_sizes must start at the batch size {batch} and never increase, got {sizes}"
            )
    if sum(sizes) != tokens:
        raise RuntimeError(
            f"x has {tokens} rows, which timesteps of sizes {sizes} do not add up to"
        )
    return sizes


#: The cells, by name: the same ones, in the same order, as in csrc/cells/list.h.
CELLS = {
    cell.name: cell
    for cell in (
        Cell("rot_lstm", LSTM, PAIRS),
        Cell("rot_gru", GRU, PAIRS),
        Cell("lstm", LSTM, NONE),
        Cell("classic_gru", GRU, NONE),
    )
}
