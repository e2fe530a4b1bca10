"""RotLSTM, RotGRU, LSTM and ClassicGRU: layers to put where nn.LSTM and nn.GRU stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.rnn import PackedSequence

from . import convert
from .base import Layer
from .convert import AnyRotLSTM
from .reference import CELLS

__all__ = ["LSTM", "ClassicGRU", "RotGRU", "RotLSTM"]


class _LSTMLayer(Layer):
    """A layer whose state is a pair, output and memory."""

    @overload
    def forward(
        self,
        input: Tensor,
        hx: tuple[Tensor, Tensor] | None = None,
        *,
        resets: Tensor | None = None,
        return_cells: Literal[False] = False,
        context: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        hx: tuple[Tensor, Tensor] | None = None,
        *,
        resets: PackedSequence | None = None,
        return_cells: Literal[False] = False,
        context: Tensor | None = None,
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...

    @overload
    def forward(
        self,
        input: Tensor,
        hx: tuple[Tensor, Tensor] | None = None,
        *,
        resets: Tensor | None = None,
        return_cells: Literal[True],
        context: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        hx: tuple[Tensor, Tensor] | None = None,
        *,
        resets: PackedSequence | None = None,
        return_cells: Literal[True],
        context: Tensor | None = None,
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor], PackedSequence]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: tuple[Tensor, Tensor] | None = None,
        *,
        resets: Tensor | PackedSequence | None = None,
        return_cells: bool = False,
        context: Tensor | None = None,
    ) -> Any:
        """Run the layers over a sequence; shapes are with the class."""
        if isinstance(input, fx.Proxy):
            return self._in_fx_graph(
                input, hx, resets=resets, return_cells=return_cells, context=context
            )
        if hx is not None and (isinstance(hx, Tensor) or len(hx) != 2):
            # nn.LSTM raises these two types as well.
            error = IndexError if len(hx) < 2 else RuntimeError
            raise error(f"hx must be a pair (h_0, c_0), got {len(hx)} in a {type(hx).__name__}")
        output, (h_n, c_n), cells = self._run(input, hx, resets, return_cells, context)
        return (output, (h_n, c_n), cells) if return_cells else (output, (h_n, c_n))

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The size that c_0 must have, as nn.LSTM tells it."""
        layers, batch, _ = self.get_expected_hidden_size(input, batch_sizes)
        return layers, batch, self.hidden_size


