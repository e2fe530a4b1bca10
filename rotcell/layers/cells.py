"""One timestep of the layers, used like nn.LSTMCell and nn.GRUCell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from rotcell import ops
from rotcell.reference import CELLS, Weights

from .base import CellModule, type_name, types_fit
from .documentation import documented
from .lstm import LinearRotLSTMModule, LSTMModule
from .orthogonal import EURNNModule, GORUModule
from .parameters import dimensions, input_only, present
from .rum import RUMModule

__all__ = [
    "ClassicGRUCell",
    "EURNNCell",
    "GORUCell",
    "GRUCell",
    "LSTMCell",
    "LinearRotLSTMCell",
    "RUMCell",
    "RotGRUCell",
    "RotLSTMCell",
]


class _Cell(CellModule):
    """What all single-step cells share: weights, checks, and input without a batch."""

    #: The names of the weights that the cell takes, None for one that is not there.
    _weight_names: list[str | None]

    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        device: torch.device | str | int | None,
        dtype: torch.dtype | None,
        **options: Any,
    ) -> None:
        super().__init__()
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
            if not isinstance(size, int):
                raise TypeError(f"{name} must be an int, got {type(size).__name__}")
            if size < 0:
                raise RuntimeError(f"{name} must not be negative, got {size}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self._set_options(options)

        size_of = dimensions(self, input_size, hidden_size)
        there = present(self._parameter_table, self)
        for kind in self._parameter_table:
            if kind not in there and kind.option != "bias":
                continue
            parameter = None
            if kind in there:
                shape = [size_of[letter] for letter in kind.shape]
                parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(kind.name, parameter)
        self._name_weights()
        self.reset_parameters()

    def _name_weights(self) -> None:
        """Keep the names of the parameters, which every step needs."""
        name_of = {kind.field: kind.name for kind in present(self._parameter_table, self)}
        fields = self._cell.weights_type._fields
        self._weight_names = [name_of.get(field) for field in fields]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._name_weights()

    def extra_repr(self) -> str:
        """List the sizes, and the options that are not at their default."""
        changed = self._changed_options(bias=True)
        return ", ".join([str(self.input_size), str(self.hidden_size), *changed])

    def _run(self, x: Tensor, hx: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
        """The new states, for input and states with or without a batch."""
        cell = self._cell
        weights = cell.weights_type(*self._read(self._weight_names))
        if not cell.reads_h:
            weights = input_only(weights, self.hidden_size)
        if not self._fits(x, hx, weights):
            self._check(x, hx, weights)
        if hx is None:
            hx = (x.new_zeros(*x.shape[:-1], self.hidden_size),) * len(cell.states)
        is_batched = x.dim() == 2
        if not is_batched:
            x, hx = x.unsqueeze(0), tuple(s.unsqueeze(0) for s in hx)
        _, *states = ops.sequence(
            cell, x, hx, weights, None, False, self.gate_activation, self.angle_activation
        )
        return tuple(states if is_batched else [s.squeeze(0) for s in states])

    def _fits(self, x: Tensor, hx: Sequence[Tensor] | None, weights: Weights) -> bool:
        """Whether everything is as expected: quicker than finding what is not."""
        if not isinstance(x, Tensor):
            return False
        shape, dtype, device = x.shape, x.dtype, x.device
        if len(shape) not in (1, 2) or shape[-1] != self.input_size:
            return False
        if self._typed_weight(weights).dtype != dtype:
            return False
        for weight in weights:
            if weight is not None and weight.device != device:
                return False
        expected = (*shape[:-1], self.hidden_size)
        for state in hx or ():
            if not isinstance(state, Tensor) or state.shape != expected:
                return False
            if state.dtype != dtype or state.device != device:
                return False
        return True

    def _check(self, x: Any, hx: Sequence[Any] | None, weights: Weights) -> None:
        """Raise an error about what is not as expected, if anything is."""
        states = self._cell.states
        names = ["hx"] if len(states) == 1 else [f"hx[{k}] ({s})" for k, s in enumerate(states)]
        named = list(zip(names, hx or (), strict=False))
        for name, tensor in [("input", x), *named]:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name} must be a Tensor, got {type_name(tensor)}")
            if tensor.dim() not in (1, 2):
                raise ValueError(
                    f"{name} must be 1-D (unbatched) or 2-D (batched), got {tensor.dim()}-D"
                )
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input must have input_size={self.input_size} features, got {x.shape[-1]}"
            )
        expected = (*x.shape[:-1], self.hidden_size)
        for name, state in named:
            if state.shape != expected:
                raise RuntimeError(
                    f"{name} must have shape {expected} to go with the input, "
                    f"got {tuple(state.shape)}"
                )
        kept = zip(self._weight_names, weights, strict=True)
        present_weights = [(name, w) for name, w in kept if name is not None and w is not None]
        for name, tensor in [*present_weights, *named]:
            if tensor.is_floating_point() and not types_fit(tensor, x):
                raise RuntimeError(f"input is {x.dtype} but {name} is {tensor.dtype}")
            if tensor.device != x.device:
                raise RuntimeError(f"input is on {x.device} but {name} is on {tensor.device}")


class _LSTMCell(LSTMModule, _Cell):
    """A cell with two states: the output h and the cell state c."""

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute one timestep.

        Args:
            input: ``[B, input_size]``, or ``[input_size]`` without a batch.
            hx: the old states ``(h, c)``, each ``[B, H]``, or ``[H]`` without a batch. None: zeros.

        Returns:
            The new states ``(h, c)``, shaped like hx. h is the output.

        Raises:
            TypeError: if the input is not a tensor, or hx not a pair of tensors.
            ValueError: if the number of dimensions is not the expected one.
            RuntimeError: if a size, dtype or device is not the expected one.
        """
        if isinstance(input, fx.Proxy):
            return self._in_fx_graph(input, hx)
        if hx is not None and not isinstance(hx, (tuple, list)):
            raise TypeError(f"hx must be a pair (h, c), got {type_name(hx)}")
        if hx is not None and len(hx) != 2:
            raise RuntimeError(f"hx must be a pair (h, c), got {len(hx)} items")
        h, c = self._run(input, hx)
        return h, c


