"""What layers and cells share; and of layers: weights, directions, packing, states, checks."""

from __future__ import annotations

import contextlib
import math
import numbers
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils.rnn import PackedSequence

from . import ops
from .reference import GATE_FUNCTIONS, UNCHANGED, Cell, StateChanges, Weights

__all__ = ["CellModule", "Layer"]


class _Drawing(threading.local):
    weights = True


_drawing = _Drawing()


@contextlib.contextmanager
def no_weights_drawn() -> Iterator[None]:
    """Leave the weights of new layers uninitialised, and the random numbers undrawn."""
    _drawing.weights = False
    try:
        yield
    finally:
        _drawing.weights = True


class CellModule(nn.Module):
    """A module made of a cell's weights. A subclass says which cell."""

    _cell: ClassVar[Cell]

    # The values of cells that lack an option, and of modules saved before it existed.
    gates: str = "sigmoid"
    angle_gates: str = "sigmoid"
    rotation_bias: float = 0.0
    forget_bias: float = 0.0
    recurrent_dropout: float = 0.0
    zoneout: float | tuple[float, float] = 0.0

    hidden_size: int

    def _set_options(
        self, bias: bool, gates: str, angle_gates: str, rotation_bias: float, forget_bias: float
    ) -> None:
        """Check and keep the options that torch's layers do not have."""
        self.gates = _checked_function("gates", gates)
        self.angle_gates = _checked_function("angle_gates", angle_gates)
        self.rotation_bias = _checked_shift("rotation_bias", rotation_bias, bias)
        self.forget_bias = _checked_shift("forget_bias", forget_bias, bias)

    def reset_parameters(self) -> None:
        """Draw every parameter anew, uniform in ±1/sqrt(hidden_size), and shift biases.

        The shifts are `rotation_bias` and `forget_bias`, where there are such options.
        """
        if not _drawing.weights:
            return
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        shifts = {"rot": self.rotation_bias, "f": self.forget_bias}
        for name, parameter in self.named_parameters():
            nn.init.uniform_(parameter, -bound, bound)
            for gate, shift in shifts.items():
                if name.startswith("bias_ih") and gate in self._cell.gates:
                    with torch.no_grad():
                        parameter[self._cell.rows_of(gate, self.hidden_size)] += shift

    def _read(self, names: Sequence[str]) -> list[Any]:
        """The parameters of these names, or what stands in their place (a parametrization, say).

        nn.Module's own search for a parameter takes a microsecond, and a step of a cell takes 20.
        """
        parameters = self._parameters
        return [parameters[n] if n in parameters else getattr(self, n) for n in names]

    def _in_fx_graph(self, *arguments: Any, **options: Any) -> Any:
        """Stand as one node in the graph that torch.fx is tracing, as torch's own layers do."""
        tracer: Any = next(a.tracer for a in arguments if isinstance(a, fx.Proxy))
        options = {
            n: value for n, value in options.items() if value is not None and value is not False
        }
        return tracer.create_proxy("call_module", tracer.path_of_module(self), arguments, options)

    def __prepare_scriptable__(self) -> Any:
        """Where torch.jit.script comes by: its language cannot express these modules."""
        raise NotImplementedError(
            f"torch.jit.script cannot compile {type(self).__name__}: use torch.jit.trace, "
            "torch.export.export or torch.compile"
        )

    def gate(self, gate: str, parameter: str) -> Tensor:
        """The rows of one gate in a weight or bias, as a view.

        What ``bias[n // 4 : n // 2].fill_(1)`` does to an nn.LSTM is here, for every cell,
        ``nn.init.ones_(layer.gate("forget", "bias_hh_l0"))``.

        Args:
            gate: its short or long name, "f" or "forget" say.
            parameter: the name of the weight or bias.
        """
        return self._gated(parameter)[self._cell.rows_of(gate, self.hidden_size)]

    def gates_of(self, parameter: str) -> Iterator[tuple[str, Tensor]]:
        """The gates of a weight or bias in the order of its rows: short names and views.

        >>> import rotcell
        >>> [(name, len(rows)) for name, rows in rotcell.RotLSTM(3, 4).gates_of("bias_hh_l0")]
        [('i', 4), ('f', 4), ('g', 4), ('o', 4), ('rot', 2)]
        """
        weight = self._gated(parameter)
        for gate in self._cell.gates:
            yield gate, weight[self._cell.rows_of(gate, self.hidden_size)]

    def _gated(self, parameter: str) -> Tensor:
        weight = getattr(self, parameter, None)
        has_gates = parameter.startswith(("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        if not has_gates or not isinstance(weight, Tensor):
            raise ValueError(
                "parameter must be the name of a weight_ih, weight_hh, bias_ih or bias_hh of this "
                f"{type(self).__name__}, got {parameter!r}"
            )
        return weight

    def _changed_options(self, **defaults: Any) -> list[str]:
        """For a repr: those of the given options, and of our own, that are not at their default."""
        defaults |= {
            "gates": "sigmoid",
            "angle_gates": "sigmoid",
            "rotation_bias": 0.0,
            "forget_bias": 0.0,
            "recurrent_dropout": 0.0,
            "zoneout": 0.0,
        }
        return [
            f"{name}={getattr(self, name)}"
            for name, default in defaults.items()
            if getattr(self, name) != default
        ]


def _checked_function(option: str, name: str) -> str:
    if not isinstance(name, str) or name not in GATE_FUNCTIONS:
        known = " or ".join(map(repr, GATE_FUNCTIONS))
        raise ValueError(f"{option} must be {known}, got {name!r}")
    return name


def _checked_shift(option: str, shift: float, bias: bool) -> float:
    """Refuse a shift that is no finite number or that has no bias to be added to."""
    if not isinstance(shift, numbers.Real) or isinstance(shift, bool):
        raise TypeError(f"{option} must be a real number, got {type(shift).__name__}")
    if not math.isfinite(shift):
        raise ValueError(f"{option} must be finite, got {shift}")
    if shift != 0 and not bias:
        raise ValueError(f"{option}={shift} needs bias=True: it is added to bias_ih")
    return float(shift)


def _checked_probability(option: str, p: object) -> float:
    is_number = isinstance(p, numbers.Real) and not isinstance(p, bool)
    if not is_number or not 0 <= float(p) <= 1:  # type: ignore[arg-type]
        raise ValueError(f"{option} must be a probability between 0 and 1, got {p!r}")
    return float(p)  # type: ignore[arg-type]


def _checked_zoneout(zoneout: Any, cell: Cell, proj_size: int) -> float | tuple[float, float]:
    checked: float | tuple[float, float]
    if isinstance(zoneout, (tuple, list)):
        if len(zoneout) != len(cell.states) or len(zoneout) == 1:
            expected = "a pair (of h, of c)" if len(cell.states) == 2 else "no pair: there is no c"
            raise ValueError(f"zoneout must be a probability, or {expected}; got {zoneout!r}")
        checked = (
            _checked_probability("zoneout[0]", zoneout[0]),
            _checked_probability("zoneout[1]", zoneout[1]),
        )
    else:
        checked = _checked_probability("zoneout", zoneout)
    if proj_size and checked not in (0.0, (0.0, 0.0)):
        raise ValueError(
            f"zoneout={zoneout} with proj_size={proj_size}: projected outputs have no zoneout"
        )
    return checked


def types_fit(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors may enter one op: autocast brings float types together by itself."""
    return a.dtype == b.dtype or (
        a.is_floating_point() and b.is_floating_point() and torch.is_autocast_enabled(a.device.type)
    )


def weight_names(layer: Layer | nn.LSTM) -> list[list[str]]:
    """Name the parameters, one list a layer and direction, in the order of h_n."""
    kinds = ["weight_ih", "weight_hh"]
    kinds += ["bias_ih", "bias_hh"] if layer.bias else []
    kinds += ["weight_hr"] if layer.proj_size else []
    return [
        [f"{kind}_l{k}{suffix}" for kind in kinds]
        for k in range(layer.num_layers)
        for suffix in (("", "_reverse") if layer.bidirectional else ("",))
    ]


class Layer(CellModule, nn.RNNBase):
    """Layers and directions of a cell, over whole sequences.

    It is an nn.RNNBase because programs ask for that, with all that they may ask of one. But there
    are no flattened weights to be kept in step with the parameters: each forward reads those.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        proj_size: int,
        device: torch.device | str | int | None,
        dtype: torch.dtype | None,
        gates: str,
        angle_gates: str = "sigmoid",
        rotation_bias: float = 0.0,
        forget_bias: float = 0.0,
        recurrent_dropout: float = 0.0,
        zoneout: float | tuple[float, float] = 0.0,
    ) -> None:
        nn.Module.__init__(self)  # RNNBase's knows torch's own layers only
        self.mode = self._cell.name.upper()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        # Not self.dropout: float() above has hidden what type the caller passed.
        self._check_options(dropout)
        self._set_options(bias, gates, angle_gates, rotation_bias, forget_bias)
        self.recurrent_dropout = _checked_probability("recurrent_dropout", recurrent_dropout)
        self.zoneout = _checked_zoneout(zoneout, self._cell, proj_size)

        self._name_weights()
        for names, shapes in zip(self._all_weights, self._weight_shapes(), strict=True):
            for name, shape in zip(names, shapes, strict=True):
                empty = torch.empty(shape, device=device, dtype=dtype)
                self.register_parameter(name, nn.Parameter(empty))
        self.reset_parameters()

    def _check_options(self, dropout: object) -> None:
        for name in ("bias", "batch_first"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be a bool, got {type(getattr(self, name)).__name__}")
        for name in ("input_size", "hidden_size", "num_layers", "proj_size"):
            value = getattr(self, name)
            if not isinstance(value, int):
                raise TypeError(f"{name} must be an int, got {type(value).__name__}")
            if value <= 0 and name != "proj_size":
                raise ValueError(f"{name} must be greater than zero, got {value}")
        if not 0 <= self.proj_size < self.hidden_size:
            raise ValueError(
                "proj_size must be 0 (no projection) or between 1 and hidden_size - 1 = "
                f"{self.hidden_size - 1}, got {self.proj_size}"
            )
        _checked_probability("dropout", dropout)
        if self.dropout > 0 and self.num_layers == 1:
            warnings.warn(
                f"dropout={self.dropout} has no effect with num_layers=1: it acts between layers",
                stacklevel=4,
            )

    @property
    def _num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _output_size(self) -> int:
        return self.proj_size or self.hidden_size

    def _weight_shapes(self) -> list[list[tuple[int, ...]]]:
        """Give the shapes of what `weight_names` names."""
        rows = self._cell.rows(self.hidden_size)
        shapes = []
        for layer in range(self.num_layers):
            width = self.input_size if layer == 0 else self._num_directions * self._output_size
            direction: list[tuple[int, ...]] = [(rows, width), (rows, self._output_size)]
            direction += [(rows,), (rows,)] if self.bias else []
            direction += [(self.proj_size, self.hidden_size)] if self.proj_size else []
            shapes += [direction] * self._num_directions
        return shapes

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters, one list a layer and direction."""
        return [self._read(names) for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Do nothing. Code written for nn.LSTM calls this; the kernels here have no need of it."""

    # What RNNBase does to keep a list of its weights, undone

    def _name_weights(self) -> None:
        self._all_weights = weight_names(self)  # kept: every run asks for them
        self._flat_weights_names = [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[nn.Parameter]:  # type: ignore[override]
        return self._read(self._flat_weights_names)

    def _init_flat_weights(self) -> None: ...

    def _update_flat_weights(self) -> None: ...

    def __setattr__(self, name: str, value: Any) -> None:
        nn.Module.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__setstate__(self, state)
        self.mode = self._cell.name.upper()
        self._name_weights()

    def _replicate_for_data_parallel(self) -> Any:
        return nn.Module._replicate_for_data_parallel(self)

    # What programs may ask of an RNNBase, and nn.LSTM adds for its pair of states

    def check_forward_args(
        self,
        input: Tensor,
        hidden: Tensor | tuple[Tensor, ...],
        batch_sizes: Tensor | None,
    ) -> None:
        """Raise if input and initial states do not fit this layer; input must have a batch."""
        self.check_input(input, batch_sizes)
        *lead, _ = self.get_expected_hidden_size(input, batch_sizes)
        sizes = self._cell.state_sizes(self.hidden_size, self._output_size)
        states = (hidden,) if isinstance(hidden, Tensor) else hidden
        for name, state, size in zip(self._state_names(), states, sizes, strict=True):
            expected = (lead[0], lead[1], size)
            self.check_hidden_size(state, expected, f"{name} must have size {{}}, got {{}}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """Put the rows of the batch into another order."""
        if isinstance(hx, Tensor):
            return _reorder((hx,), permutation)[0]
        return _reorder(hx, permutation)

    def extra_repr(self) -> str:
        """List the sizes, and every option that is not at its default."""
        changed = self._changed_options(
            proj_size=0,
            num_layers=1,
            bias=True,
            batch_first=False,
            dropout=0.0,
            bidirectional=False,
        )
        return ", ".join([str(self.input_size), str(self.hidden_size), *changed])

    # Running

    def _state_names(self) -> list[str]:
        """What the parts of the initial state are called in error messages."""
        states = self._cell.states
        return ["hx"] if len(states) == 1 else [f"hx[{k}] ({s}_0)" for k, s in enumerate(states)]

    def _run(
        self,
        input: Tensor | PackedSequence,
        hx: tuple[Tensor, ...] | None,
        resets: Tensor | PackedSequence | None = None,
        return_cells: bool = False,
        context: Tensor | None = None,
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, ...], Tensor | PackedSequence | None]:
        """Output, last states, and the cells if they are wanted."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx, resets, return_cells, context)
        return self._run_padded(input, hx, resets, return_cells, context)

    def _run_packed(
        self,
        packed: PackedSequence,
        hx: tuple[Tensor, ...] | None,
        resets: Tensor | PackedSequence | None,
        return_cells: bool,
        context: Tensor | None,
    ) -> tuple[PackedSequence, tuple[Tensor, ...], PackedSequence | None]:
        if torch.compiler.is_exporting():
            raise NotImplementedError(
                "a packed sequence cannot be exported, since its batch sizes are data: give the "
                f"{type(self).__name__} padded input, and cut its output by the lengths"
            )
        tokens, batch_sizes, sorted_indices, unsorted_indices = packed
        if tokens.dim() != 2:
            raise RuntimeError(f"packed input must hold 2-D data, got {tokens.dim()}-D")
        batch = int(batch_sizes[0])
        # The caller's rows are in his order, the packed ones by decreasing length.
        state = hx if hx is None else _reorder(hx, sorted_indices)
        marks = None if resets is None else _packed_marks(resets, packed)
        if context is not None:
            # How many rows are alive is data, and so no part of a graph.
            rows = context.shape[:1] if torch.compiler.is_compiling() else (batch,)
            _check_context(context, tokens, rows)
            if sorted_indices is not None:
                context = context.index_select(0, sorted_indices)
        out, last_state, cells = self._run_layers(
            tokens, state, batch, batch_sizes, False, marks, return_cells, context
        )

        def pack(data: Tensor) -> PackedSequence:
            return PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices)

        cells_packed = None if cells is None else pack(cells)
        return pack(out), _reorder(last_state, unsorted_indices), cells_packed

    def _run_padded(
        self,
        x: Tensor,
        hx: tuple[Tensor, ...] | None,
        resets: Tensor | PackedSequence | None,
        return_cells: bool,
        context: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor | None]:
        if x.dim() not in (2, 3):
            raise ValueError(f"input must be 2-D (unbatched) or 3-D (batched), got {x.dim()}-D")
        is_batched = x.dim() == 3
        if hx is not None:
            for name, state in zip(self._state_names(), hx, strict=True):
                if state.dim() != x.dim():
                    raise RuntimeError(
                        f"{name} must be {x.dim()}-D as the input is, got {state.dim()}-D"
                    )
        marks = None
        if resets is not None:
            marks = _checked_marks(resets, x)
            marks = (marks.transpose(0, 1) if is_batched and self.batch_first else marks).flatten()
        if context is not None:
            batch_dim = 0 if self.batch_first else 1
            _check_context(context, x, (x.shape[batch_dim],) if is_batched else ())
        batch_first = is_batched and self.batch_first
        if not is_batched:
            hx = hx and tuple(state.unsqueeze(1) for state in hx)
            context = context if context is None else context.unsqueeze(0)
        elif batch_first:
            x = x.transpose(0, 1).contiguous()
        steps, batch = x.shape[0], x.shape[1] if is_batched else 1
        if steps == 0:
            raise RuntimeError("input must have at least one timestep, got a sequence of length 0")

        out, last_state, cells = self._run_layers(
            x, hx, batch, None, batch_first, marks, return_cells, context
        )
        if cells is not None and is_batched:
            cells = cells.unflatten(0, (steps, batch))
            cells = cells.transpose(0, 1) if batch_first else cells
        if not is_batched:
            last_state = tuple(state.squeeze(1) for state in last_state)
        return out, last_state, cells

    def _run_layers(
        self,
        x: Tensor,  # [N, input_size] or [T, B, input_size]
        hx: tuple[Tensor, ...] | None,  # each [layers * directions, B, size]
        batch: int,
        batch_sizes: Tensor | None,
        batch_first: bool,  # the output of [T, B, input_size]
        marks: Tensor | None,  # bool [N]: resets
        return_cells: bool,
        context: Tensor | None,  # [B, width]: the last features of the input, at every step
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor | None]:
        """The output, the last states, and the last layer's cells [N, directions * H] if wanted."""
        weights = self._weights()
        self._check_input(x, weights[0].w_ih, context)
        sizes = self._cell.state_sizes(self.hidden_size, self._output_size)
        if hx is None:
            zeros = {size: x.new_zeros(1, batch, size) for size in set(sizes)}
            states = [tuple(zeros[size] for size in sizes)] * len(weights)
        else:
            self._check_state(hx, sizes, x, batch)
            states = list(zip(*(state.split(1) for state in hx), strict=True))

        is_changed = self._state_changes_at_all(marks)
        if context is not None and (
            is_changed or return_cells or not ops.takes_row_bias(self._cell, x)
        ):
            x, context = ops.beside_every_token(x, context, batch_sizes), None
        last_states = []
        cells: list[Tensor] = []
        for layer in range(self.num_layers):
            if layer > 0:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            is_last = layer == self.num_layers - 1
            for direction in range(self._num_directions):
                k = layer * self._num_directions + direction
                if layer == 0 and context is not None:
                    out, *last_state = self._run_with_context(
                        x,
                        context,
                        states[k],
                        weights[k],
                        batch_sizes,
                        direction == 1,
                        batch_first and is_last,
                    )
                else:
                    out, *last_state = self._run_direction(
                        x,
                        states[k],
                        weights[k],
                        batch_sizes,
                        direction == 1,
                        batch_first and is_last,
                        self._state_changes(x, batch, marks) if is_changed else UNCHANGED,
                        return_cells and is_last,
                    )
                if return_cells and is_last:
                    # On a CPU kernels keep the memory of half types in float32.
                    cells.append(last_state.pop().to(out.dtype))
                outputs.append(out)
                last_states.append(last_state)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        last = tuple(last_states[0])
        if len(last_states) > 1:
            last = tuple(torch.cat(parts) for parts in zip(*last_states, strict=True))
        return x, last, torch.cat(cells, dim=-1) if cells else None

    def _state_changes_at_all(self, marks: Tensor | None) -> bool:
        drops = self.training and self.recurrent_dropout > 0
        return marks is not None or drops or self.zoneout != 0.0

    def _state_changes(self, x: Tensor, batch: int, marks: Tensor | None) -> StateChanges:
        """What happens to the state between the steps of one layer and direction.

        Random masks are drawn by torch, so seeds, devices and torch.compile are its affair.
        """
        mask = None
        if self.training and self.recurrent_dropout > 0:
            mask = F.dropout(x.new_ones(batch, self._output_size), self.recurrent_dropout)
        zoneout = self.zoneout
        if not isinstance(zoneout, tuple):
            zoneout = (zoneout, zoneout if len(self._cell.states) > 1 else 0.0)
        return StateChanges(marks, mask, *(self._shares_that_stay(x, p) for p in zoneout))

    def _shares_that_stay(self, x: Tensor, p: float) -> Tensor | None:
        """Zoneout of a state: of every token in training, and what is expected otherwise."""
        if p == 0:
            return None
        if not self.training:
            return x.new_full((1, self.hidden_size), p)
        return torch.bernoulli(x.new_full((math.prod(x.shape[:-1]), self.hidden_size), p))

    def _weights(self) -> list[Weights]:
        """The weights of each layer and direction. A parametrised one is computed at each call."""
        weights = []
        for w_ih, w_hh, *rest in self.all_weights:
            w_hr = rest.pop() if self.proj_size else None
            b_ih, b_hh = rest if self.bias else (None, None)
            weights.append(Weights(w_ih, w_hh, b_ih, b_hh, w_hr))
        return weights

    def _run_direction(
        self,
        x: Tensor,  # [N, input] or [T, B, input]
        states: tuple[Tensor, ...],  # each [1, B, size]
        weights: Weights,
        batch_sizes: Tensor | None,
        reverse: bool,
        batch_first: bool,  # the output of [T, B, input]
        changes: StateChanges,
        return_cells: bool,
    ) -> tuple[Tensor, ...]:
        """The output and the last states, laid out as given, and cells [N, H] if wanted."""
        return ops.sequence(
            self._cell, x, states, weights, batch_sizes, reverse, self.gates, self.angle_gates,
            batch_first, changes, return_cells,
        )  # fmt: skip

    def _run_with_context(
        self,
        x: Tensor,  # [N, input - width] or [T, B, input - width]
        context: Tensor,  # [B, width]
        states: tuple[Tensor, ...],
        weights: Weights,
        batch_sizes: Tensor | None,
        reverse: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        """As `_run_direction`; what the context gives to the gates is computed once."""
        w_ih, w_hh, b_ih, b_hh, w_hr = weights
        of_x, of_context = w_ih.split([x.shape[-1], context.shape[1]], dim=1)
        row_bias = F.linear(context, of_context, b_ih)
        if b_hh is not None:
            row_bias = row_bias + b_hh
        return ops.sequence_with_row_bias(
            self._cell, x, row_bias, states, Weights(of_x, w_hh, None, None, w_hr), batch_sizes,
            reverse, self.gates, self.angle_gates, batch_first,
        )  # fmt: skip

    def _check_input(self, x: Tensor, weight: Tensor, context: Tensor | None) -> None:
        if not types_fit(x, weight):
            raise ValueError(
                f"input is {x.dtype} but the weights are {weight.dtype}: convert one of them"
            )
        if x.device != weight.device:
            raise RuntimeError(f"input is on {x.device} but the weights are on {weight.device}")
        width = 0 if context is None else context.shape[-1]
        if x.shape[-1] + width != self.input_size:
            beside = "" if context is None else f" beside {width} of context"
            raise RuntimeError(
                f"input must have input_size={self.input_size} features, got {x.shape[-1]}{beside}"
            )

    def _check_state(self, hx: tuple[Tensor, ...], sizes: list[int], x: Tensor, batch: int) -> None:
        for name, state, size in zip(self._state_names(), hx, sizes, strict=True):
            expected = (self.num_layers * self._num_directions, batch, size)
            if state.shape != expected:
                raise RuntimeError(
                    f"{name} must have shape {expected} (layers * directions, batch, features; "
                    f"no batch if the input has none), got {tuple(state.shape)}"
                )
            _check_as_input(name, state, x)


def with_context_beside(run_direction: Callable[..., Any]) -> Callable[..., Any]:
    """A `Layer._run_with_context` for another way to run a direction, which knows no context."""

    def run_with_context(
        x: Tensor,
        context: Tensor,
        states: tuple[Tensor, ...],
        weights: Weights,
        batch_sizes: Tensor | None,
        *options: Any,
    ) -> Any:
        x = ops.beside_every_token(x, context, batch_sizes)
        return run_direction(x, states, weights, batch_sizes, *options, UNCHANGED, False)

    return run_with_context


def _check_as_input(name: str, tensor: Tensor, x: Tensor) -> None:
    """A tensor must have the number type and the device of the input."""
    if not types_fit(tensor, x):
        raise RuntimeError(f"{name} is {tensor.dtype} but the input is {x.dtype}")
    if tensor.device != x.device:
        raise RuntimeError(f"{name} is on {tensor.device} but the input is on {x.device}")


def _checked_marks(resets: object, x: Tensor) -> Tensor:
    """Resets of padded input, which must be a bool for each token of x [..., features]."""
    if not isinstance(resets, Tensor):
        raise TypeError(f"resets must be a tensor as the input is, got {type(resets).__name__}")
    if resets.dtype != torch.bool:
        raise ValueError(f"resets must be a bool tensor, got {resets.dtype}")
    if resets.shape != x.shape[:-1]:
        raise RuntimeError(
            f"resets must have shape {tuple(x.shape[:-1])}, a bool for each timestep and row of "
            f"the input, got {tuple(resets.shape)}"
        )
    if resets.device != x.device:
        raise RuntimeError(f"resets are on {resets.device} but the input is on {x.device}")
    return resets


def _check_context(context: object, x: Tensor, lead: tuple[int, ...]) -> None:
    """A context must have these dimensions and its features behind them, and be as x is."""
    if not isinstance(context, Tensor):
        raise TypeError(f"context must be a tensor, got {type(context).__name__}")
    if context.shape[:-1] != lead or context.dim() != len(lead) + 1:
        expected = "".join(f"{size}, " for size in lead)
        raise RuntimeError(
            f"context must have shape ({expected}features), without timesteps, got "
            f"{tuple(context.shape)}"
        )
    _check_as_input("context", context, x)


def _packed_marks(resets: object, packed: PackedSequence) -> Tensor:
    """Resets of packed input, which must be packed alike."""
    if not isinstance(resets, PackedSequence):
        raise TypeError(
            "resets must be a PackedSequence as the input is, packed with the same lengths, got "
            f"{type(resets).__name__}"
        )
    marks = _checked_marks(resets.data, packed.data)
    if torch.compiler.is_compiling():
        return marks  # what follows are data, and so no part of a graph
    alike = torch.equal(resets.batch_sizes, packed.batch_sizes)
    order, expected = resets.sorted_indices, packed.sorted_indices
    # To look at a GPU would be to wait for it.
    if order is not expected and marks.device.type == "cpu":
        alike &= order is not None and expected is not None and torch.equal(order, expected)
    if not alike:
        raise RuntimeError("resets must be packed with the same lengths as the input")
    return marks


def _reorder(states: tuple[Tensor, ...], indices: Tensor | None) -> tuple[Tensor, ...]:
    """Put the batch rows of each ``[layers * directions, B, size]`` into another order."""
    return states if indices is None else tuple(s.index_select(1, indices) for s in states)
