"""The list of cells that runs can compare, by their names on the command line.

Another cell is another entry here; the paper's numbers, for those it has, are in `report.paper`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from torch import nn

from rotcell import LSTM, ClassicGRU, RotGRU, RotLSTM

GATES: Final = ("hard_sigmoid", "sigmoid")

Make = Callable[[int, int, str, str], nn.Module]  # input size, state size, gates, angle


@dataclass(frozen=True)
class Cell:
    """A recurrent layer to build models with."""

    title: str
    make: Make
    forget_bias: bool = False  # whether rows H to 2H are a forget gate, which starts open
    plain: str | None = None  # the cell without rotation to compare with; None: has no angles
    gates: tuple[str, ...] = GATES  # the gate functions it can have
    takes_context: bool = True  # whether the layer takes what is the same at every step apart


def _plain(layer: Callable[..., nn.Module]) -> Make:
    return lambda inputs, size, gates, _angle: layer(inputs, size, gate_activation=gates)


def _rotating(layer: Callable[..., nn.Module]) -> Make:
    return lambda inputs, size, gates, angle: layer(
        inputs, size, gate_activation=gates, angle_activation=angle
    )


def _from_torch(layer: Callable[..., nn.Module]) -> Make:
    return lambda inputs, size, _gates, _angle: layer(inputs, size)


CELLS: Final = {
    "lstm": Cell("LSTM", _plain(LSTM), forget_bias=True),
    "rotlstm": Cell("RotLSTM", _rotating(RotLSTM), forget_bias=True, plain="lstm"),
    "gru": Cell("GRU", _plain(ClassicGRU)),
    "rotgru": Cell("RotGRU", _rotating(RotGRU), plain="gru"),
    "lstm-torch": Cell(
        "nn.LSTM", _from_torch(nn.LSTM), forget_bias=True, gates=("sigmoid",), takes_context=False
    ),
    "gru-torch": Cell("nn.GRU", _from_torch(nn.GRU), gates=("sigmoid",), takes_context=False),
}
