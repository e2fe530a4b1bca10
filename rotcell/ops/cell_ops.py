"""The ops of each cell, and where their arguments and results are, by the names of the schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rotcell import _libraries
from rotcell.reference import CELLS, GATE_FUNCTIONS, Cell, StateHooks
from rotcell.reference_rows import ROW_CELLS

from .private_torch import schema_of

__all__ = [
    "ACTIVATION_NAMES",
    "ACTIVATION_NUMBERS",
    "CELL_OPS",
    "OVERLOADS",
    "CellArguments",
    "CellOps",
    "Op",
]

#: The overloads that every device has. torch handles every argument of a call, used or not, so the
#: rarely used arguments are left to the second.
OVERLOADS = ("default", "extended")

#: A third overload, with a bias per row of the batch; on the CPU only.
ROW_BIAS = "row_bias"

#: The ops know activations by number.
ACTIVATION_NAMES = tuple(GATE_FUNCTIONS)
ACTIVATION_NUMBERS = {name: number for number, name in enumerate(ACTIVATION_NAMES)}


class Op:
    """An op's overload, with the names of its arguments and results."""

    def __init__(self, name: str, overload: str) -> None:
        self.call: Any = getattr(getattr(torch.ops.rotcell, name), overload)
        schema = schema_of(self.call)
        self.arguments = tuple(a.name for a in schema.arguments)
        self.results = tuple(r.name for r in schema.results)


class Overload(NamedTuple):
    """The forward op and its backward op."""

    forward: Op
    backward: Op


def slice_of(names: Sequence[str], group: Sequence[str]) -> slice:
    """The slice of `names` that is `group`."""
    if not group:
        return slice(0, 0)
    start = names.index(group[0])
    found = slice(start, start + len(group))
    assert tuple(names[found]) == tuple(group), f"{group} must be neighbors in {names}"
    return found


class CellArguments:
    """The tensors that a call of a cell takes, whether or not there are compiled ops.

    Attributes:
        cell: the cell.
        states: names of the initial states.
        weights: names of the weights.
        tensors: names of all arguments that have gradients: x, states, weights.
        num_weights: how many of the cell's weights a call takes.
        first_weight: position of the first weight in `tensors`.
    """

    def __init__(self, cell: Cell, weights: tuple[str, ...] | None = None) -> None:
        self.cell = cell
        self.states = tuple(f"{state}0" for state in cell.states)
        self.weights = cell.weights_type._fields if weights is None else weights
        self.tensors = ("x", *self.states, *self.weights)
        self.num_weights = len(self.weights)
        self.first_weight = self.tensors.index(self.weights[0])

    def with_constants(self, values: Sequence[Any]) -> CellArguments:
        """The same for the cell with these values of its constants."""
        return CellArguments(self.cell.with_constants(*values), self.weights) if values else self

    def split(self, tensors: Sequence[Any]) -> tuple[Tensor, Sequence[Tensor], Any]:
        """Split a call's tensors into x, states and weights."""
        return (
            tensors[0],
            tensors[1 : self.first_weight],
            self.cell.weights_type(*tensors[self.first_weight :]),
        )


class CellOps(CellArguments):
    """The ops of a cell.

    Attributes, in addition to those of `CellArguments`:
        plain: the overload without state hooks.
        extended: the overload with them, and with returned cell states.
        row_bias: the overload with a bias per row of the batch; None for cells that see whole rows.
        options: names of the arguments after `batch_sizes` that are no tensors; those of the cell
            itself, `Cell.constant_names`, come last.
        hooks: names of the state hooks that the extended overload takes.
        results: names of what a layer gets: output and last states.
        saved: names of what the forward op saves for backward, which are its other results.
    """

    def __init__(self, cell: Cell) -> None:
        self.plain, self.extended = (_overload(cell, overload) for overload in OVERLOADS)
        self.row_bias = None if cell.sees_rows else _overload(cell, ROW_BIAS)
        arguments, results = self.plain.forward.arguments, self.plain.forward.results
        fields = cell.weights_type._fields
        super().__init__(cell, tuple(name for name in fields if name in arguments))
        self.options = ("reverse", "gate_activation", "angle_activation", *cell.constant_names)
        extended = self.extended.forward.arguments
        self.hooks = tuple(name for name in StateHooks._fields if name in extended)
        self.results = ("out", *(f"{state}_n" for state in cell.states))
        self.saved = tuple(name for name in results if name not in self.results)
        self._returns_cells = "return_cells" in extended
        # Calls pass arguments in this order, without a look at the names.
        given = (*self.tensors, "batch_sizes", *self.options, "save")
        last = ("return_cells",) if self._returns_cells else ()
        assert arguments == given
        assert extended == (*given, *self.hooks, *last)
        if self.row_bias is not None:
            assert self.row_bias.forward.arguments == (*given, "row_bias")
        assert results == (*self.results, *self.saved)
        assert self.weights == fields[: self.num_weights]
        assert self.hooks == StateHooks._fields[: len(self.hooks)]

    def overload(self, extension: Sequence[Any]) -> Overload:
        """The overload that takes what `extension` gave."""
        return self.extended if extension else self.plain

    def extension(self, hooks: StateHooks, return_cells: bool) -> tuple[Any, ...]:
        """What the extended overload of the forward op takes after `save`; empty if nothing."""
        if not return_cells and all(hook is None for hook in hooks):
            return ()
        taken = hooks[: len(self.hooks)]
        return (*taken, return_cells) if self._returns_cells else taken

    def returned(self, results: Sequence[Tensor], return_cells: bool) -> tuple[Tensor, ...]:
        """Output, last states and, if asked for, the cell states, from the op's results."""
        wanted = tuple(results[: len(self.results)])
        return (*wanted, results[-1]) if return_cells else wanted


def _overload(cell: Cell, overload: str) -> Overload:
    return Overload(Op(cell.name, overload), Op(f"{cell.name}_backward", overload))


_COMPILED = (*CELLS.values(), *ROW_CELLS) if _libraries.load() else ()

#: Empty where nothing is compiled.
CELL_OPS = {cell.name: CellOps(cell) for cell in _COMPILED}