class _GRULayer(Layer):
    """A layer whose state is its output."""

    @overload
    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        *,
        resets: Tensor | None = None,
        context: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        hx: Tensor | None = None,
        *,
        resets: PackedSequence | None = None,
        context: Tensor | None = None,
    ) -> tuple[PackedSequence, Tensor]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        *,
        resets: Tensor | PackedSequence | None = None,
        context: Tensor | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run the layers over a sequence; shapes are with the class."""
        if isinstance(input, fx.Proxy):
            return self._in_fx_graph(input, hx, resets=resets, context=context)
        state = None if hx is None else (hx,)
        output, (h_n,), _ = self._run(input, state, resets, context=context)
        return output, h_n


def _refuse_projection(proj_size: object) -> None:
    if proj_size is not None:  # as nn.GRU does, also for 0
        raise ValueError(f"proj_size={proj_size!r}: only LSTMs have a projection")


class RotLSTM(_LSTMLayer):
    """An LSTM whose memory is rotated, pair by pair, at every timestep.

    Used like `torch.nn.LSTM`, with the same arguments, inputs, outputs and parameter names. For
    every pair of memory units there is a further gate, the angle u:

        u[t] = 2 pi sigmoid(W_rot [h[t-1], x[t]] + b_rot)
        d[t] = f[t] * c[t-1] + i[t] * g[t]
        c[t] = U(u[t]) d[t]
        h[t] = o[t] * tanh(c[t])

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
        gates: what squashes the gates i, f and o: ``"sigmoid"``, or ``"hard_sigmoid"``,
            ``clip(0.2 a + 0.5, 0, 1)``, which Keras had before 2.3.
        angle_gates: what squashes the angles, likewise.
        rotation_bias: added to the angles' rows of `bias_ih` at initialisation. At 0 the angles
            start around pi; a negative value lets them start smaller.
        forget_bias: added to the forget gate's rows of `bias_ih` at initialisation.
        recurrent_dropout: probability of dropping elements of h where it enters the products of the
            next step, in training: one mask for a whole sequence, layer and direction.
        zoneout: probability, at every step, of a unit to keep what it held, in training: of both h
            and c, or a pair, of each. Out of training the expected mixture of old and new is taken.
            Not with a projection.

    Shape:
        - input: ``[T, B, input_size]``, ``[B, T, input_size]`` if `batch_first`, unbatched
          ``[T, input_size]``, or a PackedSequence.
        - hx: ``(h_0, c_0)``, ``[num_layers * D, B, P]`` and ``[num_layers * D, B, H]`` (no B if
          unbatched). Zeros if not given.
        - resets: bool ``[T, B]``, ``[B, T]`` if `batch_first`, ``[T]`` if unbatched, or, if the
          input is packed, a PackedSequence of the same lengths. Where it is true a new sequence
          begins: the state before that step is zero, in every layer. The reverse direction does
          not carry anything over that border either.
        - context: ``[B, C]``, ``[C]`` if unbatched: the last C of the `input_size` features, where
          they are the same at every step. The input then has ``input_size - C``.
        - output: as the input, with ``D * P`` features; packed if the input is.
        - ``(h_n, c_n)``: shaped like ``(h_0, c_0)``.
        - cells, with ``return_cells=True`` and after the states: c of every step of the last layer,
          laid out as the output, with ``D * H`` features.

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

    _cell = CELLS["rot_lstm"]

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
        gates: str = "sigmoid",
        angle_gates: str = "sigmoid",
        rotation_bias: float = 0.0,
        forget_bias: float = 0.0,
        recurrent_dropout: float = 0.0,
        zoneout: float | tuple[float, float] = 0.0,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            proj_size, device, dtype, gates, angle_gates, rotation_bias, forget_bias,
            recurrent_dropout, zoneout,
        )  # fmt: skip

    @classmethod
    def from_lstm(
        cls: type[AnyRotLSTM],
        lstm: nn.LSTM | LSTM | Mapping[str, Tensor],
        *,
        batch_first: bool | None = None,
        dropout: float | None = None,
        rotation_bias: float = convert.ROTATION_OFF,
    ) -> AnyRotLSTM:
        """Make a RotLSTM that computes what an LSTM computes.

        Args:
            lstm: the layer, an `nn.LSTM` or a `rotcell.LSTM`, or its state_dict, from which all
                sizes and options are read that show in names and shapes. The weights are copied.
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
                state_dict is not that of an LSTM (missing, unexpected or misshapen entries).

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
        return convert.from_lstm(cls, lstm, batch_first, dropout, rotation_bias)


class RotGRU(_GRULayer):
    """A GRU whose reset memory is rotated, pair by pair, at every timestep.

    Used like `torch.nn.GRU`, with the same arguments, inputs, outputs and parameter names. For
    every pair of units there is a further gate, the angle u:

        u[t] = 2 pi sigmoid(W_rot [h[t-1], x[t]] + b_rot)
        d[t] = h[t-1] * r[t]
        n[t] = tanh(W_n [U(u[t]) d[t], x[t]] + b_n)
        h[t] = (1 - z[t]) * h[t-1] + z[t] * n[t]

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
        gates: what squashes the gates r and z: ``"sigmoid"``, or ``"hard_sigmoid"``,
            ``clip(0.2 a + 0.5, 0, 1)``, which Keras had before 2.3.
        angle_gates: what squashes the angles, likewise.
        rotation_bias: added to the angles' rows of `bias_ih` at initialisation. At 0 the angles
            start around pi; a negative value lets them start smaller.
        recurrent_dropout: probability of dropping elements of h where it enters the products of the
            next step, in training: one mask for a whole sequence, layer and direction. What z
            carries over from h is not dropped.
        zoneout: probability, at every step, of a unit to keep what it held, in training. Out
            of it the expected mixture of old and new is taken.

    Shape:
        - input: ``[T, B, input_size]``, ``[B, T, input_size]`` if `batch_first`, unbatched
          ``[T, input_size]``, or a PackedSequence.
        - hx: ``h_0``, ``[num_layers * D, B, H]`` (no B if unbatched). Zeros if not given.
        - resets: bool ``[T, B]``, ``[B, T]`` if `batch_first`, ``[T]`` if unbatched, or, if the
          input is packed, a PackedSequence of the same lengths. Where it is true a new sequence
          begins: the state before that step is zero, in every layer. The reverse direction does
          not carry anything over that border either.
        - context: ``[B, C]``, ``[C]`` if unbatched: the last C of the `input_size` features, where
          they are the same at every step. The input then has ``input_size - C``.
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

    _cell = CELLS["rot_gru"]

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
        gates: str = "sigmoid",
        angle_gates: str = "sigmoid",
        rotation_bias: float = 0.0,
        recurrent_dropout: float = 0.0,
        zoneout: float = 0.0,
        proj_size: None = None,
    ) -> None:
        _refuse_projection(proj_size)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0,
            device, dtype, gates, angle_gates, rotation_bias, recurrent_dropout=recurrent_dropout,
            zoneout=zoneout,
        )  # fmt: skip


