"""What layers and single-step cells share: options, parameters, gates by name, checkpoints."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, fx, nn

from rotcell.reference import Cell, with_rotation_size

from . import checkpoints
from .options import OPTIONS, angle_biases
from .parameters import RECURRENT, Parameter, present

__all__ = ["CellModule", "no_weights_drawn", "type_name", "types_fit", "weights_are_drawn"]


class _Drawing(threading.local):
    weights = True


_drawing = _Drawing()


@contextlib.contextmanager
def no_weights_drawn() -> Iterator[None]:
    """Leave the weights of new modules uninitialized in this block and thread.

    No random numbers are drawn. Blocks may be nested.
    """
    before = _drawing.weights
    _drawing.weights = False
    try:
        yield
    finally:
        _drawing.weights = before


def weights_are_drawn() -> bool:
    """Whether new modules get initial weights: False in `no_weights_drawn`."""
    return _drawing.weights


class CellModule(nn.Module):
    """A module that holds a cell's weights. A subclass sets the cell."""

    #: The cell; a module whose options choose another has that one, see `_chosen_cell`.
    _cell: Cell
    #: The parameters per layer and direction.
    _parameter_table: ClassVar[tuple[Parameter, ...]] = RECURRENT
    #: torch's module with parameters of the same names and shapes but different equations.
    _lookalike: ClassVar[str | None] = None
    #: Documentation of arguments whose meaning differs from the shared text, by name.
    _argument_texts: ClassVar[dict[str, str]] = {}
    #: What to do with weights of the same cell without its rotation, for an error message.
    _without_angles: ClassVar[str] = ""

    # Modules that lack an option, or were saved before it existed, have its default: see below.
    gate_activation: str
    angle_activation: str
    angles_from: str
    rotation_size: int
    rotation_bias: float | str
    forget_bias: float
    recurrent_dropout: float
    zoneout: float | tuple[float, float]
    proj_size: int = 0

    bias: bool
    hidden_size: int

    def _set_options(self, options: dict[str, Any]) -> None:
        """Check and keep the options that torch's modules do not have."""
        for name, value in options.items():
            setattr(self, name, OPTIONS[name].check(name, value, self))
        self._choose_cell()

    def _chosen_cell(self) -> Cell:
        """The cell that the options choose."""
        return with_rotation_size(type(self)._cell, self.rotation_size)

    def _choose_cell(self) -> None:
        chosen = self._chosen_cell()
        if chosen is not type(self)._cell:
            self._cell = chosen

    # A cell is a description, no data: a copy, or a module that is loaded, finds its own.

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_cell"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__setstate__(self, state)  # that of RNNBase knows torch's own layers only
        self._choose_cell()

    def reset_parameters(self) -> None:
        """Draw the parameters from the uniform distribution in ±1/sqrt(hidden_size).

        The gains of layer norm start at 1 and its bias at 0.

        Then add `rotation_bias` and `forget_bias` to their gates' rows of `bias_ih`, if the module
        has these options.
        """
        if not _drawing.weights:
            return
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        shifts = {"rot": self.rotation_bias, "f": self.forget_bias}
        shifted = tuple(p.name for p in self._parameter_table if p.takes_shifts)
        starts = {p.name: p.start for p in self._parameter_table if p.start is not None}
        for name, parameter in self.named_parameters():
            constant = next((v for kind, v in starts.items() if name.startswith(kind)), None)
            if constant is not None:
                nn.init.constant_(parameter, constant)
                continue
            nn.init.uniform_(parameter, -bound, bound)
            for gate, shift in shifts.items():
                if name.startswith(shifted) and gate in self._cell.gates:
                    rows = parameter.detach()[self._cell.rows_of(gate, self.hidden_size)]
                    rows += angle_biases(shift, rows)

    def _read(self, names: Sequence[str | None]) -> list[Any]:
        """The parameters of these names, or what replaces them (a parametrization, for example).

        None gives None. nn.Module's own lookup takes 1 µs; a step of a cell takes 20 µs.
        """
        parameters = self._parameters
        return [
            None if n is None else parameters[n] if n in parameters else getattr(self, n)
            for n in names
        ]

    def _typed_weight(self, weights: Any) -> Tensor:
        """One of a cell's weights: of the dtype that the input must have."""
        return weights.w_ih  # type: ignore[no-any-return]

    def _in_fx_graph(self, *arguments: Any, **options: Any) -> Any:
        """Become one node in the graph that torch.fx is tracing, as torch's own layers do."""
        tracer: Any = next(a.tracer for a in arguments if isinstance(a, fx.Proxy))
        options = {
            n: value for n, value in options.items() if value is not None and value is not False
        }
        return tracer.create_proxy("call_module", tracer.path_of_module(self), arguments, options)

    def __prepare_scriptable__(self) -> Any:
        """Called by torch.jit.script, which does not support these modules."""
        raise NotImplementedError(
            f"torch.jit.script cannot compile {type(self).__name__}: use torch.jit.trace, "
            "torch.export.export or torch.compile"
        )

    # Gates by name

    def gate_rows(self, gate: str, parameter: str) -> Tensor:
        """The rows of one gate in a weight or bias, as a view.

        ``nn.init.ones_(layer.gate_rows("forget", "bias_hh_l0"))`` does for every cell what
        ``bias[n // 4 : n // 2].fill_(1)`` does for an nn.LSTM.

        Args:
            gate: its short or long name, ``"f"`` or ``"forget"`` for example.
            parameter: the name of the weight or bias.

        Returns:
            ``[rows of the gate, ...]``: H rows, or one row per angle.
        """
        weight, rows = self._gated(parameter), self._cell.rows_of(gate, self.hidden_size)
        if rows.start < rows.stop and rows.start >= weight.shape[0]:
            raise ValueError(
                f"gate must be one that has rows in {parameter}, got {gate!r}, which h does not "
                "feed"
            )
        return weight[rows]

    def named_gates(self, parameter: str) -> Iterator[tuple[str, Tensor]]:
        """The gates of a weight or bias in the order of its rows: short names and views.

        >>> import rotcell
        >>> [(name, len(rows)) for name, rows in rotcell.RotLSTM(3, 4).named_gates("bias_hh_l0")]
        [('i', 4), ('f', 4), ('g', 4), ('o', 4), ('rot', 2)]
        """
        weight = self._gated(parameter)
        for gate in self._cell.gates:
            rows = self._cell.rows_of(gate, self.hidden_size)
            if rows.stop <= weight.shape[0]:
                yield gate, weight[rows]

    def _has_gates(self, parameter: str) -> bool:
        """Whether the rows of a parameter of this name are those of the gates."""
        return parameter.startswith(tuple(p.name for p in self._parameter_table if p.has_gates))

    def _gated(self, parameter: str) -> Tensor:
        weight = getattr(self, parameter, None)
        if not self._has_gates(parameter) or not isinstance(weight, Tensor):
            there = [p.name for p in present(self._parameter_table, self) if p.has_gates]
            known = " or ".join(filter(None, (", ".join(there[:-1]), there[-1])))
            raise ValueError(
                f"parameter must be the name of a {known} of this {type(self).__name__}, "
                f"got {parameter!r}"
            )
        return weight

    # Checkpoints

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        checkpoints.write(self, destination, prefix)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        before = len(error_msgs)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        # After torch, whose hooks may still change the state_dict; but it is what to read first.
        error = checkpoints.compare(self, state_dict, prefix, local_metadata)
        if error is not None:
            error_msgs.insert(before, error)

    def _changed_options(self, **defaults: Any) -> list[str]:
        """For a repr: the options, given and rotcell's own, that are not at their default."""
        defaults |= {name: option.default for name, option in OPTIONS.items()}
        return [
            f"{name}={getattr(self, name)}"
            for name, default in defaults.items()
            if getattr(self, name) != default
        ]


for _name, _option in OPTIONS.items():
    setattr(CellModule, _name, _option.default)


def types_fit(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors may enter one op: under autocast, any two float types may."""
    return a.dtype == b.dtype or (
        a.is_floating_point() and b.is_floating_point() and torch.is_autocast_enabled(a.device.type)
    )


def type_name(value: object) -> str:
    """``ndarray`` alone says less than ``numpy.ndarray``."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
