"""GORU and EURNN: layers that rotate their whole state by learned constant angles."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import nn

from rotcell import reference_rows
from rotcell.reference import Cell

from .base import CellModule, weights_are_drawn
from .documentation import documented
from .gru import _GRULayer, _refuse_projection
from .parameters import Parameter, direction_suffixes

__all__ = ["EURNN", "GORU", "EURNNModule", "GORUModule"]

#: The bound of the uniform distribution that the authors draw the weights from.
_WEIGHT_BOUND = 0.01


#: Constant rotations, and the threshold of modReLU.
_ROTATIONS = (
    Parameter("threshold", "threshold", ("H",)),
    Parameter("angles", "angles", ("L", "A")),
)

_GORU = (
    Parameter("weight_ih", "w_ih", ("R", "I")),
    Parameter("weight_hh", "w_hh", ("S", "H")),
    Parameter("bias_ih", "b_ih", ("S",), option="bias"),
    Parameter("bias_hh", "b_hh", ("S",), option="bias", start=0.0),
    *_ROTATIONS,
)

_EURNN = (Parameter("weight_ih", "w_ih", ("R", "I")), *_ROTATIONS)


class GORUModule(CellModule):
    """What `GORU` and `GORUCell` share: the cell, and how its parameters start."""

    _cell = reference_rows.goru()
    _parameter_table = _GORU
    _argument_texts: ClassVar[dict[str, str]] = {
        "recurrent_dropout": "probability of dropping elements of h where it enters the matmuls of "
        "the next step, in training: one mask per sequence, layer and direction. The h that is "
        "rotated, and the part that g carries over, are not dropped.",
        "bias": "whether there are `bias_ih` and `bias_hh`, of r and g. `threshold` stays.",
    }

    capacity: int

    def _chosen_cell(self) -> Cell:
        return reference_rows.goru(self.capacity)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the parameters as the authors do.

        Weights are uniform in ±0.01 and angles in ±pi. `bias_ih` is 2 for r and uniform in
        ±sqrt(3 / H) for g, `bias_hh` is 0, and the thresholds are 0.01.
        """
        if not weights_are_drawn():
            return
        for suffix in direction_suffixes(self):
            nn.init.uniform_(getattr(self, f"weight_ih{suffix}"), -_WEIGHT_BOUND, _WEIGHT_BOUND)
            nn.init.uniform_(getattr(self, f"weight_hh{suffix}"), -_WEIGHT_BOUND, _WEIGHT_BOUND)
            nn.init.uniform_(getattr(self, f"angles{suffix}"), -math.pi, math.pi)
            nn.init.constant_(getattr(self, f"threshold{suffix}"), 0.01)
            if self.bias:
                of_r, of_g = getattr(self, f"bias_ih{suffix}").chunk(2)
                bound = math.sqrt(3 / max(1, self.hidden_size))
                nn.init.constant_(of_r, 2.0)
                nn.init.uniform_(of_g, -bound, bound)
                nn.init.constant_(getattr(self, f"bias_hh{suffix}"), 0.0)


@documented(per_layer=True)
class GORU(GORUModule, _GRULayer):
    """The gated orthogonal recurrent unit of Jing et al. (2017).

    Theta is a constant rotation of the whole state:

        r[t] = sigmoid(U_r x[t] + W_r h[t-1] + b_r)
        g[t] = sigmoid(U_g x[t] + W_g h[t-1] + b_g)
        c[t] = modReLU(U_c x[t] + r[t] * (Theta h[t-1]))
        h[t] = g[t] * h[t-1] + (1 - g[t]) * c[t]
        modReLU(a) = sign(a) relu(|a| + 0.001 + threshold)

    Theta consists of `capacity` layers of plane rotations, one after the other. Even layers turn
    units (0, 1), (2, 3) and so on; odd layers turn (1, 2), (3, 4) and so on, by the first
    (H - 1) // 2 of their angles. Inputs, outputs and options are those of `torch.nn.GRU`; `forward`
    describes them. There are kernels for CPUs; on a GPU the reference code runs, with a warning.

    Example:
        >>> import torch
        >>> layer = GORU(10, 20, capacity=4)
        >>> output, h_n = layer(torch.randn(5, 3, 10))
        >>> output.shape, layer.angles_l0.shape
        (torch.Size([5, 3, 20]), torch.Size([4, 10]))
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
        capacity: int = 2,
        recurrent_dropout: float = 0.0,
        zoneout: float = 0.0,
        proj_size: None = None,
    ) -> None:
        _refuse_projection(proj_size)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            0, device, dtype,
            capacity=capacity,
            recurrent_dropout=recurrent_dropout,
            zoneout=zoneout,
        )  # fmt: skip


class EURNNModule(CellModule):
    """What `EURNN` and `EURNNCell` share: the cell, and how its parameters start."""

    _cell = reference_rows.eurnn()
    _parameter_table = _EURNN
    _argument_texts: ClassVar[dict[str, str]] = {
        "bias": "must be True: the thresholds take the place of biases."
    }

    def _set_options(self, options: dict[str, Any]) -> None:
        if not self.bias:
            raise ValueError("bias must be True: EURNN has thresholds instead of biases, got False")
        super()._set_options(options)

    capacity: int

    def _chosen_cell(self) -> Cell:
        return reference_rows.eurnn(self.capacity)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the parameters as the authors do.

        Weights are uniform in ±0.01 and angles in ±pi, and the thresholds are 0.
        """
        if not weights_are_drawn():
            return
        for suffix in direction_suffixes(self):
            nn.init.uniform_(getattr(self, f"weight_ih{suffix}"), -_WEIGHT_BOUND, _WEIGHT_BOUND)
            nn.init.uniform_(getattr(self, f"angles{suffix}"), -math.pi, math.pi)
            nn.init.constant_(getattr(self, f"threshold{suffix}"), 0.0)


@documented(per_layer=True)
class EURNN(EURNNModule, _GRULayer):
    """The efficient unitary RNN of Jing et al. (2017), real-valued.

    Theta is a constant rotation of the whole state, and the only recurrent weight:

        h[t] = modReLU(U x[t] + Theta h[t-1])
        modReLU(a) = sign(a) relu(|a| + 0.01 + threshold)

    `GORU` describes Theta. Inputs, outputs and options are those of `torch.nn.RNN`; `forward`
    describes them. Without a recurrent matmul there is no recurrent dropout. There are
    kernels for CPUs; on a GPU the reference code runs, with a warning.

    Example:
        >>> import torch
        >>> layer = EURNN(10, 20)
        >>> output, h_n = layer(torch.randn(5, 3, 10))
        >>> output.shape, sum(p.numel() for p in layer.parameters())
        (torch.Size([5, 3, 20]), 240)
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
        capacity: int = 2,
        zoneout: float = 0.0,
        proj_size: None = None,
    ) -> None:
        _refuse_projection(proj_size)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            0, device, dtype,
            capacity=capacity,
            zoneout=zoneout,
        )  # fmt: skip