class _GRUCell(_Cell):
    """A cell whose only state is its output."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Compute one timestep.

        Args:
            input: ``[B, input_size]``, or ``[input_size]`` without a batch.
            hx: the old state ``h``, ``[B, H]``, or ``[H]`` without a batch. None: zeros.

        Returns:
            The new state ``h``, shaped like hx, which is the output.

        Raises:
            TypeError: if the input or hx is not a tensor.
            ValueError: if the number of dimensions is not the expected one.
            RuntimeError: if a size, dtype or device is not the expected one.
        """
        if isinstance(input, fx.Proxy):
            return self._in_fx_graph(input, hx)
        (h,) = self._run(input, None if hx is None else (hx,))
        return h


@documented(per_layer=False)
class RotLSTMCell(_LSTMCell):
    """One timestep of `RotLSTM`, used like `torch.nn.LSTMCell`.

    `forward` describes inputs and outputs.

    Example:
        >>> import torch
        >>> cell = RotLSTMCell(10, 20)
        >>> h, c = torch.zeros(3, 20), torch.zeros(3, 20)
        >>> for x in torch.randn(6, 3, 10):
        ...     h, c = cell(x, (h, c))
        >>> h.shape
        torch.Size([3, 20])
    """

    _cell = CELLS["rot_lstm"]
    _without_angles = (
        "they are those of an LSTMCell. Copy its rows gate by gate, with named_gates(); a bias of "
        "-1e4 for the angles switches the rotation off"
    )

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
        angles_from: str = "both",
        rotation_size: int = 2,
        rotation_bias: float | str = 0.0,
        forget_bias: float = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, device, dtype,
            gate_activation=gate_activation,
            angle_activation=angle_activation,
            angles_from=angles_from,
            rotation_size=rotation_size,
            rotation_bias=rotation_bias,
            forget_bias=forget_bias,
            layer_norm=layer_norm,
        )  # fmt: skip


@documented(per_layer=False)
class RotGRUCell(_GRUCell):
    """One timestep of `RotGRU`, used like `torch.nn.GRUCell`.

    `forward` describes inputs and outputs.

    Example:
        >>> import torch
        >>> cell = RotGRUCell(10, 20)
        >>> h = torch.zeros(3, 20)
        >>> for x in torch.randn(6, 3, 10):
        ...     h = cell(x, h)
        >>> h.shape
        torch.Size([3, 20])
    """

    _cell = CELLS["rot_gru"]
    _without_angles = (
        "they are those of an nn.GRUCell or a ClassicGRUCell. An nn.GRUCell has different "
        "equations and cannot be converted; copy the rows of a ClassicGRUCell gate by gate, with "
        "named_gates()"
    )

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
        angles_from: str = "both",
        rotation_size: int = 2,
        rotation_bias: float | str = 0.0,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, device, dtype,
            gate_activation=gate_activation,
            angle_activation=angle_activation,
            angles_from=angles_from,
            rotation_size=rotation_size,
            rotation_bias=rotation_bias,
        )  # fmt: skip


