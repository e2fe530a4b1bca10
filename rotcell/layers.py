"""RotLSTM and RotGRU: layers to put where nn.LSTM and nn.GRU stand."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from . import ops
from .reference import GRU_GATES, LSTM_GATES, gate_sizes

__all__ = ["ROTATION_OFF", "RotGRU", "RotLSTM"]

#: A rotation bias at which sigmoid, and so every angle, is exactly 0 in each float type. It is
#: finite, so nothing turns into NaN, and a float16 can hold it.
ROTATION_OFF = -1e4

_LSTM_OPTIONS = (
    "input_size",
    "hidden_size",
    "num_layers",
    "bias",
    "batch_first",
    "dropout",
    "bidirectional",
    "proj_size",
)

_NO_LSTM = "not the state_dict of an nn.LSTM"

AnyRotLSTM = TypeVar("AnyRotLSTM", bound="RotLSTM")


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


def _weight_names(layer: _RotRNN | nn.LSTM) -> list[list[str]]:
    """Name the parameters, one list a layer and direction, in the order of h_n."""
    kinds = ["weight_ih", "weight_hh"]
    kinds += ["bias_ih", "bias_hh"] if layer.bias else []
    kinds += ["weight_hr"] if layer.proj_size else []
    return [
        [f"{kind}_l{k}{suffix}" for kind in kinds]
        for k in range(layer.num_layers)
        for suffix in (("", "_reverse") if layer.bidirectional else ("",))
    ]


class _RotRNN(nn.Module):
    """What RotLSTM and RotGRU share: weights, directions, packing, initial states, checks.

    A subclass names its gates, says how wide each of its states is and runs one direction.
    """

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

        for names, shapes in zip(_weight_names(self), self._weight_shapes(), strict=True):
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
        """Give the shapes of what `_weight_names` names."""
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
        return [[getattr(self, name) for name in names] for names in _weight_names(self)]

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
        for name, state in zip(self._state_names, hx or (), strict=False):
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
            hx = tuple(x.new_zeros(len(weights), batch, size) for size in self._state_sizes())
        else:
            self._check_state(hx, x, batch)

        last_states = []
        for layer in range(self.num_layers):
            if layer > 0:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for direction in range(self._num_directions):
                k = layer * self._num_directions + direction
                out, *last_state = self._run_direction(
                    x,
                    tuple(state[k] for state in hx),
                    weights[k],
                    batch_sizes,
                    reverse=direction == 1,
                )
                outputs.append(out)
                last_states.append(last_state)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
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


class RotLSTM(_RotRNN):
    r"""An LSTM whose memory is rotated, pair by pair, at every timestep.

    Used like `torch.nn.LSTM`, with the same arguments, inputs, outputs and parameter names. For
    every pair of memory units there is a further gate, the angle :math:`u`:

    .. math::
        u_t &= 2 \pi \sigma(W_{rot} [h_{t-1}, x_t] + b_{rot}) \\
        d_t &= f_t \circ c_{t-1} + i_t \circ g_t \\
        c_t &= U(u_t) d_t \\
        h_t &= o_t \circ \tanh(c_t)

    Args:
        input_size: features of the input.
        hidden_size: H, units of the memory. If it is odd the last unit is not rotated.
        num_layers: layers on top of each other.
        bias: whether there are `bias_ih` and `bias_hh`.
        batch_first: take and give padded sequences as ``[B, T, ...]`` instead of ``[T, B, ...]``.
            States are not affected.
        dropout: probability of dropping outputs of every layer but the last, in training.
        bidirectional: also run each layer from the last step to the first; D = 2 directions.
        proj_size: if not 0, project outputs to this size (P, smaller than H); P is H otherwise.
        device: where the parameters live.
        dtype: number type of the parameters.
        rotation_bias: added to the angles' rows of `bias_ih` at initialisation. At 0 the angles
            start around pi; a negative value lets them start smaller.

    Shape:
        - input: ``[T, B, input_size]``, ``[B, T, input_size]`` if `batch_first`, unbatched
          ``[T, input_size]``, or a PackedSequence.
        - hx: ``(h_0, c_0)``, ``[num_layers * D, B, P]`` and ``[num_layers * D, B, H]`` (no B if
          unbatched). Zeros if not given.
        - output: as the input, with ``D * P`` features; packed if the input is.
        - ``(h_n, c_n)``: shaped like ``(h_0, c_0)``.

    Parameters, for layer k (and again with the suffix ``_reverse``), rows in the order i, f, g, o,
    rot, so that the first 4H are those of nn.LSTM:
        - ``weight_ih_l{k}``: ``[4H + H//2, input features of the layer]``
        - ``weight_hh_l{k}``: ``[4H + H//2, P]``
        - ``bias_ih_l{k}``, ``bias_hh_l{k}``: ``[4H + H//2]``
        - ``weight_hr_l{k}``: ``[P, H]``, with a projection only

    Example:
        >>> import torch
        >>> layer = RotLSTM(10, 20, num_layers=2)
        >>> output, (h_n, c_n) = layer(torch.randn(5, 3, 10))
        >>> output.shape, c_n.shape
        (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    _gates = LSTM_GATES
    _state_names = ("hx[0] (h_0)", "hx[1] (c_0)")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        rotation_bias: float = 0.0,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
            rotation_bias,
        )

    @classmethod
    def from_lstm(
        cls: type[AnyRotLSTM],
        lstm: nn.LSTM | Mapping[str, Tensor],
        *,
        batch_first: bool | None = None,
        dropout: float | None = None,
        rotation_bias: float = ROTATION_OFF,
    ) -> AnyRotLSTM:
        """Make a RotLSTM that computes what an nn.LSTM computes.

        Args:
            lstm: the layer, or its state_dict, from which all sizes and options are read that show
                in names and shapes. The weights are copied.
            batch_first: None keeps the layer's (False for a state_dict, which does not tell).
            dropout: None keeps the layer's (0 for a state_dict).
            rotation_bias: bias of the angles. The default switches the rotation off, exactly and
                for good: angles of 0 have no gradient. To train the rotation as well, start from
                small angles instead, say with ``rotation_bias=-5.0`` (0.04 radians).

        Returns:
            A layer with the source's number type, device and, if it is a module, training mode and
            frozen parameters.

        Raises:
            TypeError: if `lstm` is neither.
            ValueError: if there are no biases to switch the rotation off with, or if the
                state_dict is not that of an nn.LSTM (missing, unexpected or misshapen entries).

        Example:
            >>> import torch
            >>> lstm = torch.nn.LSTM(10, 20, bidirectional=True)
            >>> layer = RotLSTM.from_lstm(lstm)
            >>> x = torch.randn(5, 3, 10)
            >>> torch.allclose(layer(x)[0], lstm(x)[0], atol=1e-6)
            True
            >>> RotLSTM.from_lstm(lstm.state_dict(), batch_first=True)
            RotLSTM(10, 20, batch_first=True, bidirectional=True, rotation_bias=-10000.0)
        """
        if isinstance(lstm, nn.LSTM):
            options = {name: getattr(lstm, name) for name in _LSTM_OPTIONS}
            weights = {name: getattr(lstm, name) for names in _weight_names(lstm) for name in names}
        elif isinstance(lstm, Mapping):
            options = _options_from_state_dict(lstm)
            weights = dict(lstm)
        else:
            raise TypeError(f"lstm must be an nn.LSTM or its state_dict, got {type(lstm).__name__}")
        if not options["bias"]:
            raise ValueError(
                "an nn.LSTM without biases cannot be converted: "
                "only a bias can hold the angles at 0 for every input"
            )
        if batch_first is not None:
            options["batch_first"] = batch_first
        if dropout is not None:
            options["dropout"] = dropout

        first = weights["weight_ih_l0"]
        # By way of the meta device no random number is drawn for weights that are replaced.
        layer = cls(**options, rotation_bias=rotation_bias, device="meta", dtype=first.dtype)
        layer = layer.to_empty(device=first.device)
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                angles = parameter[weights[name].shape[0] :]
                parameter[: weights[name].shape[0]] = weights[name]
                angles.fill_(rotation_bias if name.startswith("bias_ih") else 0.0)
        if isinstance(lstm, nn.LSTM):
            for name, parameter in layer.named_parameters():
                parameter.requires_grad_(weights[name].requires_grad)
            layer.train(lstm.training)
        return layer

    def _state_sizes(self) -> tuple[int, ...]:
        return self._output_size, self.hidden_size

    def _run_direction(
        self,
        x: Tensor,
        state: tuple[Tensor, ...],
        weights: list[nn.Parameter],
        batch_sizes: Tensor | None,
        reverse: bool,
    ) -> tuple[Tensor, ...]:
        w_ih, w_hh, *rest = weights
        w_hr = rest.pop() if self.proj_size else None
        b_ih, b_hh = rest if self.bias else (None, None)
        h0, c0 = state
        return ops.rot_lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, batch_sizes, reverse)

    @overload
    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

    @overload
    def forward(
        self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...

    def forward(
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """Run the layers over a sequence; shapes are with the class."""
        if hx is not None and (isinstance(hx, Tensor) or len(hx) != 2):
            # nn.LSTM raises these two types as well.
            error = IndexError if len(hx) < 2 else RuntimeError
            raise error(f"hx must be a pair (h_0, c_0), got {len(hx)} in a {type(hx).__name__}")
        output, (h_n, c_n) = self._run(input, hx)
        return output, (h_n, c_n)


def _options_from_state_dict(state_dict: Mapping[str, Tensor]) -> dict[str, Any]:
    """Read the constructor arguments of an nn.LSTM off its state_dict, and check all of it."""
    for name, tensor in state_dict.items():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise ValueError(f"{_NO_LSTM}: {name} must be a floating-point tensor")
    for name in ("weight_ih_l0", "weight_hh_l0", "weight_hr_l0"):
        if name not in state_dict and name != "weight_hr_l0":
            raise ValueError(f"{_NO_LSTM}: {name} is missing")
        if name in state_dict and state_dict[name].dim() != 2:
            raise ValueError(f"{_NO_LSTM}: {name} must be 2-D, got {state_dict[name].dim()}-D")
    has_projection = "weight_hr_l0" in state_dict
    memory_like = state_dict["weight_hr_l0" if has_projection else "weight_hh_l0"]
    options = {
        "input_size": state_dict["weight_ih_l0"].shape[-1],
        "hidden_size": memory_like.shape[-1],
        "num_layers": sum(
            name.startswith("weight_ih_l") and not name.endswith("_reverse") for name in state_dict
        ),
        "bias": any(name.startswith("bias_ih_l") for name in state_dict),
        "batch_first": False,
        "dropout": 0.0,
        "bidirectional": any(name.endswith("_reverse") for name in state_dict),
        "proj_size": memory_like.shape[0] if has_projection else 0,
    }

    twin = nn.LSTM(**options, device="meta").state_dict()
    if twin.keys() != state_dict.keys():
        raise ValueError(
            f"{_NO_LSTM}: missing {sorted(twin.keys() - state_dict.keys())}, "
            f"unexpected {sorted(state_dict.keys() - twin.keys())}"
        )
    for name, expected in twin.items():
        if state_dict[name].shape != expected.shape:
            raise ValueError(
                f"{_NO_LSTM}: {name} must have shape "
                f"{tuple(expected.shape)}, got {tuple(state_dict[name].shape)}"
            )
    if len({(tensor.dtype, tensor.device) for tensor in state_dict.values()}) > 1:
        raise ValueError(f"{_NO_LSTM}: its entries differ in dtype or device")
    return options


class RotGRU(_RotRNN):
    r"""A GRU whose reset memory is rotated, pair by pair, at every timestep.

    Used like `torch.nn.GRU`, with the same arguments, inputs, outputs and parameter names. For
    every pair of units there is a further gate, the angle :math:`u`:

    .. math::
        u_t &= 2 \pi \sigma(W_{rot} [h_{t-1}, x_t] + b_{rot}) \\
        d_t &= h_{t-1} \circ r_t \\
        n_t &= \tanh(W_n [U(u_t) d_t, x_t] + b_n) \\
        h_t &= (1 - z_t) \circ h_{t-1} + z_t \circ n_t

    Two things differ from nn.GRU besides the rotation, both as in the paper: the reset acts before
    the product with the recurrent weights, and z weighs the candidate, not the old state.

    Args:
        input_size: features of the input.
        hidden_size: H, units of the state. If it is odd the last unit is not rotated.
        num_layers: layers on top of each other.
        bias: whether there are `bias_ih` and `bias_hh`.
        batch_first: take and give padded sequences as ``[B, T, ...]`` instead of ``[T, B, ...]``.
            States are not affected.
        dropout: probability of dropping outputs of every layer but the last, in training.
        bidirectional: also run each layer from the last step to the first; D = 2 directions.
        device: where the parameters live.
        dtype: number type of the parameters.
        rotation_bias: added to the angles' rows of `bias_ih` at initialisation. At 0 the angles
            start around pi; a negative value lets them start smaller.

    Shape:
        - input: ``[T, B, input_size]``, ``[B, T, input_size]`` if `batch_first`, unbatched
          ``[T, input_size]``, or a PackedSequence.
        - hx: ``h_0``, ``[num_layers * D, B, H]`` (no B if unbatched). Zeros if not given.
        - output: as the input, with ``D * H`` features; packed if the input is.
        - ``h_n``: shaped like ``h_0``.

    Parameters, for layer k (and again with the suffix ``_reverse``), rows in the order r, z, n,
    rot:
        - ``weight_ih_l{k}``: ``[3H + H//2, input features of the layer]``
        - ``weight_hh_l{k}``: ``[3H + H//2, H]``
        - ``bias_ih_l{k}``, ``bias_hh_l{k}``: ``[3H + H//2]``

    Example:
        >>> import torch
        >>> layer = RotGRU(10, 20, bidirectional=True)
        >>> output, h_n = layer(torch.randn(5, 3, 10))
        >>> output.shape, h_n.shape
        (torch.Size([5, 3, 40]), torch.Size([2, 3, 20]))
    """

    _gates = GRU_GATES
    _state_names = ("hx",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        rotation_bias: float = 0.0,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
            rotation_bias,
        )

    def _state_sizes(self) -> tuple[int, ...]:
        return (self.hidden_size,)

    def _run_direction(
        self,
        x: Tensor,
        state: tuple[Tensor, ...],
        weights: list[nn.Parameter],
        batch_sizes: Tensor | None,
        reverse: bool,
    ) -> tuple[Tensor, ...]:
        w_ih, w_hh, *biases = weights
        b_ih, b_hh = biases if self.bias else (None, None)
        (h0,) = state
        return ops.rot_gru(x, h0, w_ih, w_hh, b_ih, b_hh, batch_sizes, reverse)

    @overload
    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self, input: PackedSequence, hx: Tensor | None = None
    ) -> tuple[PackedSequence, Tensor]: ...

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run the layers over a sequence; shapes are with the class."""
        output, (h_n,) = self._run(input, None if hx is None else (hx,))
        return output, h_n
