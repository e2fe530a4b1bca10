"""THE list of cells that can be compared: what a name on the command line stands for.

Another cell is another entry here; the paper's numbers, for those it has, are in `report.paper`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from torch import nn

import rotcell
from rotcell.babi.errors import SettingsError

GATES: Final = ("hard_sigmoid", "sigmoid")


@dataclass(frozen=True)
class Cell:
    """A recurrent layer to build models with."""

    title: str
    make: Callable[[int, int, str, str], nn.Module]  # input size, state size, gates, angle
    forget_bias: bool = False  # whether rows H to 2H are a forget gate, which starts open
    plain: str | None = None  # the cell without rotation to compare with; None: has no angles
    gates: tuple[str, ...] = GATES  # the gate functions it can have


def _from_rotcell(name: str) -> Callable[[int, int, str, str], nn.Module]:
    def make(inputs: int, size: int, gates: str, angle: str) -> nn.Module:
        options = {"gates": gates} if gates != "sigmoid" else {}
        if angle != "sigmoid":
            options["angle_gates"] = angle
        try:
            layer: nn.Module = getattr(rotcell, name)(inputs, size, **options)
        except (AttributeError, TypeError) as error:
            raise SettingsError(
                f"this rotcell ({rotcell.__version__}) has no {name} with {gates} gates and a "
                f"{angle} angle: {error}"
            ) from None
        return layer

    return make


def _from_torch(layer: type[nn.Module]) -> Callable[[int, int, str, str], nn.Module]:
    return lambda inputs, size, _gates, _angle: layer(inputs, size)


CELLS: Final = {
    "lstm": Cell("LSTM", _from_rotcell("LSTM"), forget_bias=True),
    "rotlstm": Cell("RotLSTM", _from_rotcell("RotLSTM"), forget_bias=True, plain="lstm"),
    "gru": Cell("GRU", _from_rotcell("ClassicGRU")),
    "rotgru": Cell("RotGRU", _from_rotcell("RotGRU"), plain="gru"),
    "lstm-torch": Cell("nn.LSTM", _from_torch(nn.LSTM), forget_bias=True, gates=("sigmoid",)),
    "gru-torch": Cell("nn.GRU", _from_torch(nn.GRU), gates=("sigmoid",)),
}