@documented(per_layer=False)
class LSTMCell(_LSTMCell):
    """One timestep of `LSTM`: the equations, parameters and state_dict of `torch.nn.LSTMCell`.

    `forward` describes inputs and outputs.

    Example:
        >>> import torch
        >>> cell = LSTMCell(10, 20)
        >>> h, c = cell(torch.randn(3, 10))
        >>> h.shape
        torch.Size([3, 20])
    """

    _cell = CELLS["lstm"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gate_activation: str = "sigmoid",
        forget_bias: float = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, device, dtype,
            gate_activation=gate_activation,
            forget_bias=forget_bias,
            layer_norm=layer_norm,
        )  # fmt: skip


@documented(per_layer=False)
class ClassicGRUCell(_GRUCell):
    """One timestep of `ClassicGRU`, used like `torch.nn.GRUCell`.

    `forward` describes inputs and outputs.

    Example:
        >>> import torch
        >>> cell = ClassicGRUCell(10, 20)
        >>> cell(torch.randn(3, 10)).shape
        torch.Size([3, 20])
    """

    _cell = CELLS["classic_gru"]
    _lookalike = "nn.GRUCell"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gate_activation: str = "sigmoid",
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, device, dtype,
            gate_activation=gate_activation,
        )  # fmt: skip


@documented(per_layer=False)
class GRUCell(_GRUCell):
    """One timestep of `GRU`: the equations, parameters and state_dict of `torch.nn.GRUCell`.

    `forward` describes inputs and outputs.

    Example:
        >>> import torch
        >>> cell = GRUCell(10, 20)
        >>> cell(torch.randn(3, 10)).shape
        torch.Size([3, 20])
    """

    _cell = CELLS["gru"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gate_activation: str = "sigmoid",
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, device, dtype,
            gate_activation=gate_activation,
        )  # fmt: skip


@documented(per_layer=False)
class LinearRotLSTMCell(LinearRotLSTMModule, _LSTMCell):
    """One timestep of `LinearRotLSTM`, used like `torch.nn.LSTMCell`.

    No gate reads h, so of the old states only c matters. `forward` describes inputs and outputs.

    Example:
        >>> import torch
        >>> cell = LinearRotLSTMCell(10, 20)
        >>> h, c = cell(torch.randn(3, 10))
        >>> h.shape, [name for name, _ in cell.named_parameters()]
        (torch.Size([3, 20]), ['weight_ih', 'bias_ih'])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
        rotation_size: int = 2,
        rotation_bias: float | str = 0.0,
        forget_bias: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, device, dtype,
            gate_activation=gate_activation,
            angle_activation=angle_activation,
            rotation_size=rotation_size,
            rotation_bias=rotation_bias,
            forget_bias=forget_bias,
        )  # fmt: skip


@documented(per_layer=False)
class RUMCell(RUMModule, _GRUCell):
    """One timestep of `RUM`, used like `torch.nn.GRUCell`.

    `forward` describes inputs and outputs.

    Example:
        >>> import torch
        >>> cell = RUMCell(10, 20, eta=1.0)
        >>> cell(torch.randn(3, 10)).shape
        torch.Size([3, 20])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        eta: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype, eta=eta)


@documented(per_layer=False)
class GORUCell(GORUModule, _GRUCell):
    """One timestep of `GORU`, used like `torch.nn.GRUCell`.

    `forward` describes inputs and outputs.

    Example:
        >>> import torch
        >>> cell = GORUCell(10, 20, capacity=4)
        >>> cell(torch.randn(3, 10)).shape, cell.angles.shape
        (torch.Size([3, 20]), torch.Size([4, 10]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        capacity: int = 2,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype, capacity=capacity)


@documented(per_layer=False)
class EURNNCell(EURNNModule, _GRUCell):
    """One timestep of `EURNN`, used like `torch.nn.RNNCell`.

    `forward` describes inputs and outputs.

    Example:
        >>> import torch
        >>> cell = EURNNCell(10, 20)
        >>> cell(torch.randn(3, 10)).shape
        torch.Size([3, 20])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        capacity: int = 2,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype, capacity=capacity)
