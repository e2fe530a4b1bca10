"""The layers that the lab compares, by name, and where their angles start."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from torch import nn

from rotcell import EURNN, GORU, GRU, LSTM, RUM, ClassicGRU, LinearRotLSTM, RotGRU, RotLSTM
from rotcell.lab.errors import SettingsError

#: Where angles start, and the rotation_bias of it: "pi" is the paper's, "zero" is near no rotation.
STARTS: Final[dict[str, float | str]] = {"pi": 0.0, "zero": -3.0, "spread": "spread"}


@dataclass(frozen=True)
class Cell:
    """A recurrent layer and how it is initialized."""

    title: str
    layer: Callable[..., nn.Module]
    options: dict[str, Any]
    rotating: bool = False
    plain: str | None = None  # the layer without rotation to compare with


_FORGET: Final = {"forget_bias": 1.0}
_NORM: Final = {**_FORGET, "layer_norm": True}

CELLS: Final = {
    "lstm": Cell("LSTM", LSTM, _FORGET),
    "rotlstm": Cell("RotLSTM", RotLSTM, _FORGET, rotating=True, plain="lstm"),
    **{
        f"rotlstm{size}": Cell(
            f"RotLSTM, groups of {size}",
            RotLSTM,
            {**_FORGET, "rotation_size": size},
            rotating=True,
            plain="lstm",
        )
        for size in (3, 4, 8)
    },
    "rotlstm-input": Cell(
        "RotLSTM, angles from the input",
        RotLSTM,
        {**_FORGET, "angles_from": "input"},
        rotating=True,
        plain="lstm",
    ),
    "linearrotlstm": Cell("LinearRotLSTM", LinearRotLSTM, _FORGET, rotating=True, plain="lstm"),
    "lnlstm": Cell("LSTM, layer norm", LSTM, _NORM),
    "lnrotlstm": Cell("RotLSTM, layer norm", RotLSTM, _NORM, rotating=True, plain="lnlstm"),
    "gru": Cell("GRU", GRU, {}),
    "classicgru": Cell("ClassicGRU", ClassicGRU, {}),
    "rotgru": Cell("RotGRU", RotGRU, {}, rotating=True, plain="classicgru"),
    "rum": Cell("RUM", RUM, {}),
    "goru": Cell("GORU", GORU, {}),
    "eurnn": Cell("EURNN", EURNN, {}),
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
    options = dict(CELLS[cell].options)
    if start:
        options["rotation_bias"] = STARTS[start]
    return CELLS[cell].layer(inputs, size, num_layers=layers, **options)


def implementation(cell: str) -> str:
    """What computes a cell, for the record of a run."""
    layer = CELLS[cell].layer
    return f"{layer.__module__.split('.')[0]}.{getattr(layer, '__name__', 'layer')}"


def parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


@cache
def matched_size(cell: str, inputs: int, outputs: int, size: int, twin: str | None = None) -> int:
    """The smallest size at which `cell` has as many weights as its rotating twin of `size`.

    Counted with a linear layer of so many outputs. GRU is matched to RotGRU as ClassicGRU is, and a
    cell without a twin to RotLSTM.
    """
    twins = (name for name, each in CELLS.items() if each.plain == cell)
    twin = twin or ("rotgru" if cell == "gru" else next(twins, "rotlstm"))

    def weights(each: str, units: int) -> int:
        with torch.device("meta"):
            layer = CELLS[each].layer(inputs, units, **CELLS[each].options)
            return parameters(layer) + parameters(nn.Linear(units, outputs))

    wanted = weights(twin, size)
    enough = size
    while weights(cell, enough) < wanted:
        enough *= 2
    units = range(size, enough + 1)  # searched in halves: studies do this on import
    return units[bisect_left(units, wanted, key=lambda each: weights(cell, each))]
