"""bfloat16 and float16: stored as such, computed in float32; and autocast."""

import pytest
import torch
from helpers import KINDS, assert_all_near
from kernel_cases import Case, run

HALF_TYPES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_half_precision_errors_are_within_rounding(kind, packed, dtype):
    case = Case(kind, 5, 20, 7, 19, packed=packed)
    tensors, batch_sizes = case.arguments(dtype)
    results, grads = run(kind.kernel, tensors, batch_sizes, False)
    in_double = [None if t is None else t.double() for t in tensors]
    true_results, true_grads = run(kind.reference, in_double, batch_sizes, False)
    assert {t.dtype for t in results + grads} == {dtype}
    # Results are float32 values rounded once. Gradients also see the rounded outputs, and the
    # gradient that comes in is rounded here.
    rounding = torch.finfo(dtype).eps
    assert_all_near(results, true_results, tolerance=rounding)
    assert_all_near(grads, true_grads, tolerance=2 * rounding)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_layers_train_in_half_precision(kind, dtype):
    layer = kind.layer(4, 6, num_layers=2, bidirectional=True, dtype=dtype)
    out, _ = layer(torch.randn(5, 3, 4, dtype=dtype))
    out.sum().backward()
    assert out.dtype == dtype
    assert all(p.grad.dtype == dtype and torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize("input_dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_autocast_behaves_as_for_lstm(kind, weight_dtype, input_dtype):
    # nn.LSTM itself is not run: its bfloat16 code dies of an illegal instruction on some
    # virtual machines. These are the types it gives where it runs.
    layer = kind.layer(4, 6, dtype=weight_dtype)
    x = torch.randn(5, 3, 4, dtype=input_dtype, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, state = layer(x)
    out.float().sum().backward()
    states = state if isinstance(state, tuple) else (state,)
    assert {t.dtype for t in (out, *states)} == {torch.bfloat16}
    assert x.grad.dtype == input_dtype
    assert {p.grad.dtype for p in layer.parameters()} == {weight_dtype}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_autocast_leaves_float64_alone(kind):
    layer = kind.layer(4, 6, dtype=torch.float64)
    x = torch.randn(5, 3, 4, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = layer(x)
    assert torch.equal(out, layer(x)[0])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_autocast_matches_bfloat16(kind):
    layer = kind.layer(4, 6)
    x = torch.randn(5, 3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = layer(x)
    assert torch.equal(out, layer.bfloat16()(x.bfloat16())[0])


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_autocast_takes_floats_only(kind, dtype):
    layer, cell = kind.layer(4, 6), kind.cell(4, 6)
    x = torch.ones(5, 3, 4, dtype=dtype)
    states = [torch.zeros(1, 3, 6, dtype=dtype) for _ in range(kind.num_states)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(ValueError, match=f"input is {dtype}"):
            layer(x)
        with pytest.raises(RuntimeError, match=f"hx.* is {dtype}"):
            layer(x.to(torch.float32), kind.as_hx(states))
        with pytest.raises(RuntimeError, match=f"input is {dtype}"):
            cell(x[0])
