"""RotLSTM, LSTM and LinearRotLSTM: layers used like nn.LSTM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, overload

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.rnn import PackedSequence

from rotcell.reference import CELLS, LINEAR_ROT_LSTM, Cell
from rotcell.reference_rows import layer_norm_lstm

from . import convert
from .base import CellModule, type_name
from .convert import AnyRotLSTM
from .documentation import documented
from .layer import Layer
from .parameters import INPUT_ONLY, RECURRENT, Parameter, input_only

__all__ = ["LSTM", "LSTMModule", "LinearRotLSTM", "LinearRotLSTMModule", "RotLSTM"]


#: The additional parameters of an LSTM with layer norm.
_LAYER_NORM = (
    Parameter("gain_ih", "gain_ih", ("R",), option="layer_norm", start=1.0),
    Parameter("gain_hh", "gain_hh", ("R",), option="layer_norm", start=1.0),
    Parameter("gain_c", "gain_c", ("H",), option="layer_norm", start=1.0),
    Parameter("bias_c", "bias_c", ("H",), option="layer_norm", start=0.0),
)


class LSTMModule(CellModule):
    """What layers and single-step cells with a cell state share: layer norm is an option."""

    _parameter_table: ClassVar[tuple[Parameter, ...]] = (*RECURRENT, *_LAYER_NORM)

    layer_norm: bool

    def _chosen_cell(self) -> Cell:
        if not self.layer_norm:
            return super()._chosen_cell()
        if self.rotation_size != 2:
            raise ValueError(f"rotation_size must be 2 with layer_norm, got {self.rotation_size}")
        if self.angles_from != "both":
            raise ValueError(
                f"angles_from must be 'both' with layer_norm, got {self.angles_from!r}"
            )
        return layer_norm_lstm(type(self)._cell.name)


class LinearRotLSTMModule(LSTMModule):
    """What `LinearRotLSTM` and `LinearRotLSTMCell` share: no parameter multiplies h."""

    _cell = LINEAR_ROT_LSTM
    _parameter_table = INPUT_ONLY
    _without_angles = "they are those of a module without rotation"
    _argument_texts: ClassVar[dict[str, str]] = {"bias": "whether there is `bias_ih`."}


class _LSTMLayer(LSTMModule, Layer):
    """A layer with two states: the output h and the cell state c."""

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
        """Run all layers and directions over a batch of sequences.

        Args:
            input: the sequences: ``[T, B, input_size]``, ``[B, T, input_size]`` if `batch_first`,
                ``[T, input_size]`` without a batch, or a PackedSequence. T steps, B rows.
            hx: the initial states ``(h_0, c_0)``, ``[num_layers * D, B, P]`` and
                ``[num_layers * D, B, H]``, without B if the input has no batch; D is 2 if
                `bidirectional`, else 1, and P is `proj_size`, or H without a projection. Rows are
                in the order of the sequences before packing. None: zeros.
            resets: bool, True where a new sequence begins: the state before that step is zero, in
                every layer, and the reverse direction carries nothing across that border either.
                ``[T, B]``, ``[B, T]`` if `batch_first`, ``[T]`` without a batch, or, for packed
                input, a PackedSequence of the same lengths. None: nowhere.
            return_cells: whether to also return the cell states of every step.
            context: features that are the same at every step: ``[B, C]``, ``[C]`` without a batch.
                They are the last C of the `input_size` features; the input then has
                ``input_size - C``. They are multiplied by the weights once, not at every step.

        Returns:
            ``(output, (h_n, c_n))``, or ``(output, (h_n, c_n), cells)`` with `return_cells`.

            - output: h of every step of the last layer, laid out as the input (packed if the input
              is), with ``D * P`` features; those of the forward direction come first.
            - ``(h_n, c_n)``: the states after the last step of each sequence, shaped like
              ``(h_0, c_0)``. The reverse direction's last step is the first of the sequence.
            - cells: c of every step of the last layer, laid out as the output, with ``D * H``
              features.

        Raises:
            TypeError: if an argument is not a tensor (or PackedSequence) where one is expected.
            ValueError: if the number of dimensions, or the dtype, is not the expected one.
            RuntimeError: if a size or a device is not the expected one.
        """
        if isinstance(input, fx.Proxy):
            return self._in_fx_graph(
                input, hx, resets=resets, return_cells=return_cells, context=context
            )
        if hx is not None:
            _check_pair(hx)
        output, (h_n, c_n), cells = self._run(input, hx, resets, return_cells, context)
        return (output, (h_n, c_n), cells) if return_cells else (output, (h_n, c_n))

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The size that c_0 must have, as in nn.LSTM."""
        layers, batch, _ = self.get_expected_hidden_size(input, batch_sizes)
        return layers, batch, self.hidden_size


def _check_pair(hx: Any) -> None:
    if not isinstance(hx, (tuple, list, Tensor)):
        raise TypeError(f"hx must be a pair (h_0, c_0) of Tensors, got {type_name(hx)}")
    if isinstance(hx, Tensor) or len(hx) != 2:
        # nn.LSTM raises these two types as well.
        error = IndexError if len(hx) < 2 else RuntimeError
        raise error(f"hx must be a pair (h_0, c_0), got {len(hx)} in a {type(hx).__name__}")


