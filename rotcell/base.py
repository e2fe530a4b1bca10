"""What RotLSTM and RotGRU share: weights, directions, packing, initial states, checks."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .reference import gate_sizes


def checked_rotation_bias(rotation_bias: float, bias: bool) -> float:
    """Refuse a rotation bias that is no finite number or that has no bias to be added to."""
    if not isinstance(rotation_bias, numbers.Real) or isinstance(rotation_bias, bool):
        raise TypeError(f"rotation_bias must be a real number, got {type(rotation_bias).__name__}")
    if not math.isfinite(rotation_bias):
        raise ValueError(f"rotation_bias must be finite, got {rotation_bias}")
    if rotation_bias != 0 and not bias:
        raise ValueError(f"rotation_bias={rotation_bias} needs bias=True: it is added to bias_ih")
    return float(rotation_bias)


def init_parameters(
    parameters: Iterable[nn.Parameter],
    input_biases: Iterable[nn.Parameter],
    hidden_size: int,
    rotation_bias: float,
) -> None:
    """Initialise as nn.LSTM does, then move the angles' share of the input biases."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size > 0 else 0.0
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)
    with torch.no_grad():
        for bias in input_biases:
            bias[bias.shape[0] - hidden_size // 2 :] += rotation_bias


def dtypes_must_agree(tensor: Tensor) -> bool:
    """Tell whether mixed float types are an error: autocast brings them together by itself."""
    return not torch.is_autocast_enabled(tensor.device.type)


def weight_names(layer: RotRNN | nn.LSTM) -> list[list[str]]:
    """Name the parameters, one list a layer and direction, in the order of h_n."""
    kinds = ["weight_ih", "weight_hh"]
    kinds += ["bias_ih", "bias_hh"] if layer.bias else []
    kinds += ["weight_hr"] if layer.proj_size else []
    return [
        [f"{kind}_l{k}{suffix}" for kind in kinds]
        for k in range(layer.num_layers)
        for suffix in (("", "_reverse") if layer.bidirectional else ("",))
    ]


class RotRNN(nn.Module):
    """A subclass names its gates, says how wide each of its states is and runs one direction."""

    _gates: ClassVar[tuple[str, ...]]
    #: What the parts of the initial state are called in error messages.
    _state_names: ClassVar[tuple[str, ...]]

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
        rotation_bias: float,
    ) -> None:
        super().__init__()
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
        self.rotation_bias = checked_rotation_bias(rotation_bias, bias)

        self._weight_names = weight_names(self)  # kept: every run asks for them
        for names, shapes in zip(self._weight_names, self._weight_shapes(), strict=True):
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
        is_number = isinstance(dropout, numbers.Real) and not isinstance(dropout, bool)
        if not is_number or not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout must be a probability between 0 and 1, got {dropout!r}")
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
        rows = sum(gate_sizes(self._gates, self.hidden_size))
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
        return [[getattr(self, name) for name in names] for names in self._weight_names]

    def reset_parameters(self) -> None:
        """Draw every parameter anew, uniform in ±1/sqrt(hidden_size), and add `rotation_bias`."""
        input_biases = (p for name, p in self.named_parameters() if name.startswith("bias_ih"))
        init_parameters(self.parameters(), input_biases, self.hidden_size, self.rotation_bias)

    def flatten_parameters(self) -> None:
        """Do nothing. Code written for nn.LSTM calls this; the kernels here have no need of it."""

    def extra_repr(self) -> str:
        """List the sizes, and every option that is not at its default."""
        defaults: dict[str, Any] = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
            "rotation_bias": 0.0,
        }
        changed = [
            f"{name}={getattr(self, name)}"
            for name, default in defaults.items()
            if getattr(self, name) != default
        ]
        return ", ".join([str(self.input_size), str(self.hidden_size), *changed])

    # Running

    def _state_sizes(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _run_direction(
        self,
        x: Tensor,  # [N, input]
        state: tuple[Tensor, ...],  # each [B, size]
        weights: list[nn.Parameter],
        batch_sizes: Tensor | None,
        reverse: bool,
    ) -> tuple[Tensor, ...]:
        """Return the output [N, output] followed by the last state."""
        raise NotImplementedError

    def _run(
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, ...] | None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, ...]]:
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        return self._run_padded(input, hx)

    def _run_packed(
        self, packed: PackedSequence, hx: tuple[Tensor, ...] | None
    ) -> tuple[PackedSequence, tuple[Tensor, ...]]:
        tokens, batch_sizes, sorted_indices, unsorted_indices = packed
        if tokens.dim() != 2:
            raise RuntimeError(f"packed input must hold 2-D data, got {tokens.dim()}-D")
        batch = int(batch_sizes[0])
        # The caller's rows are in his order, the packed ones by decreasing length.
        state = hx if hx is None else _reorder(hx, sorted_indices)
        out, last_state = self._run_layers(tokens, state, batch, batch_sizes)
        out_packed = PackedSequence(out, batch_sizes, sorted_indices, unsorted_indices)
        return out_packed, _reorder(last_state, unsorted_indices)

    def _run_padded(
        self, x: Tensor, hx: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        if x.dim() not in (2, 3):
            raise ValueError(f"input must be 2-D (unbatched) or 3-D (batched), got {x.dim()}-D")
        is_batched = x.dim() == 3
        if hx is not None:
            for name, state in zip(self._state_names, hx, strict=True):
                if state.dim() != x.dim():
                    raise RuntimeError(
                        f"{name} must be {x.dim()}-D as the input is, got {state.dim()}-D"
                    )
        if not is_batched:
            x = x.unsqueeze(1)
            hx = hx and tuple(state.unsqueeze(1) for state in hx)
        elif self.batch_first:
            x = x.transpose(0, 1)
        steps, batch = x.shape[:2]
        if steps == 0:
            raise RuntimeError("input must have at least one timestep, got a sequence of length 0")

        out, last_state = self._run_layers(x.flatten(0, 1), hx, batch, None)
        out = out.reshape(steps, batch, self._num_directions * self._output_size)

        if not is_batched:
            return out.squeeze(1), tuple(state.squeeze(1) for state in last_state)
        return (out.transpose(0, 1) if self.batch_first else out), last_state

    def _run_layers(
        self,
        x: Tensor,  # [N, input_size]
        hx: tuple[Tensor, ...] | None,  # each [layers * directions, B, size]
        batch: int,
        batch_sizes: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        self._check_input(x)
        weights = self.all_weights
        if hx is None:
            zeros = tuple(x.new_zeros(batch, size) for size in self._state_sizes())
            states = [zeros] * len(weights)
        else:
            self._check_state(hx, x, batch)
            states = list(zip(*hx, strict=True))

        last_states = []
        for layer in range(self.num_layers):
            if layer > 0:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for direction in range(self._num_directions):
                k = layer * self._num_directions + direction
                out, *last_state = self._run_direction(
                    x, states[k], weights[k], batch_sizes, reverse=direction == 1
                )
                outputs.append(out)
                last_states.append(last_state)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        # Stacked even if there is one: users of nn.LSTM call detach_(), which refuses views.
        return x, tuple(torch.stack(parts) for parts in zip(*last_states, strict=True))

    def _check_input(self, x: Tensor) -> None:
        weight = self.weight_ih_l0
        if x.dtype != weight.dtype and dtypes_must_agree(x):
            raise ValueError(
                f"input is {x.dtype} but the weights are {weight.dtype}: convert one of them"
            )
        if x.device != weight.device:
            raise RuntimeError(f"input is on {x.device} but the weights are on {weight.device}")
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input must have input_size={self.input_size} features, got {x.shape[-1]}"
            )

    def _check_state(self, hx: tuple[Tensor, ...], x: Tensor, batch: int) -> None:
        for name, state, size in zip(self._state_names, hx, self._state_sizes(), strict=True):
            expected = (self.num_layers * self._num_directions, batch, size)
            if state.shape != expected:
                raise RuntimeError(
                    f"{name} must have shape {expected} (layers * directions, batch, features; "
                    f"no batch if the input has none), got {tuple(state.shape)}"
                )
            if state.dtype != x.dtype and dtypes_must_agree(x):
                raise RuntimeError(f"{name} is {state.dtype} but the input is {x.dtype}")
            if state.device != x.device:
                raise RuntimeError(f"{name} is on {state.device} but the input is on {x.device}")


def _reorder(states: tuple[Tensor, ...], indices: Tensor | None) -> tuple[Tensor, ...]:
    """Put the batch rows of each ``[layers * directions, B, size]`` into another order."""
    return states if indices is None else tuple(s.index_select(1, indices) for s in states)
