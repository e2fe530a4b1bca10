"""The cells in plain PyTorch: what every kernel of this package is tested against.

Written to be read next to the paper. Nothing here happens in place, so autograd (any number of
times), forward-mode AD and ``torch.func`` work on any float type and any device.

A cell is a recurrence (LSTM, GRU), whose equations are here once, with a rotation of its state:
none, or of groups of units (pairs, in the paper) by learned angles ``u = 2 pi sigmoid(W_rot [h, x]
+ b_rot)``. `CELLS` describes all of them, and everything else in Python that differs from cell to
cell is taken from that description.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "CELLS",
    "FIXED_ACTIVATIONS",
    "GATE_FUNCTIONS",
    "LINEAR_ROT_LSTM",
    "Cell",
    "Gates",
    "Recurrence",
    "Rotation",
    "StateHooks",
    "Weights",
    "angles_per_group",
    "group_rotation",
    "hard_sigmoid",
    "rotate",
    "rotate_groups",
    "with_rotation_size",
]


# Activations


def hard_sigmoid(a: Tensor) -> Tensor:
    """``clip(0.2 a + 0.5, 0, 1)``, the gates of Keras before 2.3; its slope is 0 at both ends.

    >>> hard_sigmoid(torch.tensor([-3.0, 0.0, 1.0, 3.0])).tolist()
    [0.0, 0.5, 0.699999988079071, 1.0]
    """
    return F.hardtanh(0.2 * a + 0.5, 0.0, 1.0)


#: Activations that a layer may choose for its gates and for its angles, by name. All have values
#: between 0 and 1. The kernels know them by their position here.
GATE_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "hard_sigmoid": hard_sigmoid,
}

#: Activations that belong to a cell's equations, by name.
FIXED_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh}


# Rotations


@dataclass(frozen=True, eq=False)
class Rotation:
    """How a cell rotates its state."""

    #: Name of the angles' gate (short: long), which comes after those of the recurrence.
    gates: dict[str, str]
    #: How many angles, so rows of each weight, a layer of H units has.
    angles: Callable[[int], int]
    #: Rotates ``[..., H]`` by angles ``[..., angles(H)]`` in radians.
    turn: Callable[[Tensor, Tensor], Tensor]
    #: The inverse of `turn`.
    undo: Callable[[Tensor, Tensor], Tensor]
    #: How many neighboring units are rotated together.
    size: int = 2


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


def angles_per_group(size: int) -> int:
    """How many plane rotations make up a rotation of a group of this size.

    >>> [angles_per_group(size) for size in (2, 3, 4, 8)]
    [1, 3, 6, 28]
    """
    return size * (size - 1) // 2


def rotate_groups(d: Tensor, u: Tensor, size: int, inverse: bool = False) -> Tensor:
    """Rotate each group of `size` neighboring units by `size` layers of plane rotations.

    Even layers turn units (0, 1), (2, 3), ... of each group, odd layers (1, 2), (3, 4), ..., one
    layer after the other. Every rotation of `size` dimensions can be written so (Clements et al.
    2016). With a size of 2 this is `rotate`.

    Args:
        d: ``[..., H]``, the vectors to rotate. The last H mod `size` units stay as they are.
        u: ``[..., H // size * size * (size - 1) / 2]``, angles in radians: by group, then layer,
            then plane from left to right.
        size: units of a group.
        inverse: undo the rotation instead.

    >>> quarter = torch.tensor([math.pi / 2, math.pi / 2, 0.0])
    >>> rotate_groups(torch.tensor([1.0, 0.0, 0.0, 7.0]), quarter, 3).round().abs().tolist()
    [0.0, 0.0, 1.0, 7.0]
    """
    groups = d.shape[-1] // size
    if groups == 0:
        return d
    rotated, left_over = d.split([groups * size, d.shape[-1] - groups * size], dim=-1)
    g = rotated.unflatten(-1, (groups, size))
    by_group = u.unflatten(-1, (groups, angles_per_group(size)))
    planes = [(size - layer % 2) // 2 for layer in range(size)]
    coses = torch.cos(by_group).split(planes, dim=-1)
    sines = torch.sin(-by_group if inverse else by_group).split(planes, dim=-1)
    for layer in reversed(range(size)) if inverse else range(size):
        start, stop = layer % 2, layer % 2 + 2 * planes[layer]
        first, second = g[..., start:stop:2], g[..., start + 1 : stop : 2]
        cos, sin = coses[layer], sines[layer]
        turned = torch.stack([cos * first - sin * second, sin * first + cos * second], dim=-1)
        g = torch.cat([g[..., :start], turned.flatten(-2), g[..., stop:]], dim=-1)
    return torch.cat([g.flatten(-2), left_over], dim=-1)


NONE = Rotation({}, angles=lambda hidden_size: 0, turn=lambda d, u: d, undo=lambda d, u: d)
PAIRS = Rotation(
    {"rot": "rotation"},
    angles=lambda hidden_size: hidden_size // 2,
    turn=rotate,
    undo=lambda d, u: rotate(d, -u),
)


@functools.cache
def group_rotation(size: int) -> Rotation:
    """The rotation of groups of `size` units; that of pairs is `PAIRS`."""
    if size == 2:
        return PAIRS
    return Rotation(
        PAIRS.gates,
        angles=lambda hidden_size: hidden_size // size * angles_per_group(size),
        turn=functools.partial(rotate_groups, size=size),
        undo=functools.partial(rotate_groups, size=size, inverse=True),
        size=size,
    )


# Recurrences


class Weights(NamedTuple):
    """The weights of one direction of one layer; R rows, those of the gates in their order."""

    w_ih: torch.Tensor  # [R, I]
    #: [R, P]; P, the size of the output, is H without a projection. Without the rows of the angles,
    #: which come last, x alone makes these; so for b_hh.
    #: Without any rows, x alone makes all gates.
    w_hh: torch.Tensor
    b_ih: torch.Tensor | None = None  # [R]
    b_hh: torch.Tensor | None = None  # [R]
    w_hr: torch.Tensor | None = None  # [P, H], projection of the output


@dataclass(frozen=True, eq=False)
class Gates:
    """A cell's gates at one timestep, as its recurrence sees them."""

    cell: Cell
    hidden_size: int
    gate_activation: Callable[[Tensor], Tensor]  # values between 0 and 1
    angle_activation: Callable[[Tensor], Tensor]  # values are fractions of a full turn
    from_x: Tensor  # [B, R], W x + b_ih
    w_hh: Tensor
    b_hh: Tensor | None
    mask: Tensor | None = None  # [B, P], recurrent dropout

    def masked(self, h: Tensor) -> Tensor:
        """The old output as the matmuls read it: times the mask of recurrent dropout."""
        return h if self.mask is None else h * self.mask

    def affine(self, state: Tensor, *gates: str) -> tuple[Tensor, ...]:
        """``W_gate [state, x] + b_gate`` of gates that are neighbors in the weights.

        Of gates that have no rows in w_hh, ``W_gate x + b_gate``.
        """
        each = [self.cell.rows_of(gate, self.hidden_size) for gate in gates]
        rows = slice(each[0].start, each[-1].stop)
        a = self.from_x[..., rows]
        if rows.start < self.w_hh.shape[0]:
            bias = None if self.b_hh is None else self.b_hh[rows]
            a = a + F.linear(state, self.w_hh[rows], bias)
        return a.split_with_sizes([r.stop - r.start for r in each], dim=-1)

    def apart(self, state: Tensor, gate: str) -> tuple[Tensor, Tensor]:
        """What x and what the state gives to a gate, not added up; each with its own bias."""
        rows = self.cell.rows_of(gate, self.hidden_size)
        bias = None if self.b_hh is None else self.b_hh[rows]
        return self.from_x[..., rows], F.linear(state, self.w_hh[rows], bias)

    def activation(self, gate: str) -> Callable[[Tensor], Tensor]:
        """The activation of a gate, by the cell's table."""
        chosen = {
            "gate_activation": self.gate_activation,
            "angle_activation": self.angle_activation,
        }
        return (FIXED_ACTIVATIONS | chosen)[self.cell.activations[gate]]

    def values(self, state: Tensor, *gates: str) -> list[Tensor]:
        """Gates that are neighbors in the weights, after their activations."""
        preactivations = self.affine(state, *gates)
        return [self.activation(g)(a) for g, a in zip(gates, preactivations, strict=True)]

    def turn(self, d: Tensor, state: Tensor) -> Tensor:
        """``U(u) d``, with the angles u that the state gives."""
        if not self.cell.rotates:
            return d
        (fraction,) = self.values(state, *self.cell.rotation.gates)
        return self.cell.rotation.turn(d, 2 * math.pi * fraction)


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The equations of a timestep, but for what is a cell's choice."""

    #: Names of the gates (short: long), in the order of the weights' rows.
    gates: dict[str, str]
    #: The activation of each gate: "gate_activation" is the layer's choice, others are in
    #: `FIXED_ACTIVATIONS`.
    activations: dict[str, str]
    #: Names of the states. The first is the output.
    states: tuple[str, ...]
    can_project: bool
    #: From the gates, the states and ``w_hr`` to the new states.
    step: Callable[[Gates, Sequence[Tensor], Tensor | None], tuple[Tensor, ...]]
    #: Gates of which x and h give a part each that are not just added up: how a gate's value comes
    #: from both parts and the other gates. Kernels save both parts.
    apart: dict[str, Callable[[Tensor, Tensor, dict[str, Tensor]], Tensor]] = field(
        default_factory=dict
    )


def _lstm_step(a: Gates, states: Sequence[Tensor], w_hr: Tensor | None) -> tuple[Tensor, ...]:
    h, c = a.masked(states[0]), states[1]
    i, f, g, o = a.values(h, "i", "f", "g", "o")
    d = f * c + i * g
    c = a.turn(d, h)
    y = o * torch.tanh(c)
    return (y if w_hr is None else F.linear(y, w_hr)), c


def _gru_step(a: Gates, states: Sequence[Tensor], w_hr: Tensor | None) -> tuple[Tensor, ...]:
    # As in the paper the reset acts before the candidate's matmul (in nn.GRU after it), so the
    # rows "n" of w_hh multiply the rotated state; and z weighs the new (in nn.GRU the old).
    (h,) = states
    m = a.masked(h)
    r, z = a.values(m, "r", "z")
    d = m * r
    (n,) = a.values(a.turn(d, m), "n")
    return ((1 - z) * h + z * n,)


def _torch_gru_candidate(of_x: Tensor, of_h: Tensor, gates: dict[str, Tensor]) -> Tensor:
    return torch.tanh(of_x + gates["r"] * of_h)


def _torch_gru_step(a: Gates, states: Sequence[Tensor], w_hr: Tensor | None) -> tuple[Tensor, ...]:
    (h,) = states
    m = a.masked(h)
    r, z = a.values(m, "r", "z")
    n = _torch_gru_candidate(*a.apart(m, "n"), {"r": r})
    return ((1 - z) * n + z * h,)


LSTM = Recurrence(
    {"i": "input", "f": "forget", "g": "candidate", "o": "output"},
    activations={
        "i": "gate_activation",
        "f": "gate_activation",
        "g": "tanh",
        "o": "gate_activation",
    },
    states=("h", "c"),
    can_project=True,
    step=_lstm_step,
)
GRU = Recurrence(
    {"r": "reset", "z": "update", "n": "candidate"},
    activations={"r": "gate_activation", "z": "gate_activation", "n": "tanh"},
    states=("h",),
    can_project=False,
    step=_gru_step,
)
TORCH_GRU = Recurrence(
    {"r": "reset", "z": "update", "n": "candidate"},
    activations={"r": "gate_activation", "z": "gate_activation", "n": "tanh"},
    states=("h",),
    can_project=False,
    step=_torch_gru_step,
    apart={"n": _torch_gru_candidate},
)


# Between the steps


class StateHooks(NamedTuple):
    """State hooks: changes to the state between two steps that are not part of a cell's equations.

    The old state is reset first. The matmuls read its output times a mask. The new state is mixed
    with what the reset left of the old one.
    """

    #: bool ``[N]``: at this token a new sequence begins, from zeros. No state crosses the border
    #: before it, in either direction.
    resets: torch.Tensor | None = None
    #: ``[B, P]``: factors of the old output where it enters a matmul.
    recurrent_dropout: torch.Tensor | None = None
    #: ``[N, H]``, or ``[1, H]`` for all tokens: the fraction of h that is kept.
    zoneout_h: torch.Tensor | None = None
    #: The same for c.
    zoneout_c: torch.Tensor | None = None

    def start(
        self, states: Sequence[Tensor], sizes: Sequence[int], t: int, reverse: bool
    ) -> Sequence[Tensor]:
        """The states that step t starts from, of those that the step before left."""
        marked = t + 1 if reverse else t
        if self.resets is None or marked == len(sizes):
            return states
        reset_mask = self.resets.split_with_sizes(list(sizes))[marked].unsqueeze(-1)
        rows = len(reset_mask)
        return [torch.cat([s[:rows].masked_fill(reset_mask, 0), s[rows:]]) for s in states]

    def mix(
        self, new: Sequence[Tensor], old: Sequence[Tensor], sizes: Sequence[int], t: int
    ) -> tuple[Tensor, ...]:
        """The new states of step t, mixed with the fraction of the old ones that is kept."""
        zoneout_keep = (self.zoneout_h, self.zoneout_c)
        mixed = []
        for n, o, keep in zip(new, old, zoneout_keep, strict=False):
            if keep is None:
                mixed.append(n)
            else:
                k = keep if len(keep) == 1 else keep.split_with_sizes(list(sizes))[t]
                mixed.append(k * o + (1 - k) * n)
        return tuple(mixed)


#: No state hooks: nothing happens between the steps.
NO_HOOKS = StateHooks()


# Cells


class Cell:
    """A cell: what it consists of, and its reference code.

    Attributes:
        name: that of its ops, and of its description in csrc/cells/list.h.
        family: the name without the size of the rotated groups, which checkpoints record apart.
        recurrence: its equations.
        rotation: how its state is rotated.
        gates: short names of all gates, in the order of the weights' rows; angles are last.
        activations: the activation of each gate; see `Recurrence.activations`.
        states: names of its states; the first is the output.
        can_project: whether the output may be projected to a smaller size.
        rotates: whether there are angles.
        reads_h: whether h feeds gates; otherwise w_hh has no rows, and there is no b_hh.
        op_name: the name of its compiled ops, if there are any; a cell that does not read h has
            those of the one that does.
        is_quantized: whether its weights are int8.
        weights_type: what its weights come in, one tuple per layer and direction.
        sees_rows: whether its equations take a row of units as a whole, not pair by pair; see
            `rotcell.reference_rows`.
        constant_names, constants: options of its ops that are the cell's own, and their values.

    >>> cell = CELLS["rot_lstm"]
    >>> cell.gates, cell.states
    (('i', 'f', 'g', 'o', 'rot'), ('h', 'c'))
    >>> [gate for gate, activation in cell.activations.items() if activation == "tanh"]
    ['g']
    """

    is_quantized: ClassVar[bool] = False
    weights_type: type[Any] = Weights
    sees_rows: ClassVar[bool] = False
    constant_names: ClassVar[tuple[str, ...]] = ()
    constants: tuple[float, ...] = ()

    def __init__(
        self,
        name: str,
        recurrence: Recurrence,
        rotation: Rotation,
        reads_h: bool = True,
    ) -> None:
        self.name = name
        self.reads_h = reads_h
        self.op_name = name if reads_h else name.removeprefix("linear_")
        self.family = name.removesuffix(f"_{rotation.size}")
        self.recurrence = recurrence
        self.rotation = rotation
        self.gates = (*recurrence.gates, *rotation.gates)
        self.activations = recurrence.activations | dict.fromkeys(
            rotation.gates, "angle_activation"
        )
        self.states = recurrence.states
        self.can_project = recurrence.can_project
        self.rotates = bool(rotation.gates)
        self._short_names = {long: short for short, long in recurrence.gates.items()} | {
            long: short for short, long in rotation.gates.items()
        }

    def __repr__(self) -> str:
        return f"<cell {self.name}>"

    def gate_sizes(self, hidden_size: int) -> list[int]:
        """Rows each gate has: one per unit, and for a rotation one per angle.

        >>> CELLS["rot_lstm"].gate_sizes(5)
        [5, 5, 5, 5, 2]
        """
        sizes = [hidden_size] * len(self.recurrence.gates)
        return sizes + [self.rotation.angles(hidden_size)] * len(self.rotation.gates)

    def rows(self, hidden_size: int) -> int:
        """Rows of each weight and bias."""
        return sum(self.gate_sizes(hidden_size))

    def recurrent_rows(self, hidden_size: int, angles_from: str = "both") -> int:
        """Rows of w_hh and b_hh.

        >>> CELLS["rot_lstm"].recurrent_rows(5), CELLS["rot_lstm"].recurrent_rows(5, "input")
        (22, 20)
        """
        if not self.reads_h:
            return 0
        rows = self.rows(hidden_size)
        return rows - (self.rotation.angles(hidden_size) if angles_from == "input" else 0)

    def saved_rows(self, hidden_size: int) -> int:
        """Columns of the gates that kernels save: of gates kept apart, those of h come last.

        >>> CELLS["gru"].rows(5), CELLS["gru"].saved_rows(5)
        (15, 20)
        """
        return self.rows(hidden_size) + len(self.recurrence.apart) * hidden_size

    def bias_columns(self, hidden_size: int) -> int:
        """Numbers of the gradient that the kernels compute for both biases together."""
        return self.saved_rows(hidden_size)

    def split_bias(self, bias: Tensor, recurrent_rows: int) -> tuple[Tensor, Tensor]:
        """The gradients of b_ih and b_hh, of so many rows, from that of the saved columns."""
        if not self.recurrence.apart:
            return bias, bias[:recurrent_rows].clone()
        gates = len(self.gates) + len(self.recurrence.apart)
        of_gate = dict(enumerate(bias.chunk(gates)))
        of_h = dict(of_gate)
        for number, gate in enumerate(self.recurrence.apart):
            of_h[self.gates.index(gate)] = of_gate[len(self.gates) + number]
        b_ih, b_hh = (torch.cat([of[k] for k in range(len(self.gates))]) for of in (of_gate, of_h))
        return b_ih, b_hh

    def with_constants(self, *values: float) -> Cell:
        """The cell with other values of its `constants`."""
        return self

    def own_dimensions(self, hidden_size: int) -> dict[str, int]:
        """Sizes of parameters that only this cell has, by the letters of their shapes."""
        return {}

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
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
        recurrent_dropout: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """One timestep.

        Args:
            x: ``[B, I]``, input.
            states: the last output ``h [B, P]`` and, of an LSTM, the cell state ``c [B, H]``.
            weights: see `Weights`; a tuple of the same will do.
            gate_activation: the activation of the gates, one of `GATE_FUNCTIONS`.
            angle_activation: the activation of the angles, one of `GATE_FUNCTIONS`.
            recurrent_dropout: ``[B, P]``, factors of the old output where it enters a matmul.

        Returns:
            The new states.
        """
        w_ih, w_hh, b_ih, b_hh, w_hr = Weights(*weights)
        a = Gates(
            self,
            states[-1].shape[-1],
            GATE_FUNCTIONS[gate_activation],
            GATE_FUNCTIONS[angle_activation],
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
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
        hooks: StateHooks = NO_HOOKS,
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
            gate_activation: as in `step`.
            angle_activation: as in `step`.
            hooks: what happens to the state between the steps.
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
            old = hooks.start([s[:active] for s in states], sizes, t, reverse)
            mask = hooks.recurrent_dropout
            mask = None if mask is None else mask[:active]
            new = self.step(tokens[t], old, weights, gate_activation, angle_activation, mask)
            new = hooks.mix(new, old, sizes, t)
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
        # An empty batch does not determine its number of steps, nor does it matter.
        sizes = [batch] * (tokens // batch if batch else 1)
    else:
        sizes = batch_sizes.tolist()
        if sizes[:1] != [batch] or sizes != sorted(sizes, reverse=True):
            raise RuntimeError(
                f"batch_sizes must start at the batch size {batch} and never increase, got {sizes}"
            )
    if sum(sizes) != tokens:
        raise RuntimeError(f"batch_sizes {sizes} sum to {sum(sizes)}, but x has {tokens} rows")
    return sizes


#: The cells, by name: the same ones, in the same order, as in csrc/cells/list.h.
CELLS = {
    cell.name: cell
    for cell in (
        Cell("rot_lstm", LSTM, PAIRS),
        Cell("rot_gru", GRU, PAIRS),
        Cell("lstm", LSTM, NONE),
        Cell("classic_gru", GRU, NONE),
        Cell("gru", TORCH_GRU, NONE),
        Cell("rot_lstm_3", LSTM, group_rotation(3)),
        Cell("rot_gru_3", GRU, group_rotation(3)),
        Cell("rot_lstm_4", LSTM, group_rotation(4)),
        Cell("rot_gru_4", GRU, group_rotation(4)),
        Cell("rot_lstm_8", LSTM, group_rotation(8)),
        Cell("rot_gru_8", GRU, group_rotation(8)),
    )
}


#: All gates of an LSTM with a rotated cell state from x alone: it is linear in c.
LINEAR_ROT_LSTM = Cell("linear_rot_lstm", LSTM, PAIRS, reads_h=False)


@functools.cache
def with_rotation_size(cell: Cell, size: int) -> Cell:
    """The cell with the same recurrence that rotates groups of `size` units instead of pairs.

    >>> with_rotation_size(CELLS["rot_lstm"], 4)
    <cell rot_lstm_4>
    """
    if size == cell.rotation.size:
        return cell
    name = f"{cell.name}_{size}"
    if name in CELLS:
        return CELLS[name]
    return Cell(name, cell.recurrence, group_rotation(size), cell.reads_h)
