"""One color per cell, in every figure."""

from __future__ import annotations

from typing import Final

COLORS: Final = {
    "lstm": "#1f6fb4",
    "rotlstm": "#d9541e",
    "gru": "#7f7f7f",
    "classicgru": "#3a923a",
    "rotgru": "#8064a2",
    "rotlstm3": "#e39a1b",
    "rotlstm4": "#b8860b",
    "rotlstm8": "#7a4b12",
    "linearrotlstm": "#c2185b",
}
OTHER: Final = "#17848c"


def color_of(cell: str) -> str:
    """The color of a cell by its name in `rotcell.lab.cells`."""
    return COLORS.get(cell, OTHER)