class LSTM(_LSTMLayer):
    """The LSTM of `torch.nn.LSTM`: its equations, arguments, parameters and state_dict.

    It differs in how it runs: packed input costs what its tokens cost, and
    ``torch.compile(fullgraph=True)``, ``torch.func`` and double backward work.

    Args:
        input_size: features of the input.
        hidden_size: H, units of the memory.
        num_layers: layers on top of each other.
        bias: whether there are `bias_ih` and `bias_hh`.
        batch_first: take and give padded sequences as ``[B, T, ...]`` instead of ``[T, B, ...]``.
            States are not affected.
        dropout: probability of dropping outputs of every layer but the last, in training.
        bidirectional: also run each layer from the last step to the first; D = 2 directions.
        proj_size: if not 0, project outputs to this size (P, smaller than H); P is H otherwise.
        device: where the parameters live.
        dtype: number type of the parameters.
        gates: what squashes the gates i, f and o: ``"sigmoid"``, or ``"hard_sigmoid"``,
            ``clip(0.2 a + 0.5, 0, 1)``, which Keras had before 2.3.
        forget_bias: added to the forget gate's rows of `bias_ih` at initialisation.
        recurrent_dropout: probability of dropping elements of h where it enters the products of the
            next step, in training: one mask for a whole sequence, layer and direction.
        zoneout: probability, at every step, of a unit to keep what it held, in training: of both h
            and c, or a pair, of each. Out of training the expected mixture of old and new is taken.
            Not with a projection.

    Shape:
        - input: ``[T, B, input_size]``, ``[B, T, input_size]`` if `batch_first`, unbatched
          ``[T, input_size]``, or a PackedSequence.
        - hx: ``(h_0, c_0)``, ``[num_layers * D, B, P]`` and ``[num_layers * D, B, H]`` (no B if
          unbatched). Zeros if not given.
        - resets: bool ``[T, B]``, ``[B, T]`` if `batch_first`, ``[T]`` if unbatched, or, if the
          input is packed, a PackedSequence of the same lengths. Where it is true a new sequence
          begins: the state before that step is zero, in every layer. The reverse direction does
          not carry anything over that border either.
        - context: ``[B, C]``, ``[C]`` if unbatched: the last C of the `input_size` features, where
          they are the same at every step. The input then has ``input_size - C``.
        - output: as the input, with ``D * P`` features; packed if the input is.
        - ``(h_n, c_n)``: shaped like ``(h_0, c_0)``.
        - cells, with ``return_cells=True`` and after the states: c of every step of the last layer,
          laid out as the output, with ``D * H`` features.

    Parameters, for layer k (and again with the suffix ``_reverse``), rows in the order i, f, g, o:

    - ``weight_ih_l{k}``: ``[4H, input features of the layer]``
    - ``weight_hh_l{k}``: ``[4H, P]``
    - ``bias_ih_l{k}``, ``bias_hh_l{k}``: ``[4H]``
    - ``weight_hr_l{k}``: ``[P, H]``, with a projection only

    Example:
        >>> import torch
        >>> layer, x = LSTM(10, 20), torch.randn(5, 3, 10)
        >>> torchs = torch.nn.LSTM(10, 20)
        >>> torchs.load_state_dict(layer.state_dict())
        <All keys matched successfully>
        >>> torch.allclose(layer(x)[0], torchs(x)[0], atol=1e-6)
        True
    """

    _cell = CELLS["lstm"]

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
        gates: str = "sigmoid",
        forget_bias: float = 0.0,
        recurrent_dropout: float = 0.0,
        zoneout: float | tuple[float, float] = 0.0,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            proj_size, device, dtype, gates, forget_bias=forget_bias,
            recurrent_dropout=recurrent_dropout, zoneout=zoneout,
        )  # fmt: skip


