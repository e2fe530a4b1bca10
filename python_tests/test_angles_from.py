"""angles_from="input": the angles of RotLSTM and RotGRU come from x alone."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from helpers import (
    LSTM,
    ROTATING,
    Kind,
    assert_all_near,
    assert_near,
    check_derivatives,
    check_equations,
)
from torch import Tensor

import rotcell

TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 3e-5,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}

# Steps, batch, inputs, units: odd sizes too, and each way the CPU runtime has to run a call.
SHAPES = {
    "few_tokens": (2, 3, 4, 5),
    "one_row": (30, 1, 8, 33),
    "by_step": (12, 9, 5, 11),
    "many_rows": (20, 32, 10, 50),
    "one_unit": (9, 16, 3, 1),
    "shared_units": (20, 1, 256, 300),
}


def turned(d: Tensor, u: Tensor) -> Tensor:
    """Pairs of units as complex numbers, times e^iu."""
    pairs = torch.view_as_complex(d[..., : 2 * u.shape[-1]].unflatten(-1, (-1, 2)).contiguous())
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(u), u)).flatten(-2)
    return torch.cat([turned, d[..., 2 * u.shape[-1] :]], dim=-1)


def written_again(
    kind: Kind, x: Tensor, states: list[Tensor], weights: list[Tensor]
) -> list[Tensor]:
    """The equations of a timestep."""
    w_ih, w_hh, b_ih, b_hh = weights
    hidden = states[0].shape[-1]
    of_x = x @ w_ih.T + b_ih
    gates, u = of_x[:, : w_hh.shape[0]], 2 * math.pi * torch.sigmoid(of_x[:, w_hh.shape[0] :])
    if kind is LSTM:
        h, c = states
        i, f, g, o = (gates + h @ w_hh.T + b_hh).split(hidden, dim=1)
        c = turned(f.sigmoid() * c + i.sigmoid() * g.tanh(), u)
        return [o.sigmoid() * c.tanh(), c]
    (h,) = states
    w_r, w_z, w_n = w_hh.split(hidden)
    b_r, b_z, b_n = b_hh.split(hidden)
    x_r, x_z, x_n = gates.split(hidden, dim=1)
    r, z = torch.sigmoid(x_r + h @ w_r.T + b_r), torch.sigmoid(x_z + h @ w_z.T + b_z)
    n = torch.tanh(x_n + turned(h * r, u) @ w_n.T + b_n)
    return [(1 - z) * h + z * n]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", ROTATING, ids=str)
def test_it_follows_the_equations(
    kind: Kind, shape: tuple[int, int, int, int], dtype: torch.dtype, packed: bool
) -> None:
    steps, batch, inputs, hidden = shape
    layer = kind.layer(inputs, hidden, angles_from="input").to(dtype)
    step = partial(written_again, kind)
    check_equations(kind, layer, step, (steps, batch), packed, TOLERANCES[dtype])


@pytest.mark.parametrize("kind", ROTATING, ids=str)
def test_parameters_have_no_rows_of_h_for_the_angles(kind: Kind) -> None:
    layer, cell = kind.layer(3, 5, angles_from="input"), kind.cell(3, 5, angles_from="input")
    rows = kind.rows(5)
    assert layer.weight_ih_l0.shape == cell.weight_ih.shape == (rows, 3)
    assert layer.weight_hh_l0.shape == cell.weight_hh.shape == (rows - 2, 5)
    assert layer.bias_hh_l0.shape == (rows - 2,)
    assert (
        dict(layer.named_gates("weight_ih_l0")).keys() - {"rot"}
        == dict(layer.named_gates("weight_hh_l0")).keys()
    )
    with pytest.raises(ValueError, match="has rows in bias_hh_l0, got 'rot'"):
        layer.gate_rows("rot", "bias_hh_l0")
    with pytest.raises(ValueError, match="angles_from must be 'both' or 'input', got 'x'"):
        kind.layer(3, 5, angles_from="x")
    assert "angles_from=input" in repr(layer)


@pytest.mark.parametrize("kind", ROTATING, ids=str)
def test_a_checkpoint_of_the_other_choice_is_refused(kind: Kind) -> None:
    both, other = kind.layer(3, 5), kind.layer(3, 5, angles_from="input")
    other.load_state_dict(kind.layer(3, 5, angles_from="input").state_dict())
    with pytest.raises(RuntimeError, match=r"saved with angles_from='input' \(here 'both'\)"):
        both.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match=r"saved with angles_from='both' \(here 'input'\)"):
        other.load_state_dict(both.state_dict())


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "bias": False}])
@pytest.mark.parametrize("kind", ROTATING, ids=str)
def test_gradients_once_and_twice(kind: Kind, options: dict[str, Any]) -> None:
    layer = kind.layer(2, 5, angles_from="input", dtype=torch.float64, **options)
    check_derivatives(layer)


@pytest.mark.parametrize("kind", ROTATING, ids=str)
def test_every_option_goes_with_it(kind: Kind) -> None:
    options: dict[str, Any] = {"recurrent_dropout": 0.3, "zoneout": 0.2}
    layer = kind.layer(4, 6, num_layers=2, angles_from="input", dtype=torch.float64, **options)
    x, resets = torch.randn(7, 3, 4).double(), torch.rand(7, 3) < 0.3
    context = torch.randn(3, 1).double()
    results = []
    for reference in (False, True):
        torch.manual_seed(0)
        with rotcell.use_reference() if reference else warnings.catch_warnings():
            out, last = layer(x[..., :3], resets=resets, context=context)
        grads = torch.autograd.grad(out.sum(), list(layer.parameters()))
        results.append([out, *kind.as_states(last), *grads])
    assert_all_near(*results)


@pytest.mark.parametrize("kind", ROTATING, ids=str)
def test_context_single_step_compile_and_trace(kind: Kind) -> None:
    layer = kind.layer(4, 5, angles_from="input", dtype=torch.float64)
    x, context = torch.randn(6, 3, 3).double(), torch.randn(3, 1).double()
    joined = torch.cat([x, context.expand(6, 3, 1)], dim=-1)
    expected, last = layer(joined)
    assert_near(layer(x, context=context)[0], expected)
    cell = kind.cell(4, 5, angles_from="input", dtype=torch.float64)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
    state: Any = None
    for x_t in joined:
        state = cell(x_t, state)
    assert_all_near(kind.as_states(state), [s[0] for s in kind.as_states(last)])
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_near(compiled(joined)[0], expected)
    grads = torch.autograd.grad(compiled(joined)[0].sum(), list(layer.parameters()))
    assert_all_near(grads, torch.autograd.grad(expected.sum(), list(layer.parameters())))
    angles = rotcell.trace(layer, joined)[0].angles
    from_x = joined @ layer.gate_rows("rot", "weight_ih_l0").T + layer.gate_rows(
        "rot", "bias_ih_l0"
    )
    assert_near(angles, 2 * math.pi * torch.sigmoid(from_x))


def test_projections_go_with_it() -> None:
    layer = rotcell.RotLSTM(3, 6, proj_size=2, angles_from="input", dtype=torch.float64)
    x = torch.randn(5, 4, 3).double()
    with rotcell.use_reference():
        expected, _ = layer(x)
    assert_near(layer(x)[0], expected)
    assert layer.weight_hh_l0.shape == (24, 2)