@documented(per_layer=True)
class RotLSTM(_LSTMLayer):
    """An LSTM whose cell state is rotated, pair by pair, at every timestep.

    Used like `torch.nn.LSTM`, with the same arguments, inputs, outputs and parameter names. Every
    pair of units has one more gate, the angle u (larger groups have more, see `rotation_size`):

        u[t] = 2 pi sigmoid(W_rot [h[t-1], x[t]] + b_rot)
        d[t] = f[t] * c[t-1] + i[t] * g[t]
        c[t] = U(u[t]) d[t]
        h[t] = o[t] * tanh(c[t])

    The first 4H rows of each weight are those of nn.LSTM; `from_lstm` converts one. `forward`
    describes inputs and outputs.

    Example:
        >>> import torch
        >>> layer = RotLSTM(10, 20, num_layers=2)
        >>> output, (h_n, c_n) = layer(torch.randn(5, 3, 10))
        >>> output.shape, c_n.shape
        (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    _cell = CELLS["rot_lstm"]
    _without_angles = (
        "they are those of an LSTM. RotLSTM.from_lstm(lstm), or RotLSTM.from_lstm(state_dict), "
        "makes a RotLSTM of them"
    )

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
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
        angles_from: str = "both",
        rotation_size: int = 2,
        rotation_bias: float | str = 0.0,
        forget_bias: float = 0.0,
        recurrent_dropout: float = 0.0,
        zoneout: float | tuple[float, float] = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            proj_size, device, dtype,
            gate_activation=gate_activation,
            angle_activation=angle_activation,
            angles_from=angles_from,
            rotation_size=rotation_size,
            rotation_bias=rotation_bias,
            forget_bias=forget_bias,
            recurrent_dropout=recurrent_dropout,
            zoneout=zoneout,
            layer_norm=layer_norm,
        )  # fmt: skip

    @classmethod
    def from_lstm(
        cls: type[AnyRotLSTM],
        lstm: nn.LSTM | LSTM | Mapping[str, Tensor],
        *,
        batch_first: bool | None = None,
        dropout: float | None = None,
        rotation_bias: float | str = convert.ROTATION_OFF,
        rotation_size: int = 2,
    ) -> AnyRotLSTM:
        """Make a RotLSTM that computes what an LSTM computes.

        Args:
            lstm: the layer, an `nn.LSTM` or a `rotcell.LSTM`, or its state_dict, from which all
                sizes and options are read that show in names and shapes. The weights are copied.
            batch_first: None keeps the layer's (False for a state_dict, which does not record it).
            dropout: None keeps the layer's (0 for a state_dict).
            rotation_bias: bias of the angles. The default switches the rotation off, exactly and
                for good: angles of 0 have no gradient. To train the rotation as well, start from
                small angles instead, say with ``rotation_bias=-5.0`` (0.04 radians).
            rotation_size: units of each group that is rotated.

        Returns:
            A layer with the source's dtype, device and, if it is a module, training mode and
            frozen parameters.

        Raises:
            TypeError: if `lstm` is neither a module nor a state_dict.
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
        return convert.from_lstm(cls, lstm, batch_first, dropout, rotation_bias, rotation_size)


@documented(per_layer=True)
class LSTM(_LSTMLayer):
    """The LSTM of `torch.nn.LSTM`: its equations, arguments, parameters and state_dict.

    It differs in how it runs: packed input costs what its tokens cost, and
    ``torch.compile(fullgraph=True)``, ``torch.func`` and double backward work. `forward` describes
    inputs and outputs.

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
        gate_activation: str = "sigmoid",
        forget_bias: float = 0.0,
        recurrent_dropout: float = 0.0,
        zoneout: float | tuple[float, float] = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            proj_size, device, dtype,
            gate_activation=gate_activation,
            forget_bias=forget_bias,
            recurrent_dropout=recurrent_dropout,
            zoneout=zoneout,
            layer_norm=layer_norm,
        )  # fmt: skip


@documented(per_layer=True)
class LinearRotLSTM(LinearRotLSTMModule, _LSTMLayer):
    """`RotLSTM` with gates and angles from the input alone: its recurrence is linear in c.

        i[t], f[t], o[t] = sigmoid(W x[t] + b), g[t] = tanh(W_g x[t] + b_g)
        u[t] = 2 pi sigmoid(W_rot x[t] + b_rot)
        d[t] = f[t] * c[t-1] + i[t] * g[t]
        c[t] = U(u[t]) d[t]
        h[t] = o[t] * tanh(c[t])

    There is no recurrent matmul: one large matmul makes the gates of all steps, and the steps
    themselves are elementwise. Used like `torch.nn.LSTM`, with the same inputs and outputs;
    `forward` describes them. No gate reads h, so h_0 matters only with zoneout, and there is no
    recurrent dropout. There are kernels for CPUs; on a GPU the reference code runs, with a warning.

    Example:
        >>> import torch
        >>> layer = LinearRotLSTM(10, 20)
        >>> output, (h_n, c_n) = layer(torch.randn(5, 3, 10))
        >>> output.shape, [name for name, _ in layer.named_parameters()]
        (torch.Size([5, 3, 20]), ['weight_ih_l0', 'bias_ih_l0'])
    """

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
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
        rotation_size: int = 2,
        rotation_bias: float | str = 0.0,
        forget_bias: float = 0.0,
        zoneout: float | tuple[float, float] = 0.0,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            proj_size, device, dtype,
            gate_activation=gate_activation,
            angle_activation=angle_activation,
            rotation_size=rotation_size,
            rotation_bias=rotation_bias,
            forget_bias=forget_bias,
            zoneout=zoneout,
        )  # fmt: skip

    def _weights(self) -> list[Any]:
        return [input_only(weights, self._output_size) for weights in super()._weights()]
