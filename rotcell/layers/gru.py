"""RotGRU, ClassicGRU and GRU: layers used like nn.GRU."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor, fx
from torch.nn.utils.rnn import PackedSequence

from rotcell.reference import CELLS

from .documentation import documented
from .layer import Layer

__all__ = ["GRU", "ClassicGRU", "RotGRU"]


class _GRULayer(Layer):
    """A layer whose only state is its output."""

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
        """Run all layers and directions over a batch of sequences.

        Args:
            input: the sequences: ``[T, B, input_size]``, ``[B, T, input_size]`` if `batch_first`,
                ``[T, input_size]`` without a batch, or a PackedSequence. T steps, B rows.
            hx: the initial state ``h_0``, ``[num_layers * D, B, H]``, without B if the input has no
                batch; D is 2 if `bidirectional`, else 1. Rows are in the order of the sequences
                before packing. None: zeros.
            resets: bool, True where a new sequence begins: the state before that step is zero, in
                every layer, and the reverse direction carries nothing across that border either.
                ``[T, B]``, ``[B, T]`` if `batch_first`, ``[T]`` without a batch, or, for packed
                input, a PackedSequence of the same lengths. None: nowhere.
            context: features that are the same at every step: ``[B, C]``, ``[C]`` without a batch.
                They are the last C of the `input_size` features; the input then has
                ``input_size - C``. They are multiplied by the weights once, not at every step.

        Returns:
            ``(output, h_n)``.

            - output: h of every step of the last layer, laid out as the input (packed if the input
              is), with ``D * H`` features; those of the forward direction come first.
            - ``h_n``: the state after the last step of each sequence, shaped like ``h_0``. The
              reverse direction's last step is the first of the sequence.

        Raises:
            TypeError: if an argument is not a tensor (or PackedSequence) where one is expected.
            ValueError: if the number of dimensions, or the dtype, is not the expected one.
            RuntimeError: if a size or a device is not the expected one.
        """
        if isinstance(input, fx.Proxy):
            return self._in_fx_graph(input, hx, resets=resets, context=context)
        state = None if hx is None else (hx,)
        output, (h_n,), _ = self._run(input, state, resets, context=context)
        return output, h_n


def _refuse_projection(proj_size: object) -> None:
    if proj_size is not None:  # as nn.GRU does, also for 0
        raise ValueError(f"proj_size must be None: only LSTMs have a projection, got {proj_size!r}")


@documented(per_layer=True)
class RotGRU(_GRULayer):
    """A GRU whose reset state is rotated, pair by pair, at every timestep.

    Used like `torch.nn.GRU`, with the same arguments, inputs, outputs and parameter names. Every
    pair of units has one more gate, the angle u (larger groups have more, see `rotation_size`):

        u[t] = 2 pi sigmoid(W_rot [h[t-1], x[t]] + b_rot)
        d[t] = h[t-1] * r[t]
        n[t] = tanh(W_n [U(u[t]) d[t], x[t]] + b_n)
        h[t] = (1 - z[t]) * h[t-1] + z[t] * n[t]

    Two more things differ from nn.GRU, both as in the paper: the reset acts before
    the matmul with the recurrent weights, and z weighs the candidate, not the old state. `forward`
    describes inputs and outputs.

    Example:
        >>> import torch
        >>> layer = RotGRU(10, 20, bidirectional=True)
        >>> output, h_n = layer(torch.randn(5, 3, 10))
        >>> output.shape, h_n.shape
        (torch.Size([5, 3, 40]), torch.Size([2, 3, 20]))
    """

    _cell = CELLS["rot_gru"]
    _without_angles = (
        "they are those of an nn.GRU or a ClassicGRU. An nn.GRU has different equations and cannot "
        "be converted; copy the rows of a ClassicGRU gate by gate, with named_gates()"
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
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        gate_activation: str = "sigmoid",
        angle_activation: str = "sigmoid",
        angles_from: str = "both",
        rotation_size: int = 2,
        rotation_bias: float | str = 0.0,
        recurrent_dropout: float = 0.0,
        zoneout: float = 0.0,
        proj_size: None = None,
    ) -> None:
        _refuse_projection(proj_size)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            0, device, dtype,
            gate_activation=gate_activation,
            angle_activation=angle_activation,
            angles_from=angles_from,
            rotation_size=rotation_size,
            rotation_bias=rotation_bias,
            recurrent_dropout=recurrent_dropout,
            zoneout=zoneout,
        )  # fmt: skip


@documented(per_layer=True)
class ClassicGRU(_GRULayer):
    """The GRU as Cho et al. wrote it, which is `RotGRU` without the rotation.

        n[t] = tanh(W_n [h[t-1] * r[t], x[t]] + b_n)
        h[t] = (1 - z[t]) * h[t-1] + z[t] * n[t]

    Used like `torch.nn.GRU`, with the same arguments, inputs, outputs, parameter names and shapes,
    but with different equations: nn.GRU resets after the matmul with the recurrent weights, and its
    z weighs the old state, not the candidate. So do not load the weights of one into the other:
    `load_state_dict` warns if a state_dict may be that of an nn.GRU. `forward` describes inputs and
    outputs.

    Example:
        >>> import torch
        >>> layer = ClassicGRU(10, 20, gate_activation="hard_sigmoid")
        >>> output, h_n = layer(torch.randn(5, 3, 10))
        >>> output.shape, h_n.shape
        (torch.Size([5, 3, 20]), torch.Size([1, 3, 20]))
    """

    _cell = CELLS["classic_gru"]
    _lookalike = "nn.GRU"

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
        gate_activation: str = "sigmoid",
        recurrent_dropout: float = 0.0,
        zoneout: float = 0.0,
        proj_size: None = None,
    ) -> None:
        _refuse_projection(proj_size)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            0, device, dtype,
            gate_activation=gate_activation,
            recurrent_dropout=recurrent_dropout,
            zoneout=zoneout,
        )  # fmt: skip


@documented(per_layer=True)
class GRU(_GRULayer):
    """The GRU of torch: the equations, parameters and state_dict of `torch.nn.GRU`.

        n[t] = tanh(W_in x[t] + b_in + r[t] * (W_hn h[t-1] + b_hn))
        h[t] = (1 - z[t]) * n[t] + z[t] * h[t-1]

    Used like `torch.nn.GRU`, and faster on CPUs; it also has the options of this package's layers.
    `forward` describes inputs and outputs.

    Example:
        >>> import torch
        >>> plain, layer = torch.nn.GRU(10, 20), GRU(10, 20)
        >>> _ = layer.load_state_dict(plain.state_dict())
        >>> x = torch.randn(5, 3, 10)
        >>> torch.allclose(layer(x)[0], plain(x)[0], atol=1e-6)
        True
    """

    _cell = CELLS["gru"]

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
        gate_activation: str = "sigmoid",
        recurrent_dropout: float = 0.0,
        zoneout: float = 0.0,
        proj_size: None = None,
    ) -> None:
        _refuse_projection(proj_size)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            0, device, dtype,
            gate_activation=gate_activation,
            recurrent_dropout=recurrent_dropout,
            zoneout=zoneout,
        )  # fmt: skip
