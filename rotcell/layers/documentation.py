"""The sections that docstrings of several classes share: arguments and parameters.

A class has its own equations and example. `documented` puts before the example one entry per
argument of the constructor, and the parameters from their table.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import TypeVar

from .base import CellModule
from .options import OPTIONS
from .parameters import Parameter

__all__ = ["documented"]

_WIDTH = 100

#: The arguments that are not `OPTIONS`.
_ARGUMENTS = {
    "input_size": "features of the input.",
    "hidden_size": "H, units of {units}.{odd}",
    "num_layers": "number of stacked layers.",
    "bias": "whether there are `bias_ih` and `bias_hh`.",
    "batch_first": "take and return padded sequences as ``[B, T, ...]`` instead of "
    "``[T, B, ...]``. States are not affected.",
    "dropout": "probability of dropping outputs of every layer but the last, in training.",
    "bidirectional": "also run each layer from the last step to the first; D = 2 directions.",
    "proj_size": "if not 0, project outputs to this size (P, smaller than H); P is H otherwise.",
    "device": "device of the parameters.",
    "dtype": "dtype of the parameters.",
}

#: What the texts say differently of cells with a cell state c (True) and without (False).
_WORDS = {
    True: {
        "units": "the cell state",
        "gates": "i, f and o",
        "carried": "",
        "pair": ": one probability for h and c, or a pair (for h, for c)",
        "projected": " Not with a projection.",
    },
    False: {
        "units": "the state",
        "gates": "r and z",
        "carried": " The part of h that z carries over is not dropped.",
        "pair": "",
        "projected": "",
    },
}

_AnyModule = TypeVar("_AnyModule", bound=CellModule)


def documented(*, per_layer: bool) -> Callable[[type[_AnyModule]], type[_AnyModule]]:
    """Add the shared sections to a class's docstring.

    Args:
        per_layer: whether parameters exist once per layer and direction.
    """

    def document(cls: type[_AnyModule]) -> type[_AnyModule]:
        if cls.__doc__ is not None:  # python -OO
            # Python removes the indentation from 3.13 on; older versions keep it.
            own, heading, example = inspect.cleandoc(cls.__doc__).partition("\nExample:")
            shared = "\n".join([*_arguments(cls), "", *_parameters(cls, per_layer)])
            cls.__doc__ = f"{own}\n{shared}\n{heading}{example}"
        return cls

    return document


def _arguments(cls: type[CellModule]) -> Iterator[str]:
    names = list(inspect.signature(cls.__init__).parameters)[1:]
    words = dict(_WORDS[len(cls._cell.states) > 1])
    words["odd"] = " Units left over by groups are not rotated." if cls._cell.rotates else ""
    outputs = "P" if "proj_size" in names and cls._cell.can_project else "H"
    words["features"] = f"(input features + {outputs})"
    words["sizes"] = "all sizes but 2"
    if not cls._cell.reads_h:
        words |= {"features": "(input features)", "sizes": "all sizes"}
    yield "Args:"
    for name in names:
        if name == "proj_size" and not cls._cell.can_project:
            text = "must be None: only LSTMs have a projection."
        elif name in cls._argument_texts:
            text = cls._argument_texts[name]
        else:
            text = _ARGUMENTS.get(name) or OPTIONS[name].text
            text = text.format(**words)
        lines = textwrap.wrap(f"{name}: {text}", _WIDTH - 12, break_on_hyphens=False)
        yield f"    {lines[0]}"
        yield from (f"        {line}" for line in lines[1:])


def _parameters(cls: type[CellModule], per_layer: bool) -> Iterator[str]:
    cell = cls._cell
    count = len(cell.recurrence.gates)
    rows = (f"{count}H" if count > 1 else "H") + (" + A" if cell.rotates else "")
    recurrent = cell.recurrent_rows(2)
    letters = {
        "R": rows,
        "S": rows if recurrent == cell.rows(2) else f"{recurrent // 2}H",
        "I": "input features of the layer" if per_layer else "input_size",
        "P": "P" if per_layer and cell.can_project else "H",
        "H": "H",
        "L": "capacity",
        "A": "H//2",
    }
    order = f"rows in the order {', '.join(cell.gates)}"
    where = "for layer k (and again with the suffix ``_reverse``), " if per_layer else ""
    angles = "; A is H//2, or as `rotation_size` says" if cell.rotates else ""
    yield from textwrap.wrap(f"Parameters, {where}{order}{angles}:", _WIDTH - 4)
    yield ""
    for parameter in cls._parameter_table:
        if parameter.option == "proj_size" and not (per_layer and cell.can_project):
            continue
        yield _parameter(parameter, letters, "_l{k}" if per_layer else "")


def _parameter(parameter: Parameter, letters: dict[str, str], suffix: str) -> str:
    shape = ", ".join(letters[letter] for letter in parameter.shape)
    with_option = f", with {parameter.option} only"
    condition = {
        None: "",
        "bias": ", unless bias=False",
        "proj_size": ", with a projection only",
    }
    there = condition.get(parameter.option, with_option)
    return f"- ``{parameter.name}{suffix}``: ``[{shape}]``{there}"
