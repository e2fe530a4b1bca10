"""Where the angles start: `rotation_bias` as a number, and "spread"."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rotcell import LinearRotLSTMCell, RotGRU, RotGRUCell, RotLSTM, RotLSTMCell

MODULES = [RotLSTM, RotGRU, RotLSTMCell, RotGRUCell, LinearRotLSTMCell]


def started_angles(module: nn.Module, rows: int, shift: Any) -> list[Tensor]:
    """The angles that the input biases of each layer and direction give, without what is drawn."""
    found = []
    for name, bias in module.named_parameters():
        if name.startswith("bias_ih"):
            found.append(bias.detach()[-rows:] - shift[name].detach()[-rows:])
    return [2 * math.pi * torch.sigmoid(each.double()) for each in found]


def made(module: type[nn.Module], rotation_bias: float | str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return module(3, 11, rotation_bias=rotation_bias, **options)


@pytest.mark.parametrize("module", MODULES)
def test_spread_goes_from_a_64th_of_a_turn_to_half_a_turn_by_equal_factors(
    module: type[nn.Module],
) -> None:
    drawn = dict(made(module, 0.0).named_parameters())
    (angles,) = started_angles(made(module, "spread"), 5, drawn)
    assert float(angles[0]) == pytest.approx(2 * math.pi / 64, rel=1e-5)
    assert float(angles[-1]) == pytest.approx(math.pi, rel=1e-5)
    factors = angles[1:] / angles[:-1]
    torch.testing.assert_close(factors, factors[:1].expand(4), rtol=1e-4, atol=0)


def test_spread_starts_every_layer_and_direction_alike() -> None:
    options = {"num_layers": 2, "bidirectional": True, "proj_size": 4, "dtype": torch.float64}
    drawn = dict(made(RotLSTM, 0.0, **options).named_parameters())
    angles = started_angles(made(RotLSTM, "spread", **options), 5, drawn)
    assert len(angles) == 4
    for each in angles[1:]:
        torch.testing.assert_close(each, angles[0], rtol=1e-12, atol=0)


def test_spread_changes_nothing_but_the_angles_biases() -> None:
    plain, spread = (dict(made(RotLSTM, b).named_parameters()) for b in (0.0, "spread"))
    for name, weight in plain.items():
        rows = slice(None, -5) if name.startswith("bias_ih") else slice(None)
        torch.testing.assert_close(spread[name][rows], weight[rows], rtol=0, atol=0)


def test_a_converted_lstm_may_start_with_spread_angles() -> None:
    layer = RotLSTM.from_lstm(nn.LSTM(3, 11), rotation_bias="spread")
    angles = 2 * math.pi * torch.sigmoid(layer.bias_ih_l0.detach()[-5:])
    assert float(angles[0]) == pytest.approx(2 * math.pi / 64, rel=1e-5)
    assert float(layer.bias_hh_l0.detach()[-5:].abs().max()) == 0
    assert "rotation_bias=spread" in repr(layer)


@pytest.mark.parametrize("module", MODULES)
def test_other_words_and_layers_without_bias_are_refused(module: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match="rotation_bias must be a real number or 'spread', got "):
        module(3, 4, rotation_bias="wide")
    with pytest.raises(ValueError, match="rotation_bias='spread' needs bias=True"):
        module(3, 4, rotation_bias="spread", bias=False)


def test_a_single_unit_has_no_angle_to_spread() -> None:
    assert RotLSTM(3, 1, rotation_bias="spread").bias_ih_l0.shape == (4,)
