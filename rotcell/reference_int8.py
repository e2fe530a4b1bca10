"""Cells with int8 weights in plain PyTorch: what the int8 kernels are tested against.

Weights have one scale per row. Whatever they multiply, x, h or a GRU's reset state, is quantized on
the way, with one scale per token: its largest absolute value / 127. Sums are exact integers. All
else is float32, by the equations of `rotcell.reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import CELLS, Cell, Weights

__all__ = ["INT8_CELLS", "Int8Cell", "Int8Matrix", "Int8Weights", "quantize_weight", "unpack"]

#: Packed weights are ``[rows / 16, columns / 4, 16, 4]``, rounded up, the rest filled with zeros.
PANEL_ROWS, GROUP = 16, 4
LARGEST = 127
#: Rows with no larger absolute value are zero.
LEAST = 1e-30


class Int8Weights(NamedTuple):
    """The weights of one direction of one layer, quantized; letters as in `reference.Weights`."""

    w_ih: Tensor  # int8, packed [R, I]
    w_hh: Tensor  # int8, packed [S, P], S rows that h feeds
    s_ih: Tensor  # [R], scales
    s_hh: Tensor  # [S]
    bias: Tensor | None = None  # [G], sum of both; of gates kept apart, that of h comes last
    w_hr: Tensor | None = None  # int8, packed [P, H]
    s_hr: Tensor | None = None  # [P]


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integers ``[N, D]``, as floats, and the scales ``[N, 1]`` of the rows of ``[N, D]``.

    A row with NaN or infinity has the scale NaN.
    """
    if x.shape[-1] == 0:
        return x, x.new_zeros(*x.shape[:-1], 1)
    largest = x.abs().amax(-1, keepdim=True)
    scale = torch.where(largest.isfinite(), largest / LARGEST, torch.nan)
    used = largest.isfinite() & (largest >= LEAST)
    inverse = LARGEST / torch.where(used, largest, 1.0)
    return torch.where(used, (x * inverse).round(), 0.0), scale


def pack(values: Tensor) -> Tensor:
    """Int8 ``[R, D]`` as the kernels read it."""
    rows, columns = values.shape
    padded = F.pad(values, (0, -columns % GROUP, 0, -rows % PANEL_ROWS))
    shape = (padded.shape[0] // PANEL_ROWS, PANEL_ROWS, padded.shape[1] // GROUP, GROUP)
    return padded.reshape(shape).transpose(1, 2).contiguous()


def unpack(packed: Tensor, rows: int, columns: int) -> Tensor:
    """The inverse of `pack`.

    >>> weight = torch.arange(6, dtype=torch.int8).reshape(2, 3)
    >>> pack(weight).shape, torch.equal(unpack(pack(weight), 2, 3), weight)
    (torch.Size([1, 1, 16, 4]), True)
    """
    panels, groups = packed.shape[:2]
    wide = packed.transpose(1, 2).reshape(panels * PANEL_ROWS, groups * GROUP)
    return wide[:rows, :columns]


def quantize_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight ``[R, D]`` as packed int8 and the scales ``[R]`` of its rows."""
    values, scale = quantize_rows(weight.detach())
    return pack(values.to(torch.int8)), scale.squeeze(-1).contiguous()


class Int8Matrix:
    """Int8 weights ``[R, D]`` with their scales, as an argument of ``F.linear``."""

    def __init__(self, values: Tensor, scales: Tensor) -> None:
        self.values = values  # [R, D]
        self.scales = scales  # [R]

    @property
    def shape(self) -> torch.Size:
        """``[R, D]``."""
        return self.values.shape

    def __getitem__(self, rows: slice) -> Int8Matrix:
        return Int8Matrix(self.values[rows], self.scales[rows])

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: dict[str, Any] | None = None,
    ) -> Any:
        """Called by ``F.linear(x, matrix, bias)``."""
        if function is not F.linear:
            return NotImplemented
        x, matrix, *rest = arguments
        bias = rest[0] if rest else (options or {}).get("bias")
        values, scale = quantize_rows(x)
        # Every product and sum of these integers is a float64.
        sums = values.double() @ matrix.values.double().T
        result = sums.float() * (matrix.scales * scale)
        return result if bias is None else bias + result


class Int8Cell(Cell):
    """A cell with int8 weights."""

    is_quantized: ClassVar[bool] = True
    weights_type: type[Any] = Int8Weights

    def __init__(self, cell: Cell) -> None:
        super().__init__(f"{cell.name}_int8", cell.recurrence, cell.rotation)
        self.float_cell = cell

    def bias(self, b_ih: Tensor | None, b_hh: Tensor | None, hidden_size: int) -> Tensor | None:
        """The biases as one, for the columns of the gates."""
        if b_ih is None or b_hh is None:
            return None
        if not self.recurrence.apart:
            return b_ih + F.pad(b_hh, (0, len(b_ih) - len(b_hh)))
        of_h = [b_hh[self.rows_of(gate, hidden_size)] for gate in self.gates]
        apart = [g in self.recurrence.apart for g in self.gates]
        added = [torch.zeros_like(b) if a else b for b, a in zip(of_h, apart, strict=True)]
        kept = [b for b, a in zip(of_h, apart, strict=True) if a]
        return torch.cat([b_ih + torch.cat(added), *kept])

    def step(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        weights: Any,
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
        recurrent_dropout: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """One timestep, as `Cell.step`."""
        w = Int8Weights(*weights)
        hidden_size, outputs = states[-1].shape[-1], states[0].shape[-1]
        rows = self.rows(hidden_size)
        b_ih = b_hh = w_hr = None
        if w.bias is not None:
            b_ih = w.bias[:rows]
            if self.recurrence.apart:  # the gates before them have their whole bias from x
                of_h = w.bias[rows:]
                b_hh = F.pad(of_h, (len(w.s_hh) - len(of_h), 0))
        if w.w_hr is not None and w.s_hr is not None:
            w_hr = Int8Matrix(unpack(w.w_hr, outputs, hidden_size), w.s_hr)
        matrices = Weights(
            Int8Matrix(unpack(w.w_ih, rows, x.shape[-1]), w.s_ih),  # type: ignore[arg-type]
            Int8Matrix(unpack(w.w_hh, len(w.s_hh), outputs), w.s_hh),  # type: ignore[arg-type]
            b_ih,
            b_hh,
            w_hr,  # type: ignore[arg-type]
        )
        return super().step(
            x, states, matrices, gate_activation, angle_activation, recurrent_dropout
        )


#: By the names of the cells that they are made of.
INT8_CELLS = {name: Int8Cell(cell) for name, cell in CELLS.items()}
