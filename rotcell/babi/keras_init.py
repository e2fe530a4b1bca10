"""Starting weights as Keras draws them, which is how the paper's models began.

Keras keeps the gates of a layer in one matrix and draws that matrix as a whole; so the angles of a
rotating cell, which are further rows of it, share in the same draw.
"""

from __future__ import annotations

import torch
from torch import nn

from rotcell.reference import CELLS

EMBEDDING_BOUND = 0.05


def init_embedding(layer: nn.Embedding) -> None:
    """Uniform in ±0.05, the row of the padding included."""
    nn.init.uniform_(layer.weight, -EMBEDDING_BOUND, EMBEDDING_BOUND)


def init_dense(layer: nn.Linear) -> None:
    """Glorot-uniform weights, no bias."""
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


def init_recurrent(layer: nn.Module, *, forget_bias: bool) -> None:
    """Glorot-uniform input weights, orthogonal recurrent ones, zero bias, 1 for the forget gate.

    Keras has one bias where torch has two. Adam moves both by the same step, so together they
    would learn at twice the rate: `bias_hh` is held at 0 and `bias_ih` is the one bias.
    """
    weights = dict(layer.named_parameters())
    nn.init.xavier_uniform_(weights["weight_ih_l0"])
    nn.init.orthogonal_(weights["weight_hh_l0"])
    nn.init.zeros_(weights["bias_ih_l0"])
    nn.init.zeros_(weights["bias_hh_l0"])
    weights["bias_hh_l0"].requires_grad_(False)
    if forget_bias:
        size = weights["weight_hh_l0"].shape[1]
        with torch.no_grad():
            # Those of a rotating layer are the same: its angles come after them.
            weights["bias_ih_l0"][CELLS["lstm"].rows_of("forget", size)] = 1.0
