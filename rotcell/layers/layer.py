"""What all layers share: stacked layers, directions, packing, states, checks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rotcell import ops
from rotcell.reference import NO_HOOKS, Cell, StateHooks, Weights

from .base import CellModule, type_name, types_fit
from .options import probability
from .parameters import dimensions, direction_suffixes, present

__all__ = ["DirectionCall", "Layer"]


@dataclass(frozen=True)
class DirectionCall:
    """What one direction of one layer is to compute: the arguments of `ops.sequence`."""

    cell: Cell
    x: Tensor  # [N, input] or [T, B, input]
    states: tuple[Tensor, ...]  # each [1, B, size]
    weights: Weights
    batch_sizes: Tensor | None
    reverse: bool
    gate_activation: str
    angle_activation: str
    batch_first: bool  # whether the output for [T, B, input] is [B, T, features]
    hooks: StateHooks
    return_cells: bool

    def run(self) -> tuple[Tensor, ...]:
        """Run as a layer does: output, last states, and cell states [N, H] if asked for."""
        return ops.sequence(
            self.cell, self.x, self.states, self.weights, self.batch_sizes, self.reverse,
            self.gate_activation, self.angle_activation, self.batch_first, self.hooks,
            self.return_cells,
        )  # fmt: skip


class Layer(CellModule, nn.RNNBase):
    """Layers and directions of a cell, over whole sequences.

    It derives from nn.RNNBase because programs check for that class and use its attributes. It
    keeps no list of flattened weights: each forward reads the parameters.
    """

    #: If set, called for each direction of each layer, in the order of h_n, instead of
    #: `DirectionCall.run`, and returns the same. Tracing and experiments enter here.
    direction_runner: Callable[[DirectionCall], tuple[Tensor, ...]] | None = None

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
        **options: Any,
    ) -> None:
        nn.Module.__init__(self)  # RNNBase's constructor knows torch's own layers only
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
        self._set_options(options)

        self._name_weights()
        for number, suffix in enumerate(direction_suffixes(self)):
            size_of = dimensions(self, self._input_size_of(number), self._output_size)
            for kind in present(self._parameter_table, self):
                shape = [size_of[letter] for letter in kind.shape]
                empty = torch.empty(shape, device=device, dtype=dtype)
                self.register_parameter(kind.name + suffix, nn.Parameter(empty))
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
        probability("dropout", dropout)
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

    def _input_size_of(self, number: int) -> int:
        """Input features of a layer and direction, by its place in h_n."""
        first = number < self._num_directions
        return self.input_size if first else self._num_directions * self._output_size

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters, one list per layer and direction."""
        return [self._read_in_property(names) for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Do nothing. Code written for nn.LSTM calls this; the kernels here do not need it."""

    # RNNBase keeps a list of its weights: undone

    def _name_weights(self) -> None:
        """Keep the names of the parameters, which every forward needs."""
        there = present(self._parameter_table, self)
        suffixes = list(direction_suffixes(self))
        self._all_weights = [[kind.name + suffix for kind in there] for suffix in suffixes]
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        names_by_field = {kind.field: kind.name for kind in there}
        self._weight_names = [
            [
                names_by_field[f] + suffix if f in names_by_field else None
                for f in self._cell.weights_type._fields
            ]
            for suffix in suffixes
        ]

    @property
    def _flat_weights(self) -> list[nn.Parameter]:  # type: ignore[override]
        return self._read_in_property(self._flat_weights_names)

    def _read_in_property(self, names: list[str]) -> list[Any]:
        try:
            return self._read(names)
        except AttributeError as error:
            # Python would report an AttributeError as a missing property.
            raise RuntimeError(str(error)) from error

    def _init_flat_weights(self) -> None: ...

    def _update_flat_weights(self) -> None: ...

    def __setattr__(self, name: str, value: Any) -> None:
        nn.Module.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return CellModule.__getstate__(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        CellModule.__setstate__(self, state)
        self.mode = type(self)._cell.name.upper()
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
        """Output, last states, and the cell states of every step if asked for."""
        if hx is not None:
            for name, state in zip(self._state_names(), hx, strict=True):
                if not isinstance(state, Tensor):
                    raise TypeError(f"{name} must be a Tensor, got {type_name(state)}")
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx, resets, return_cells, context)
        if not isinstance(input, Tensor):
            raise TypeError(f"input must be a Tensor or a PackedSequence, got {type_name(input)}")
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
        # States come in the caller's order of rows; packed rows are sorted by decreasing length.
        state = hx if hx is None else _reorder(hx, sorted_indices)
        reset_mask = None if resets is None else _packed_reset_mask(resets, packed)
        if context is not None:
            # How many rows are alive is data, and so no part of a graph.
            rows = None if torch.compiler.is_compiling() else (batch,)
            _check_context(context, tokens, rows)
            if sorted_indices is not None:
                context = context.index_select(0, sorted_indices)
        out, last_state, cells = self._run_layers(
            tokens, state, batch, batch_sizes, False, reset_mask, return_cells, context
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
        reset_mask = None
        if resets is not None:
            reset_mask = _checked_reset_mask(resets, x)
            reset_mask = (
                reset_mask.transpose(0, 1) if is_batched and self.batch_first else reset_mask
            ).flatten()
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
            x, hx, batch, None, batch_first, reset_mask, return_cells, context
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
        reset_mask: Tensor | None,  # bool [N]: resets
        return_cells: bool,
        context: Tensor | None,  # [B, width]: the last features of the input, at every step
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor | None]:
        """The output, the last states, and the last layer's cell states [N, D * H] if asked for."""
        weights = self._weights()
        self._check_input(x, weights, context)
        states = self._initial_states(hx, x, batch)
        has_hooks = self._has_state_hooks(reset_mask)
        if context is not None and not (
            self._takes_context_apart(x) and not has_hooks and not return_cells
        ):
            x, context = ops.append_to_every_token(x, context, batch_sizes), None
        last_states = []
        cells: list[Tensor] = []
        for layer in range(self.num_layers):
            if layer > 0:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            is_last = layer == self.num_layers - 1
            for direction in range(self._num_directions):
                k = layer * self._num_directions + direction
                out, *last_state = self._run_direction(
                    x,
                    states[k],
                    weights[k],
                    batch_sizes,
                    direction == 1,
                    batch_first and is_last,
                    self._state_hooks(x, batch, reset_mask) if has_hooks else NO_HOOKS,
                    return_cells and is_last,
                    context if layer == 0 else None,
                )
                if return_cells and is_last:
                    # CPU kernels may keep the cell state of fp16 and bf16 in float32.
                    cells.append(last_state.pop().to(out.dtype))
                outputs.append(out)
                last_states.append(last_state)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        last = tuple(last_states[0])
        if len(last_states) > 1:
            last = tuple(torch.cat(parts) for parts in zip(*last_states, strict=True))
        return x, last, torch.cat(cells, dim=-1) if cells else None

    def _weights(self) -> list[Any]:
        """The weights of each layer and direction."""
        return [self._cell.weights_type(*self._read(names)) for names in self._weight_names]

    def _initial_states(
        self, hx: tuple[Tensor, ...] | None, x: Tensor, batch: int
    ) -> list[tuple[Tensor, ...]]:
        """The checked states of each layer and direction, each [1, B, size]; zeros if None."""
        sizes = self._cell.state_sizes(self.hidden_size, self._output_size)
        if hx is None:
            zeros = {size: x.new_zeros(1, batch, size) for size in set(sizes)}
            return [tuple(zeros[size] for size in sizes)] * len(self._all_weights)
        self._check_state(hx, sizes, x, batch)
        return list(zip(*(state.split(1) for state in hx), strict=True))

    def _takes_context_apart(self, x: Tensor) -> bool:
        """Whether the gates' sums with the context can be computed once, not at every step."""
        return self.direction_runner is None and ops.takes_row_bias(self._cell, x)

    def _has_state_hooks(self, reset_mask: Tensor | None) -> bool:
        drops = self.training and self.recurrent_dropout > 0
        return reset_mask is not None or drops or self.zoneout != 0.0

    def _state_hooks(self, x: Tensor, batch: int, reset_mask: Tensor | None) -> StateHooks:
        """What happens to the state between the steps of one layer and direction.

        torch draws the random masks, so its seeds, devices and torch.compile apply.
        """
        mask = None
        if self.training and self.recurrent_dropout > 0:
            mask = F.dropout(x.new_ones(batch, self._output_size), self.recurrent_dropout)
        zoneout = self.zoneout
        if not isinstance(zoneout, tuple):
            zoneout = (zoneout, zoneout if len(self._cell.states) > 1 else 0.0)
        return StateHooks(reset_mask, mask, *(self._zoneout_keep(x, p) for p in zoneout))

    def _zoneout_keep(self, x: Tensor, p: float) -> Tensor | None:
        """Zoneout of a state: a mask for every token in training, else the expected share."""
        if p == 0:
            return None
        if not self.training:
            return x.new_full((1, self.hidden_size), p)
        return torch.bernoulli(x.new_full((math.prod(x.shape[:-1]), self.hidden_size), p))

    def _run_direction(
        self,
        x: Tensor,  # [N, input] or [T, B, input]
        states: tuple[Tensor, ...],  # each [1, B, size]
        weights: Weights,
        batch_sizes: Tensor | None,
        reverse: bool,
        batch_first: bool,  # whether the output for [T, B, input] is [B, T, features]
        hooks: StateHooks,
        return_cells: bool,
        context: Tensor | None,  # [B, width]
    ) -> tuple[Tensor, ...]:
        """Output and last states, laid out as given, and cell states [N, H] if asked for."""
        if self.direction_runner is not None:
            return self.direction_runner(
                DirectionCall(
                    self._cell, x, states, weights, batch_sizes, reverse, self.gate_activation,
                    self.angle_activation, batch_first, hooks, return_cells,
                )
            )  # fmt: skip
        if context is not None:
            weights, row_bias = _with_row_bias(weights, x, context)
            return ops.sequence_with_row_bias(
                self._cell, x, row_bias, states, weights, batch_sizes, reverse,
                self.gate_activation, self.angle_activation, batch_first,
            )  # fmt: skip
        return ops.sequence(
            self._cell, x, states, weights, batch_sizes, reverse, self.gate_activation,
            self.angle_activation, batch_first, hooks, return_cells,
        )  # fmt: skip

    def _check_input(self, x: Tensor, weights: list[Weights], context: Tensor | None) -> None:
        first = self._typed_weight(weights[0])
        if not types_fit(x, first):
            raise ValueError(
                f"input is {x.dtype} but the weights are {first.dtype}: convert one of them"
            )
        device = x.device
        for number, tensors in enumerate(weights):
            for weight in tensors:
                if weight is not None and weight.device != device:
                    names = self._weight_names[number]
                    name = next(n for n, w in zip(names, tensors, strict=True) if w is weight)
                    raise RuntimeError(f"input is on {device} but {name} is on {weight.device}")
        width = 0 if context is None else context.shape[-1]
        if x.shape[-1] + width != self.input_size:
            extra = "" if context is None else f" and {width} of context"
            raise RuntimeError(
                f"input must have input_size={self.input_size} features, got {x.shape[-1]}{extra}"
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


def _with_row_bias(weights: Weights, x: Tensor, context: Tensor) -> tuple[Weights, Tensor]:
    """Weights for x alone, without biases, and what context and biases add per row [B, rows]."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    of_x, of_context = w_ih.split([x.shape[-1], context.shape[1]], dim=1)
    row_bias = F.linear(context, of_context, b_ih)
    if b_hh is not None:
        row_bias = row_bias + F.pad(b_hh, (0, row_bias.shape[1] - b_hh.shape[0]))
    return Weights(of_x, w_hh, None, None, w_hr), row_bias


def _check_as_input(name: str, tensor: Tensor, x: Tensor) -> None:
    """A tensor must have the dtype and the device of the input."""
    if not types_fit(tensor, x):
        raise RuntimeError(f"{name} is {tensor.dtype} but the input is {x.dtype}")
    if tensor.device != x.device:
        raise RuntimeError(f"{name} is on {tensor.device} but the input is on {x.device}")


def _checked_reset_mask(resets: object, x: Tensor) -> Tensor:
    """Resets of padded input, which must be a bool for each token of x [..., features]."""
    if not isinstance(resets, Tensor):
        raise TypeError(f"resets must be a Tensor, as the input is, got {type_name(resets)}")
    if resets.dtype != torch.bool:
        raise ValueError(f"resets must be a bool tensor, got {resets.dtype}")
    if resets.shape != x.shape[:-1]:
        raise RuntimeError(
            f"resets must have shape {tuple(x.shape[:-1])}, one bool per timestep and row of "
            f"the input, got {tuple(resets.shape)}"
        )
    if resets.device != x.device:
        raise RuntimeError(f"resets are on {resets.device} but the input is on {x.device}")
    return resets


def _check_context(context: object, x: Tensor, lead: tuple[int, ...] | None) -> None:
    """A context has these dimensions (None: any number of rows), then its features."""
    if not isinstance(context, Tensor):
        raise TypeError(f"context must be a Tensor, got {type_name(context)}")
    if lead is None:
        lead = tuple(context.shape[:1])
    if context.shape[:-1] != lead or context.dim() != len(lead) + 1:
        expected = "".join(f"{size}, " for size in lead)
        raise RuntimeError(
            f"context must have shape ({expected}features), without timesteps, got "
            f"{tuple(context.shape)}"
        )
    _check_as_input("context", context, x)


def _packed_reset_mask(resets: object, packed: PackedSequence) -> Tensor:
    """The reset mask for packed input; both must be packed with the same lengths."""
    if not isinstance(resets, PackedSequence):
        raise TypeError(
            "resets must be a PackedSequence, as the input is, packed with the same lengths, got "
            f"{type_name(resets)}"
        )
    reset_mask = _checked_reset_mask(resets.data, packed.data)
    if torch.compiler.is_compiling():
        return reset_mask  # lengths are data, and so no part of a graph
    matches = torch.equal(resets.batch_sizes, packed.batch_sizes)
    order, expected = resets.sorted_indices, packed.sorted_indices
    # Comparing on a GPU would synchronize with it.
    if order is not expected and reset_mask.device.type == "cpu":
        matches &= order is not None and expected is not None and torch.equal(order, expected)
    if not matches:
        raise RuntimeError(
            "resets must be packed with the same lengths as the input, in the same order, got "
            f"batch_sizes {resets.batch_sizes.tolist()} and sorted_indices {order}, expected "
            f"{packed.batch_sizes.tolist()} and {expected}"
        )
    return reset_mask


def _reorder(states: tuple[Tensor, ...], indices: Tensor | None) -> tuple[Tensor, ...]:
    """Put the batch rows of each ``[layers * directions, B, size]`` into another order."""
    return states if indices is None else tuple(s.index_select(1, indices) for s in states)
