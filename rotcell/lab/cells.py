"""The layers that the lab compares, by name, and where their angles start."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

import rotcell
from rotcell import LSTM, ClassicGRU, RotGRU, RotLSTM
from rotcell.lab.errors import SettingsError

#: "pi" is the paper's start (zero bias), "zero" starts near no rotation, "spread" gives every angle
#: its own start, from a 64th of a turn to half a turn on a log scale.
STARTS: Final = ("pi", "zero", "spread")
_ZERO_BIAS: Final = -3.0
_SPREAD_SMALLEST: Final = 2 * math.pi / 64


@dataclass(frozen=True)
class Cell:
    """A recurrent layer and how it is initialized."""

    title: str
    layer: Callable[..., nn.Module]
    options: dict[str, Any]
    rotating: bool = False
    plain: str | None = None  # the layer without rotation to compare with


#: nn.GRU until rotcell has a layer with the same equations.
_GRU: Final[Callable[..., nn.Module]] = getattr(rotcell, "GRU", nn.GRU)

CELLS: Final = {
    "lstm": Cell("LSTM", LSTM, {"forget_bias": 1.0}),
    "rotlstm": Cell("RotLSTM", RotLSTM, {"forget_bias": 1.0}, rotating=True, plain="lstm"),
    **{
        f"rotlstm{size}": Cell(
            f"RotLSTM, groups of {size}",
            RotLSTM,
            {"forget_bias": 1.0, "rotation_size": size},
            rotating=True,
            plain="lstm",
        )
        for size in (3, 4, 8)
    },
    "gru": Cell("GRU", _GRU, {}),
    "classicgru": Cell("ClassicGRU", ClassicGRU, {}),
    "rotgru": Cell("RotGRU", RotGRU, {}, rotating=True, plain="classicgru"),
}


def check_cell(cell: str, start: str) -> None:
    """SettingsError unless there is such a cell and it has angles that start like this."""
    if cell not in CELLS:
        raise SettingsError(f"cell must be one of {', '.join(CELLS)}, got {cell!r}")
    if CELLS[cell].rotating and start not in STARTS:
        raise SettingsError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    if not CELLS[cell].rotating and start:
        raise SettingsError(f"start must be empty for {cell}, which has no angles, got {start!r}")


def make_layer(cell: str, start: str, inputs: int, size: int, layers: int = 1) -> nn.Module:
    """A layer of `size` units for [T, N, inputs] or packed sequences."""
    check_cell(cell, start)
    layer = CELLS[cell].layer(inputs, size, num_layers=layers, **CELLS[cell].options)
    if start:
        set_start(layer, start)
    return layer


def set_start(layer: Any, start: str) -> None:
    """Shift the angles' biases, which are the last rows of `bias_ih`, to where they start."""
    with torch.no_grad():
        for name, _ in layer.named_parameters():
            if name.startswith("bias_ih"):
                angles = layer.gate_rows("rot", name)
                angles += start_biases(start, len(angles)).to(angles)


def start_biases(start: str, count: int) -> Tensor:
    """The bias of every angle, which is 2 pi sigmoid(bias)."""
    if start == "pi":
        return torch.zeros(count)
    if start == "zero":
        return torch.full((count,), _ZERO_BIAS)
    angles = torch.logspace(
        math.log10(_SPREAD_SMALLEST), math.log10(math.pi), count, dtype=torch.float64
    )
    return torch.logit(angles / (2 * math.pi)).float()


def implementation(cell: str) -> str:
    """What computes a cell, for the record of a run."""
    layer = CELLS[cell].layer
    return f"{layer.__module__.split('.')[0]}.{getattr(layer, '__name__', 'layer')}"


def parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def matched_size(cell: str, inputs: int, outputs: int, size: int) -> int:
    """The smallest size at which `cell` has as many weights as its rotating twin of `size`.

    Counted with a linear layer of so many outputs. GRU is matched to RotGRU as ClassicGRU is.
    """
    twin = {"lstm": "rotlstm", "gru": "rotgru", "classicgru": "rotgru"}[cell]

    def weights(each: str, units: int) -> int:
        with torch.device("meta"):
            layer = CELLS[each].layer(inputs, units, **CELLS[each].options)
            return parameters(layer) + parameters(nn.Linear(units, outputs))

    wanted = weights(twin, size)
    return next(units for units in range(size, 2 * size + 2) if weights(cell, units) >= wanted)