class ClassicGRU(_GRULayer):
    """The GRU as Cho et al. wrote it, which is `RotGRU` without the rotation.

        n[t] = tanh(W_n [h[t-1] * r[t], x[t]] + b_n)
        h[t] = (1 - z[t]) * h[t-1] + z[t] * n[t]

    Used like `torch.nn.GRU`, with the same arguments, inputs, outputs, parameter names and shapes,
    but with other equations, so do not load the weights of one into the other: nn.GRU resets after
    the product with the recurrent weights, and its z weighs the old state, not the candidate.

    Args:
        input_size: features of the input.
        hidden_size: H, units of the state.
        num_layers: layers on top of each other.
        bias: whether there are `bias_ih` and `bias_hh`.
        batch_first: take and give padded sequences as ``[B, T, ...]`` instead of ``[T, B, ...]``.
            States are not affected.
        dropout: probability of dropping outputs of every layer but the last, in training.
        bidirectional: also run each layer from the last step to the first; D = 2 directions.
        device: where the parameters live.
        dtype: number type of the parameters.
        gates: what squashes the gates r and z: ``"sigmoid"``, or ``"hard_sigmoid"``,
            ``clip(0.2 a + 0.5, 0, 1)``, which Keras had before 2.3.
        recurrent_dropout: probability of dropping elements of h where it enters the products of the
            next step, in training: one mask for a whole sequence, layer and direction. What z
            carries over from h is not dropped.
        zoneout: probability, at every step, of a unit to keep what it held, in training. Out
            of it the expected mixture of old and new is taken.

    Shape:
        - input: ``[T, B, input_size]``, ``[B, T, input_size]`` if `batch_first`, unbatched
          ``[T, input_size]``, or a PackedSequence.
        - hx: ``h_0``, ``[num_layers * D, B, H]`` (no B if unbatched). Zeros if not given.
        - resets: bool ``[T, B]``, ``[B, T]`` if `batch_first`, ``[T]`` if unbatched, or, if the
          input is packed, a PackedSequence of the same lengths. Where it is true a new sequence
          begins: the state before that step is zero, in every layer. The reverse direction does
          not carry anything over that border either.
        - context: ``[B, C]``, ``[C]`` if unbatched: the last C of the `input_size` features, where
          they are the same at every step. The input then has ``input_size - C``.
        - output: as the input, with ``D * H`` features; packed if the input is.
        - ``h_n``: shaped like ``h_0``.

    Parameters, for layer k (and again with the suffix ``_reverse``), rows in the order r, z, n:

    - ``weight_ih_l{k}``: ``[3H, input features of the layer]``
    - ``weight_hh_l{k}``: ``[3H, H]``
    - ``bias_ih_l{k}``, ``bias_hh_l{k}``: ``[3H]``

    Example:
        >>> import torch
        >>> layer = ClassicGRU(10, 20, gates="hard_sigmoid")
        >>> output, h_n = layer(torch.randn(5, 3, 10))
        >>> output.shape, h_n.shape
        (torch.Size([5, 3, 20]), torch.Size([1, 3, 20]))
    """

    _cell = CELLS["classic_gru"]

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
        gates: str = "sigmoid",
        recurrent_dropout: float = 0.0,
        zoneout: float = 0.0,
        proj_size: None = None,
    ) -> None:
        _refuse_projection(proj_size)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0,
            device, dtype, gates, recurrent_dropout=recurrent_dropout, zoneout=zoneout,
        )  # fmt: skip
