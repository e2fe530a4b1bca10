"""PyTorch's own samples of right and wrong input for nn.LSTM, nn.GRU and the cells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import KINDS, LINEAR, Kind
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

CASES = [
    pytest.param(ours, theirs, id=f"{ours.__name__}-{theirs.__name__}")
    for kind in (*KINDS, LINEAR)
    for ours, theirs in ((kind.layer, kind.plain_layer), (kind.cell, kind.plain_cell))
]
INFOS = {info.module_cls: info for info in module_db}


def flat_shapes(result: Any) -> list[torch.Size]:
    if isinstance(result, torch.Tensor):
        return [result.shape]
    return [shape for part in result if part is not None for shape in flat_shapes(part)]


def assert_same_values(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("ours", "theirs"), CASES)
def test_right_input_is_accepted(
    ours: type, theirs: type, dtype: torch.dtype, training: bool
) -> None:
    options: dict[str, Any] = {"with_packed_sequence": True} if theirs is torch.nn.GRU else {}
    info = INFOS[theirs]
    samples = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training, **options
    )
    assert len(samples) > 0
    for sample in samples:
        made, given = sample.constructor_input, sample.forward_input
        module = ours(*made.args, **made.kwargs).to(dtype).train(training)
        plain = theirs(*made.args, **made.kwargs).to(dtype).train(training)
        result = module(*given.args, **given.kwargs)
        assert flat_shapes(result) == flat_shapes(plain(*given.args, **given.kwargs))
        packed = isinstance(given.args[0], torch.nn.utils.rnn.PackedSequence)
        if sample.reference_fn is not None and not packed:
            # What the sample says unbatched input must give; it knows no packed input.
            assert_same_values(result, sample.reference_fn(module, *given.args, **given.kwargs))
        flat = result[0].data if packed else result[0]
        flat.sum().backward()
        assert all(p.grad is not None for p in module.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("ours", "theirs"), CASES)
def test_wrong_input_is_refused_with_the_same_type(
    ours: type, theirs: type, dtype: torch.dtype
) -> None:
    info = INFOS[theirs]
    samples = info.module_error_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=False, training=False
    )
    assert len(samples) > 0
    for sample in samples:
        made = sample.module_error_input.constructor_input
        given = sample.module_error_input.forward_input
        if sample.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
            with pytest.raises(sample.error_type) as caught:
                ours(*made.args, **made.kwargs)
        else:
            module = ours(*made.args, **made.kwargs).to(dtype)
            with pytest.raises(sample.error_type) as caught:
                module(*given.args, **given.kwargs)
        assert caught.type is sample.error_type


def test_samples_exist_for_all(kind: Kind) -> None:
    assert kind.plain_layer in INFOS
    assert kind.plain_cell in INFOS
