"""One timestep of the layers, to put where nn.LSTMCell and nn.GRUCell stand."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn

from . import ops
from .base import CellModule, types_fit
from .reference import CELLS, Weights

__all__ = ["ClassicGRUCell", "LSTMCell", "RotGRUCell", "RotLSTMCell"]

_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class _Cell(CellModule):
    """What all cells share: weights, checks, and input without a batch."""

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
        gates: str,
        angle_gates: str = "sigmoid",
        rotation_bias: float = 0.0,
        forget_bias: float = 0.0,
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
        self._set_options(bias, gates, angle_gates, rotation_bias, forget_bias)

        rows = self._cell.rows(hidden_size)
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

    def extra_repr(self) -> str:
        """List the sizes, and the options that are not at their default."""
        changed = self._changed_options(bias=True)
        return ", ".join([str(self.input_size), str(self.hidden_size), *changed])

    def _run(self, x: Tensor, hx: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """The new state, for input and state with or without a batch."""
        weights = Weights(*self._read(_WEIGHTS))
        if not self._fit(x, hx, weights.w_ih):
            self._check(x, hx, weights.w_ih)
        if hx is None:
            hx = (x.new_zeros(*x.shape[:-1], self.hidden_size),) * len(self._cell.states)
        is_batched = x.dim() == 2
        if not is_batched:
            x, hx = x.unsqueeze(0), tuple(s.unsqueeze(0) for s in hx)
        _, *states = ops.sequence(
            self._cell, x, hx, weights, None, False, self.gates, self.angle_gates
        )
        return tuple(states if is_batched else [s.squeeze(0) for s in states])

    def _fit(self, x: Tensor, hx: tuple[Tensor, ...] | None, weight: Tensor) -> bool:
        """Whether there is plainly nothing to object to: quicker than looking for what is wrong."""
        shape, dtype, device = x.shape, x.dtype, x.device
        if len(shape) not in (1, 2) or shape[-1] != self.input_size:
            return False
        if weight.dtype != dtype or weight.device != device:
            return False
        expected = (*shape[:-1], self.hidden_size)
        for state in hx or ():
            if state.shape != expected or state.dtype != dtype or state.device != device:
                return False
        return True

    def _check(self, x: Tensor, hx: tuple[Tensor, ...] | None, weight: Tensor) -> None:
        states = self._cell.states
        names = ["hx"] if len(states) == 1 else [f"hx[{k}] ({s})" for k, s in enumerate(states)]
        named = list(zip(names, hx or (), strict=False))
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
        for name, tensor in [("the weights", weight), *named]:
            if not types_fit(tensor, x):
                raise RuntimeError(f"input is {x.dtype} but {name} is {tensor.dtype}")
            if tensor.device != x.device:
                raise RuntimeError(f"input is on {x.device} but {name} is on {tensor.device}")


class _LSTMCell(_Cell):
    """A cell whose state is a pair, output and memory."""

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the next ``(h, c)``; shapes are with the class."""
        if isinstance(input, fx.Proxy):
            return self._in_fx_graph(input, hx)
        if isinstance(hx, Tensor):
            raise TypeError("hx must be a pair (h, c), got a Tensor")
        if hx is not None and len(hx) != 2:
            raise RuntimeError(f"hx must be a pair (h, c), got {len(hx)} items")
        h, c = self._run(input, hx)
        return h, c


class _GRUCell(_Cell):
    """A cell whose state is its output."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Compute the next ``h``; shapes are with the class."""
        if isinstance(input, fx.Proxy):
            return self._in_fx_graph(input, hx)
        (h,) = self._run(input, None if hx is None else (hx,))
        return h


class RotLSTMCell(_LSTMCell):
    """One timestep of `RotLSTM`, used like `torch.nn.LSTMCell`.

    Args:
        input_size: features of the input.
        hidden_size: H, units of the memory. If it is odd the last unit is not rotated.
        bias: whether there are `bias_ih` and `bias_hh`.
        device: where the parameters live.
        dtype: number type of the parameters.
        gates: what squashes the gates i, f and o: ``"sigmoid"`` or ``"hard_sigmoid"``.
        angle_gates: what squashes the angles, likewise.
        rotation_bias: added to the angles' rows of `bias_ih` at initialisation.
        forget_bias: added to the forget gate's rows of `bias_ih` at initialisation.

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

    _cell = CELLS["rot_lstm"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gates: str = "sigmoid",
        angle_gates: str = "sigmoid",
        rotation_bias: float = 0.0,
        forget_bias: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, device, dtype,
            gates, angle_gates, rotation_bias, forget_bias,
        )  # fmt: skip


class RotGRUCell(_GRUCell):
    """One timestep of `RotGRU`, used like `torch.nn.GRUCell`.

    Args:
        input_size: features of the input.
        hidden_size: H, units of the state. If it is odd the last unit is not rotated.
        bias: whether there are `bias_ih` and `bias_hh`.
        device: where the parameters live.
        dtype: number type of the parameters.
        gates: what squashes the gates r and z: ``"sigmoid"`` or ``"hard_sigmoid"``.
        angle_gates: what squashes the angles, likewise.
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

    _cell = CELLS["rot_gru"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gates: str = "sigmoid",
        angle_gates: str = "sigmoid",
        rotation_bias: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, device, dtype, gates, angle_gates, rotation_bias
        )


class LSTMCell(_LSTMCell):
    """One timestep of `LSTM`: the equations, parameters and state_dict of `torch.nn.LSTMCell`.

    Args:
        input_size: features of the input.
        hidden_size: H, units of the memory.
        bias: whether there are `bias_ih` and `bias_hh`.
        device: where the parameters live.
        dtype: number type of the parameters.
        gates: what squashes the gates i, f and o: ``"sigmoid"`` or ``"hard_sigmoid"``.
        forget_bias: added to the forget gate's rows of `bias_ih` at initialisation.

    Shape:
        - input: ``[B, input_size]`` or, unbatched, ``[input_size]``.
        - hx: ``(h, c)``, each ``[B, H]`` or ``[H]``. Zeros if not given.
        - output: the new ``(h, c)``, shaped like hx.

    Parameters, rows in the order i, f, g, o:

    - ``weight_ih``: ``[4H, input_size]``
    - ``weight_hh``: ``[4H, H]``
    - ``bias_ih``, ``bias_hh``: ``[4H]``

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
        gates: str = "sigmoid",
        forget_bias: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, device, dtype, gates, forget_bias=forget_bias
        )


class ClassicGRUCell(_GRUCell):
    """One timestep of `ClassicGRU`, used like `torch.nn.GRUCell`.

    Args:
        input_size: features of the input.
        hidden_size: H, units of the state.
        bias: whether there are `bias_ih` and `bias_hh`.
        device: where the parameters live.
        dtype: number type of the parameters.
        gates: what squashes the gates r and z: ``"sigmoid"`` or ``"hard_sigmoid"``.

    Shape:
        - input: ``[B, input_size]`` or, unbatched, ``[input_size]``.
        - hx: ``h``, ``[B, H]`` or ``[H]``. Zeros if not given.
        - output: the new ``h``, shaped like hx.

    Parameters, rows in the order r, z, n:

    - ``weight_ih``: ``[3H, input_size]``
    - ``weight_hh``: ``[3H, H]``
    - ``bias_ih``, ``bias_hh``: ``[3H]``

    Example:
        >>> import torch
        >>> cell = ClassicGRUCell(10, 20)
        >>> cell(torch.randn(3, 10)).shape
        torch.Size([3, 20])
    """

    _cell = CELLS["classic_gru"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gates: str = "sigmoid",
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype, gates)
