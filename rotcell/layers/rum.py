"""RUM: the rotational unit of memory, used like nn.GRU."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from rotcell import reference_rows
from rotcell.reference import Cell

from .base import CellModule, weights_are_drawn
from .documentation import documented
from .gru import _GRULayer, _refuse_projection
from .parameters import Parameter, direction_suffixes

__all__ = ["RUM", "RUMModule"]


_PARAMETERS = (
    Parameter("weight_ih", "w_ih", ("R", "I")),
    Parameter("weight_hh", "w_hh", ("S", "H")),
    Parameter("bias_ih", "b_ih", ("R",), option="bias"),
    Parameter("bias_hh", "b_hh", ("S",), option="bias", start=0.0),
)


class RUMModule(CellModule):
    """What `RUM` and `RUMCell` share: the cell, and how its parameters start."""

    _cell = reference_rows.rum()
    _parameter_table = _PARAMETERS
    _argument_texts: ClassVar[dict[str, str]] = {
        "recurrent_dropout": "probability of dropping elements of h where it enters the matmuls of "
        "the next step, in training: one mask per sequence, layer and direction. The h that is "
        "rotated, and the part that u carries over, are not dropped."
    }

    eta: float | None

    def _chosen_cell(self) -> Cell:
        return type(self)._cell if self.eta is None else reference_rows.rum(self.eta)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the weights as the authors do.

        ``W_r`` and ``W_u``, which multiply ``[x, h]``, and ``W_e`` are orthogonal. `bias_ih` is 1
        for r and u, and all other biases are 0.
        """
        if not weights_are_drawn():
            return
        for suffix in direction_suffixes(self):
            w_ih, w_hh = getattr(self, f"weight_ih{suffix}"), getattr(self, f"weight_hh{suffix}")
            r_x, u_x, e_x = w_ih.chunk(3)
            for of_x, of_h in zip((r_x, u_x), w_hh.chunk(2), strict=True):
                both = _orthogonal_like(torch.cat([of_x, of_h], dim=1))
                of_x.copy_(both[:, : of_x.shape[1]])
                of_h.copy_(both[:, of_x.shape[1] :])
            e_x.copy_(_orthogonal_like(e_x))
            if self.bias:
                bias_ih = getattr(self, f"bias_ih{suffix}")
                bias_ih[: 2 * self.hidden_size].fill_(1)
                bias_ih[2 * self.hidden_size :].fill_(0)
                getattr(self, f"bias_hh{suffix}").fill_(0)


@documented(per_layer=True)
class RUM(RUMModule, _GRULayer):
    """The rotational unit of memory of Dangovski et al. (2019), with lambda = 0.

    The state is rotated in the plane of e and r by the angle from e to r:

        r[t] = W_r [x[t], h[t-1]] + b_r
        u[t] = sigmoid(W_u [x[t], h[t-1]] + b_u)
        e[t] = W_e x[t] + b_e
        n[t] = relu(e[t] + Rotation(e[t], r[t]) h[t-1])
        h[t] = u[t] * h[t-1] + (1 - u[t]) * n[t]

    With `eta` every h[t] is then scaled to that norm. A zero e or r does not rotate. Inputs,
    outputs and options are those of `torch.nn.GRU`; `forward` describes them. There are kernels for
    CPUs; on a GPU the reference code runs, with a warning.

    Example:
        >>> import torch
        >>> layer = RUM(10, 20, bidirectional=True)
        >>> output, h_n = layer(torch.randn(5, 3, 10))
        >>> output.shape, h_n.shape
        (torch.Size([5, 3, 40]), torch.Size([2, 3, 20]))
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
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        eta: float | None = None,
        recurrent_dropout: float = 0.0,
        zoneout: float = 0.0,
        proj_size: None = None,
    ) -> None:
        _refuse_projection(proj_size)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            0, device, dtype,
            eta=eta,
            recurrent_dropout=recurrent_dropout,
            zoneout=zoneout,
        )  # fmt: skip


def _orthogonal_like(weight: Tensor) -> Tensor:
    """Draw an orthogonal matrix; torch has no QR decomposition of fp16 and bf16."""
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    return nn.init.orthogonal_(torch.empty_like(weight, dtype=dtype))
