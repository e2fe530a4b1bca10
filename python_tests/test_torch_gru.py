"""rotcell.GRU and GRUCell against nn.GRU and nn.GRUCell, which have the same equations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import assert_all_near, assert_near, gradients, leaves
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import rotcell

#: Error allowed, relative to the largest value: of the format, times the sums of a sequence.
TOLERANCES = {
    torch.float64: 1e-13,
    torch.float32: 1e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}

# Steps, batch, inputs, units: each way the CPU runtime has to run a call.
SHAPES = {
    "few_tokens": (2, 3, 4, 5),
    "one_row": (30, 1, 8, 33),
    "by_step": (12, 9, 5, 11),
    "batch_vectorized": (20, 32, 10, 50),
    "batch_vectorized_one_unit": (9, 16, 3, 1),
    "shared_units": (40, 1, 256, 300),
    "chunks": (600, 3, 5, 16),
}


def as_data(y: Tensor | PackedSequence) -> Tensor:
    return y.data if isinstance(y, PackedSequence) else y


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"num_layers": 2, "bidirectional": True}])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_it_matches_nn_gru(
    shape: tuple[int, int, int, int], dtype: torch.dtype, packed: bool, options: dict[str, Any]
) -> None:
    steps, batch, inputs, hidden = shape
    layer = rotcell.GRU(inputs, hidden, **options).to(dtype)
    twin = nn.GRU(inputs, hidden, **options).double()
    twin.load_state_dict(layer.state_dict())
    directions = layer.num_layers * (2 if layer.bidirectional else 1)
    given = [torch.randn(steps, batch, inputs), torch.randn(directions, batch, hidden)]
    given = [t.to(dtype) for t in given]
    lengths = torch.linspace(steps, 1, batch).long()
    results, weights = [], None
    for module, of_type in ((layer, dtype), (twin, torch.float64)):
        x, h_0 = leaves(given, of_type)
        taken = pack_padded_sequence(x, lengths, enforce_sorted=False) if packed else x
        found = [*module(taken, h_0)]
        found[0] = as_data(found[0])
        weights = weights or [torch.randn_like(t) for t in found]
        results.append((*found, *gradients(found, [x, h_0, *module.parameters()], weights)))
    # Layers of fp16 and bf16 round their output for the next one.
    tolerance = TOLERANCES[dtype] * (4 if layer.num_layers > 1 and dtype.itemsize == 2 else 1)
    assert_all_near(*results, tolerance=tolerance)


@pytest.mark.parametrize("bias", [True, False])
def test_the_cell_matches_nn_gru_cell(bias: bool) -> None:
    cell, twin = rotcell.GRUCell(3, 5, bias=bias), nn.GRUCell(3, 5, bias=bias)
    cell.load_state_dict(twin.state_dict())
    x, h = torch.randn(4, 3), torch.randn(4, 5)
    assert_near(cell(x, h), twin(x, h))
    assert_near(cell(x), twin(x))


def test_state_dicts_convert_in_both_directions_and_name_their_cell() -> None:
    layer, twin = rotcell.GRU(3, 4, num_layers=2), nn.GRU(3, 4, num_layers=2)
    layer.load_state_dict(twin.state_dict())
    twin.load_state_dict(layer.state_dict())
    assert all(map(torch.equal, layer.state_dict().values(), twin.state_dict().values()))
    with pytest.raises(RuntimeError, match="is that of a 'gru', expected 'classic_gru'"):
        rotcell.ClassicGRU(3, 4, num_layers=2).load_state_dict(layer.state_dict())


def test_there_is_no_path_for_it_on_gpus() -> None:
    assert not rotcell.cuda.paths.has_cell("gru")
    assert rotcell.cuda.paths.has_cell("classic_gru")
