"""RotLSTMCell and RotGRUCell: one timestep, to put where nn.LSTMCell and nn.GRUCell stand."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from . import ops
from .base import checked_rotation_bias, dtypes_must_agree, init_parameters
from .reference import GRU_GATES, LSTM_GATES, gate_sizes

__all__ = ["RotGRUCell", "RotLSTMCell"]


class _RotCell(nn.Module):
    """What both cells share: weights, checks, and input without a batch."""

    _gates: ClassVar[tuple[str, ...]]
    #: What the parts of the state are called in error messages.
    _state_names: ClassVar[tuple[str, ...]]

    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        rotation_bias: float = 0.0,
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
        self.rotation_bias = checked_rotation_bias(rotation_bias, bias)

        rows = sum(gate_sizes(self._gates, hidden_size))
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, hidden_size),
            "bias_ih": (rows,),
            "bias_hh": (rows,),
        }
        for name, shape in shapes.items():
            if bias or name.startswith("weight"):
                empty = torch.empty(shape, device=device, dtype=dtype)
                self.register_parameter(name, nn.Parameter(empty))
            else:
                self.register_parameter(name, None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every parameter anew, uniform in ±1/sqrt(hidden_size), and add `rotation_bias`."""
        input_biases = [] if self.bias_ih is None else [self.bias_ih]
        init_parameters(self.parameters(), input_biases, self.hidden_size, self.rotation_bias)

    def extra_repr(self) -> str:
        """List the sizes, and the options that are not at their default."""
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        if self.rotation_bias != 0:
            text += f", rotation_bias={self.rotation_bias}"
        return text

    def _batched(
        self, x: Tensor, hx: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Check input and state, and give both a batch of one if they have none."""
        if not self._fit(x, hx):
            self._check(x, hx)
        if hx is None:
            hx = (x.new_zeros(*x.shape[:-1], self.hidden_size),) * len(self._state_names)
        if x.dim() == 1:
            return x.unsqueeze(0), tuple(state.unsqueeze(0) for state in hx)
        return x, hx

    def _fit(self, x: Tensor, hx: tuple[Tensor, ...] | None) -> bool:
        """Whether there is plainly nothing to object to: quicker than looking for what is wrong."""
        shape, dtype, device, weight = x.shape, x.dtype, x.device, self.weight_ih
        if len(shape) not in (1, 2) or shape[-1] != self.input_size:
            return False
        if weight.dtype != dtype or weight.device != device:
            return False
        expected = (*shape[:-1], self.hidden_size)
        for state in hx or ():
            if state.shape != expected or state.dtype != dtype or state.device != device:
                return False
        return True

    def _check(self, x: Tensor, hx: tuple[Tensor, ...] | None) -> None:
        named = list(zip(self._state_names, hx or (), strict=False))
        for name, tensor in [("input", x), *named]:
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
        for name, tensor in [("the weights", self.weight_ih), *named]:
            if tensor.dtype != x.dtype and dtypes_must_agree(x):
                raise RuntimeError(f"input is {x.dtype} but {name} is {tensor.dtype}")
            if tensor.device != x.device:
                raise RuntimeError(f"input is on {x.device} but {name} is on {tensor.device}")


class RotLSTMCell(_RotCell):
    """One timestep of `RotLSTM`, used like `torch.nn.LSTMCell`.

    Args:
        input_size: features of the input.
        hidden_size: H, units of the memory. If it is odd the last unit is not rotated.
        bias: whether there are `bias_ih` and `bias_hh`.
        device: where the parameters live.
        dtype: number type of the parameters.
        rotation_bias: added to the angles' rows of `bias_ih` at initialisation.

    Shape:
        - input: ``[B, input_size]`` or, unbatched, ``[input_size]``.
        - hx: ``(h, c)``, each ``[B, H]`` or ``[H]``. Zeros if not given.
        - output: the new ``(h, c)``, shaped like hx.

    Parameters, rows in the order i, f, g, o, rot:
        - ``weight_ih``: ``[4H + H//2, input_size]``
        - ``weight_hh``: ``[4H + H//2, H]``
        - ``bias_ih``, ``bias_hh``: ``[4H + H//2]``

    Example:
        >>> import torch
        >>> cell = RotLSTMCell(10, 20)
        >>> h, c = torch.zeros(3, 20), torch.zeros(3, 20)
        >>> for x in torch.randn(6, 3, 10):
        ...     h, c = cell(x, (h, c))
        >>> h.shape
        torch.Size([3, 20])
    """

    _gates = LSTM_GATES
    _state_names = ("hx[0] (h)", "hx[1] (c)")

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the next ``(h, c)``; shapes are with the class."""
        if isinstance(hx, Tensor):
            raise TypeError("hx must be a pair (h, c), got a Tensor")
        if hx is not None and len(hx) != 2:
            raise RuntimeError(f"hx must be a pair (h, c), got {len(hx)} items")
        x, (h, c) = self._batched(input, hx)
        _, h, c = ops.rot_lstm(x, h, c, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return (h, c) if input.dim() == 2 else (h.squeeze(0), c.squeeze(0))


class RotGRUCell(_RotCell):
    """One timestep of `RotGRU`, used like `torch.nn.GRUCell`.

    Args:
        input_size: features of the input.
        hidden_size: H, units of the state. If it is odd the last unit is not rotated.
        bias: whether there are `bias_ih` and `bias_hh`.
        device: where the parameters live.
        dtype: number type of the parameters.
        rotation_bias: added to the angles' rows of `bias_ih` at initialisation.

    Shape:
        - input: ``[B, input_size]`` or, unbatched, ``[input_size]``.
        - hx: ``h``, ``[B, H]`` or ``[H]``. Zeros if not given.
        - output: the new ``h``, shaped like hx.

    Parameters, rows in the order r, z, n, rot:
        - ``weight_ih``: ``[3H + H//2, input_size]``
        - ``weight_hh``: ``[3H + H//2, H]``
        - ``bias_ih``, ``bias_hh``: ``[3H + H//2]``

    Example:
        >>> import torch
        >>> cell = RotGRUCell(10, 20)
        >>> h = torch.zeros(3, 20)
        >>> for x in torch.randn(6, 3, 10):
        ...     h = cell(x, h)
        >>> h.shape
        torch.Size([3, 20])
    """

    _gates = GRU_GATES
    _state_names = ("hx",)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Compute the next ``h``; shapes are with the class."""
        x, (h,) = self._batched(input, None if hx is None else (hx,))
        _, h = ops.rot_gru(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return h if input.dim() == 2 else h.squeeze(0)
