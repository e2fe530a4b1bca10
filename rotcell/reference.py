"""RotLSTM and RotGRU in plain PyTorch: what every kernel of this package is tested against.

Written to be read beside the paper. Nothing here happens in place, so autograd (any number of
times), forward-mode AD and ``torch.func`` work on any float type and any device.

Both cells rotate pairs of memory units by learned angles
``u = 2 pi sigmoid(W_rot [h, x] + b_rot)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "GRU_GATES",
    "LSTM_GATES",
    "gate_sizes",
    "rot_gru",
    "rot_gru_step",
    "rot_lstm",
    "rot_lstm_step",
    "rotate",
]

ROTATION = "rot"

#: Order of the gates in the rows of a weight matrix. The first four are nn.LSTM's.
LSTM_GATES = ("i", "f", "g", "o", ROTATION)
#: As above, for the GRU: reset, update, candidate, rotation.
GRU_GATES = ("r", "z", "n", ROTATION)


def gate_sizes(gates: Sequence[str], hidden_size: int) -> list[int]:
    """Rows each gate has: one a unit, and for the rotation one a pair of units.

    >>> gate_sizes(LSTM_GATES, 5)
    [5, 5, 5, 5, 2]
    """
    return [hidden_size // 2 if gate == ROTATION else hidden_size for gate in gates]


def _by_gate(
    stacked: Tensor, gates: Sequence[str], hidden_size: int, dim: int
) -> dict[str, Tensor]:
    """Split a tensor in which the gates lie one after the other."""
    return dict(
        zip(gates, stacked.split_with_sizes(gate_sizes(gates, hidden_size), dim), strict=True)
    )


def _angles(a: Tensor) -> Tensor:
    return 2 * math.pi * torch.sigmoid(a)


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


def rot_lstm_step(
    x: Tensor,
    h: Tensor,
    c: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    w_hr: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One timestep of RotLSTM.

    Args:
        x: ``[B, I]``, input.
        h: ``[B, P]``, previous output (P is H without a projection).
        c: ``[B, H]``, previous memory.
        w_ih: ``[4H + H//2, I]``, rows in the order of `LSTM_GATES`.
        w_hh: ``[4H + H//2, P]``.
        b_ih: ``[4H + H//2]`` or None.
        b_hh: ``[4H + H//2]`` or None.
        w_hr: ``[P, H]``, projection of the output, or None.

    Returns:
        The new ``h`` and ``c``.
    """
    a = F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)
    gate = _by_gate(a, LSTM_GATES, c.shape[-1], dim=-1)
    i, f, o = torch.sigmoid(gate["i"]), torch.sigmoid(gate["f"]), torch.sigmoid(gate["o"])
    g = torch.tanh(gate["g"])
    u = _angles(gate["rot"])

    d = f * c + i * g
    c = rotate(d, u)
    h = o * torch.tanh(c)
    return (h if w_hr is None else F.linear(h, w_hr)), c


def rot_gru_step(
    x: Tensor,
    h: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """One timestep of RotGRU.

    Reset and rotation act on h before the candidate's product, as in the paper (nn.GRU resets
    after it), so the rows "n" of `w_hh` multiply the rotated memory.

    Args:
        x: ``[B, I]``, input.
        h: ``[B, H]``, previous state.
        w_ih: ``[3H + H//2, I]``, rows in the order of `GRU_GATES`.
        w_hh: ``[3H + H//2, H]``.
        b_ih: ``[3H + H//2]`` or None.
        b_hh: ``[3H + H//2]`` or None.

    Returns:
        The new ``h``.
    """
    hidden_size = h.shape[-1]
    from_x = _by_gate(F.linear(x, w_ih, b_ih), GRU_GATES, hidden_size, dim=-1)
    weight = _by_gate(w_hh, GRU_GATES, hidden_size, dim=0)
    bias = {} if b_hh is None else _by_gate(b_hh, GRU_GATES, hidden_size, dim=0)

    def preactivation(gate: str, memory: Tensor) -> Tensor:
        return from_x[gate] + F.linear(memory, weight[gate], bias.get(gate))

    z = torch.sigmoid(preactivation("z", h))
    r = torch.sigmoid(preactivation("r", h))
    u = _angles(preactivation("rot", h))

    d = h * r
    n = torch.tanh(preactivation("n", rotate(d, u)))
    return (1 - z) * h + z * n


def rot_lstm(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    w_hr: Tensor | None = None,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a sequence through one direction of one RotLSTM layer.

    Args:
        x: ``[N, I]``, the tokens of all timesteps, one timestep after the other.
        h0: ``[B, P]``, output before the first step.
        c0: ``[B, H]``, memory before the first step.
        w_ih: see `rot_lstm_step`, as are the other weights.
        w_hh: ``[4H + H//2, P]``.
        b_ih: ``[4H + H//2]`` or None.
        b_hh: ``[4H + H//2]`` or None.
        w_hr: ``[P, H]`` or None.
        batch_sizes: how many rows each timestep has, as in PackedSequence (int64, on the CPU, never
            increasing, starting at B). None: all have B.
        reverse: run from the last timestep to the first; each row starts at its own last token.

    Returns:
        ``out [N, P]``, and ``h_n [B, P]``, ``c_n [B, H]`` after the last step of each row.
    """

    def step(x_t: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        return rot_lstm_step(x_t, h, c, w_ih, w_hh, b_ih, b_hh, w_hr)

    out, (h_n, c_n) = _scan(step, x, (h0, c0), batch_sizes, reverse)
    return out, h_n, c_n


def rot_gru(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run a sequence through one direction of one RotGRU layer.

    Args:
        x: ``[N, I]``, the tokens of all timesteps, one timestep after the other.
        h0: ``[B, H]``, state before the first step.
        w_ih: see `rot_gru_step`, as are the other weights.
        w_hh: ``[3H + H//2, H]``.
        b_ih: ``[3H + H//2]`` or None.
        b_hh: ``[3H + H//2]`` or None.
        batch_sizes: see `rot_lstm`.
        reverse: see `rot_lstm`.

    Returns:
        ``out [N, H]``, and ``h_n [B, H]`` after the last step of each row.
    """

    def step(x_t: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        return (rot_gru_step(x_t, h, w_ih, w_hh, b_ih, b_hh),)

    out, (h_n,) = _scan(step, x, (h0,), batch_sizes, reverse)
    return out, h_n


def _scan(
    step: Callable[..., tuple[Tensor, ...]],
    x: Tensor,
    state: tuple[Tensor, ...],
    batch_sizes: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Carry the state through all timesteps; its first tensor is also the output."""
    sizes = _rows_per_step(x, state[0].shape[0], batch_sizes)
    tokens = x.split_with_sizes(sizes)
    outputs = list(tokens)
    for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
        active = sizes[t]
        new_state = step(tokens[t], *(s[:active] for s in state))
        outputs[t] = new_state[0]
        # Rows beyond the active ones have ended (forward) or have not begun (reverse).
        state = tuple(
            torch.cat([new, s[active:]]) if active < s.shape[0] else new
            for new, s in zip(new_state, state, strict=True)
        )
    return torch.cat(outputs), state


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
