"""RotLSTMs whose angles follow another rule, for ablations.

A rule is applied to an existing layer, so a model trained without it can be tested with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from rotcell import RotLSTM
from rotcell.layers.layer import DirectionCall
from rotcell.reference import GATE_FUNCTIONS, NO_HOOKS, rotate

#: From what x and the biases give to the angles before activation [B, P], what h gives [B, P], and
#: the number of the step, to angles in radians.
AngleRule = Callable[[Tensor, Tensor, int], Tensor]


def paper_rule(from_x: Tensor, from_h: Tensor, step: int) -> Tensor:
    """u = 2 pi sigmoid(.): the paper's rule."""
    return 2 * math.pi * torch.sigmoid(from_x + from_h)


def half_turn_rule(from_x: Tensor, from_h: Tensor, step: int) -> Tensor:
    """u = pi sigmoid(.): no angle beyond half a turn."""
    return math.pi * torch.sigmoid(from_x + from_h)


def use_rule(layer: RotLSTM, rule: AngleRule) -> None:
    """Run a layer in plain PyTorch with this rule for its angles, on padded input."""
    sizes = layer._cell.gate_sizes(layer.hidden_size)
    activation = GATE_FUNCTIONS[layer.gate_activation]

    def run_direction(call: DirectionCall) -> tuple[Tensor, ...]:
        assert call.batch_sizes is None
        assert not call.reverse
        assert call.hooks is NO_HOOKS
        assert not call.return_cells
        w_ih, w_hh, b_ih, b_hh, _ = call.weights
        (h,), (c,) = call.states
        out = []
        for step, from_x in enumerate(F.linear(call.x, w_ih, b_ih + b_hh)):
            from_h = F.linear(h, w_hh)
            parts = [p.split(sizes, dim=-1) for p in (from_x, from_h)]
            i, f, g, o = (a + b for a, b in zip(parts[0][:4], parts[1][:4], strict=True))
            d = activation(f) * c + activation(i) * torch.tanh(g)
            c = rotate(d, rule(parts[0][4], parts[1][4], step))
            h = activation(o) * torch.tanh(c)
            out.append(h)
        return torch.stack(out, dim=1 if call.batch_first else 0), h.unsqueeze(0), c.unsqueeze(0)

    layer.direction_runner = run_direction


def use_masked_angles(layer: RotLSTM, without: Sequence[str]) -> None:
    """Exclude some of the weights from the angles; the layer still runs its kernels."""
    first = 4 * layer.hidden_size

    def without_angles(weight: Tensor) -> Tensor:
        keep = torch.ones(len(weight), device=weight.device, dtype=weight.dtype)
        keep[first:] = 0
        return weight * (keep if weight.dim() == 1 else keep[:, None])

    def run_direction(call: DirectionCall) -> tuple[Tensor, ...]:
        masked = {n: without_angles(getattr(call.weights, n)) for n in without}
        return replace(call, weights=call.weights._replace(**masked)).run()

    layer.direction_runner = run_direction


@torch.no_grad()
def start_near_zero(layer: RotLSTM) -> None:
    """Start the angles around 0.3 rad, 2 pi sigmoid(-3), instead of around pi."""
    layer.bias_ih_l0[4 * layer.hidden_size :] = -3


def undo(layer: RotLSTM) -> None:
    """Restore a layer's own equations."""
    layer.direction_runner = None


#: What a model can be trained with instead of the paper's angles.
TRAINING_VARIANTS: dict[str, Callable[[RotLSTM], None]] = {
    "x-only": lambda layer: use_masked_angles(layer, ["w_hh"]),
    "fixed": lambda layer: use_masked_angles(layer, ["w_hh", "w_ih"]),
    "sign-flip": lambda layer: use_masked_angles(layer, ["w_hh", "w_ih", "b_ih", "b_hh"]),
    "half-turn": lambda layer: use_rule(layer, half_turn_rule),
    "small-start": start_near_zero,
}
