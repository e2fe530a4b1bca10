"""The parameters of one layer and direction, as a table: names, shapes, when they are there.

Modules, checkpoints, conversion and docstrings read the table of a module's class. A cell with
other parameters brings its own table, and its own tuple in place of `reference.Weights`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rotcell.reference import Weights

if TYPE_CHECKING:
    from .base import CellModule

__all__ = [
    "INPUT_ONLY",
    "RECURRENT",
    "Parameter",
    "dimensions",
    "direction_suffixes",
    "input_only",
    "present",
]


class Parameter(NamedTuple):
    """A parameter that every layer and direction has."""

    name: str  #: a layer adds a suffix for layer and direction
    field: str  #: where it goes in `reference.Weights`
    #: Dimensions by letter. R: rows of all gates; S: rows of the gates that h feeds; I: input
    #: features; P: output features; H: units; L: layers of constant rotations; A: angles of one.
    shape: tuple[str, ...]
    option: str | None = None  #: absent if this option of the module is 0 or False
    takes_shifts: bool = False  #: whether rotation_bias and forget_bias are added to it
    start: float | None = None  #: its initial value; None: drawn at random

    @property
    def has_gates(self) -> bool:
        """Whether its rows are those of the gates, all or the first of them."""
        return self.shape[0] in ("R", "S")


#: The parameters of nn.LSTM and nn.GRU.
RECURRENT = (
    Parameter("weight_ih", "w_ih", ("R", "I")),
    Parameter("weight_hh", "w_hh", ("S", "P")),
    Parameter("bias_ih", "b_ih", ("R",), option="bias", takes_shifts=True),
    Parameter("bias_hh", "b_hh", ("S",), option="bias"),
    Parameter("weight_hr", "w_hr", ("P", "H"), option="proj_size"),
)

#: `RECURRENT` without the parameters that multiply h.
INPUT_ONLY = tuple(p for p in RECURRENT if p.name not in ("weight_hh", "bias_hh"))


def present(parameters: Sequence[Parameter], module: Any) -> list[Parameter]:
    """The parameters that a module has, by its options; it may be a module of torch."""
    return [p for p in parameters if p.option is None or getattr(module, p.option)]


def input_only(weights: Weights, output_size: int) -> Weights:
    """The weights of a cell that does not read h, as the ops take them: w_hh has no rows."""
    return weights._replace(w_hh=weights.w_ih.new_empty(0, output_size))


def dimensions(module: CellModule, input_size: int, output_size: int) -> Mapping[str, int]:
    """What the letters of a shape mean."""
    cell, hidden_size = module._cell, module.hidden_size
    shared = {
        "R": cell.rows(hidden_size),
        "S": cell.recurrent_rows(hidden_size, module.angles_from),
        "I": input_size,
        "P": output_size,
        "H": hidden_size,
    }
    return shared | cell.own_dimensions(hidden_size)


def direction_suffixes(module: Any) -> Iterator[str]:
    """The suffix of each layer and direction, in the order of h_n; "" for a single-step cell."""
    if not hasattr(module, "num_layers"):
        yield ""
        return
    for layer in range(module.num_layers):
        yield f"_l{layer}"
        if module.bidirectional:
            yield f"_l{layer}_reverse"
