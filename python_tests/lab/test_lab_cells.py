"""The lab's layers: biases at the start, equal numbers of weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rotcell import RotGRU, RotLSTM
from rotcell.lab.cells import (
    CELLS,
    STARTS,
    make_layer,
    matched_size,
    parameters,
)
from rotcell.lab.errors import SettingsError


@pytest.mark.parametrize(("cell", "layer"), [("rotlstm", RotLSTM), ("rotgru", RotGRU)])
@pytest.mark.parametrize(("start", "bias"), [("pi", 0.0), ("zero", -3.0), ("spread", "spread")])
def test_a_start_is_a_rotation_bias(
    cell: str, layer: type[nn.Module], start: str, bias: float | str
) -> None:
    torch.manual_seed(0)
    expected = layer(3, 7, rotation_bias=bias, **CELLS[cell].options)
    torch.manual_seed(0)
    found = make_layer(cell, start, 3, 7)
    for name, weight in expected.named_parameters():
        torch.testing.assert_close(found.get_parameter(name), weight, rtol=0, atol=0)


@pytest.mark.parametrize("cell", ["lstm", "rotlstm"])
def test_the_forget_gate_starts_at_one(cell: str) -> None:
    start = "spread" if CELLS[cell].rotating else ""
    layers = [make_layer(cell, start, 3, 50) for _ in range(20)]
    forget = torch.stack([layer.bias_ih_l0[50:100] for layer in layers])  # i, f, g, o
    assert float(forget.detach().mean()) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(("cell", "twin"), [("lstm", "rotlstm"), ("classicgru", "rotgru")])
@pytest.mark.parametrize("size", [4, 8, 200])
def test_the_matched_size_is_the_smallest_with_as_many_weights(
    cell: str, twin: str, size: int
) -> None:
    def weights(each: str, units: int) -> int:
        start = "pi" if CELLS[each].rotating else ""
        return parameters(make_layer(each, start, 5, units)) + parameters(nn.Linear(units, 6))

    found = matched_size(cell, 5, 6, size)
    assert weights(cell, found) >= weights(twin, size) > weights(cell, found - 1)


def test_bad_names_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"cell must be one of lstm, .*, got 'lstn'"):
        make_layer("lstn", "", 3, 4)
    with pytest.raises(SettingsError, match=f"start must be one of {', '.join(STARTS)}, got ''"):
        make_layer("rotlstm", "", 3, 4)
    with pytest.raises(SettingsError, match="start must be empty for lstm"):
        make_layer("lstm", "pi", 3, 4)
