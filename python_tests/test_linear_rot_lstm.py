"""LinearRotLSTM: an LSTM with a rotated cell state whose gates come from the input alone."""

from __future__ import annotations

import copy
import math
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from helpers import (
    LINEAR,
    assert_all_near,
    assert_near,
    check_derivatives,
    check_equations,
    leaves,
)
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import rotcell
from rotcell import LinearRotLSTM, LinearRotLSTMCell
from rotcell.reference import rotate_groups

TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 3e-5,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}

# Steps, batch, inputs, units: few tokens, one row, many rows, several chunks.
SHAPES = {
    "few_tokens": (2, 3, 4, 5),
    "one_row": (30, 1, 8, 33),
    "rows": (12, 9, 5, 11),
    "many_rows": (20, 32, 10, 50),
    "chunks": (70, 16, 6, 67),
}


def written_again(k: int, x: Tensor, states: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """The equations of a timestep, which do not read h."""
    (_, c), (w, b) = states, weights
    hidden = c.shape[-1]
    i, f, g, o, u = (x @ w.T + b).split([*[hidden] * 4, len(w) - 4 * hidden], dim=1)
    d = f.sigmoid() * c + i.sigmoid() * g.tanh()
    c = rotate_groups(d, 2 * math.pi * u.sigmoid(), k)
    return [o.sigmoid() * c.tanh(), c]


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("k", [2, 4])
def test_it_follows_the_equations(
    k: int, shape: tuple[int, int, int, int], dtype: torch.dtype, packed: bool
) -> None:
    steps, batch, inputs, hidden = shape
    layer = LinearRotLSTM(inputs, hidden, rotation_size=k).to(dtype)
    step = partial(written_again, k)
    check_equations(LINEAR, layer, step, (steps, batch), packed, TOLERANCES[dtype])


def test_parameters_names_and_repr() -> None:
    layer = LinearRotLSTM(3, 5, num_layers=2, rotation_size=4)
    assert [name for name, _ in layer.named_parameters()] == [
        "weight_ih_l0", "bias_ih_l0", "weight_ih_l1", "bias_ih_l1",
    ]  # fmt: skip
    assert layer.weight_ih_l0.shape == (26, 3)
    assert layer.gate_rows("rot", "bias_ih_l0").shape == (6,)
    assert repr(layer) == "LinearRotLSTM(3, 5, num_layers=2, rotation_size=4)"
    assert (LinearRotLSTM(3, 5, forget_bias=50.0).gate_rows("f", "bias_ih_l0") > 40).all()
    with pytest.raises(TypeError, match="recurrent_dropout"):
        LinearRotLSTM(3, 5, recurrent_dropout=0.1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="must be the name of a weight_ih or bias_ih"):
        layer.gate_rows("f", "weight_hh_l0")


def test_without_recurrent_weights_a_rot_lstm_is_one() -> None:
    layer, recurrent = LinearRotLSTM(3, 9), rotcell.RotLSTM(3, 9)
    with torch.no_grad():
        recurrent.weight_hh_l0.zero_()
        recurrent.bias_hh_l0.zero_()
        recurrent.weight_ih_l0.copy_(layer.weight_ih_l0)
        recurrent.bias_ih_l0.copy_(layer.bias_ih_l0)
    x = torch.randn(6, 4, 3)
    assert_near(layer(x)[0], recurrent(x)[0])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2, "bidirectional": True, "bias": False},
        {"proj_size": 2},
        {"gate_activation": "hard_sigmoid", "batch_first": True},
    ],
    ids=str,
)
def test_gradients_once_and_twice(options: dict[str, Any]) -> None:
    layer = LinearRotLSTM(2, 5, dtype=torch.float64, **options)
    check_derivatives(layer)


@pytest.mark.parametrize("options", [{}, {"proj_size": 3}, {"zoneout": (0.2, 0.3)}], ids=str)
def test_every_option_goes_with_it(options: dict[str, Any]) -> None:
    layer = LinearRotLSTM(4, 7, num_layers=2, bidirectional=True, dtype=torch.float64, **options)
    x, resets = torch.randn(7, 3, 3).double(), torch.rand(7, 3) < 0.3
    context = torch.randn(3, 1).double()
    states = [torch.randn(4, 3, n).double() for n in (options.get("proj_size", 7), 7)]
    results = []
    for reference in (False, True):
        torch.manual_seed(0)
        h_0, c_0 = leaves(states)
        with rotcell.use_reference() if reference else warnings.catch_warnings():
            out, last, cells = layer(
                x, (h_0, c_0), resets=resets, context=context, return_cells=True
            )
        wanted = [h_0, c_0, *layer.parameters()]
        loss = out.sum() + cells.square().sum()
        grads = torch.autograd.grad(loss, wanted, materialize_grads=True)
        results.append([out, *last, cells, *grads])
    assert_all_near(*results)


def test_compile_export_vmap_trace_and_copies() -> None:
    layer = LinearRotLSTM(4, 6, dtype=torch.float64)
    x, context = torch.randn(6, 3, 3).double(), torch.randn(3, 1).double()
    beside = torch.cat([x, context.expand(6, 3, 1)], dim=-1)
    expected, _ = layer(beside)
    assert_near(layer(x, context=context)[0], expected)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_near(compiled(beside)[0], expected)
    grads = torch.autograd.grad(compiled(beside)[0].sum(), list(layer.parameters()))
    assert_all_near(grads, torch.autograd.grad(expected.sum(), list(layer.parameters())))
    exported = torch.export.export(layer, (beside,)).module()
    assert_near(exported(beside)[0], expected)
    each = torch.func.vmap(lambda one: layer(one)[0], in_dims=1, out_dims=1)(beside)
    assert_near(each, expected)
    found = rotcell.trace(layer, beside)[0]
    assert_near(found.output, expected)
    assert found.angles.shape == (6, 3, 3)
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(beside)[0], expected)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(beside)
    assert counter.get_total_flops() == 2 * 18 * 4 * 27


def test_single_steps_in_a_loop_are_the_layer() -> None:
    layer, cell = (make(3, 9, rotation_size=4) for make in (LinearRotLSTM, LinearRotLSTMCell))
    cell.load_state_dict({n.removesuffix("_l0"): w for n, w in layer.state_dict().items()})
    assert repr(cell) == "LinearRotLSTMCell(3, 9, rotation_size=4)"
    x, state = torch.randn(5, 2, 3), None
    for x_t in x:
        state = cell(x_t, state)
    assert_all_near(state, [s[0] for s in layer(x)[1]])
    recurrent = rotcell.LSTMCell(3, 9)
    with pytest.raises(RuntimeError, match="have no rows for its angles: they are those of"):
        cell.load_state_dict(recurrent.state_dict())
    with pytest.raises(TypeError, match="angles_from"):
        LinearRotLSTMCell(3, 9, angles_from="input")  # type: ignore[call-arg]


def test_checkpoints_name_it() -> None:
    layer = LinearRotLSTM(3, 6)
    LinearRotLSTM(3, 6).load_state_dict(layer.state_dict())
    with pytest.raises(RuntimeError, match="'linear_rot_lstm', expected 'rot_lstm'"):
        rotcell.RotLSTM(3, 6).load_state_dict(layer.state_dict())
    with pytest.raises(RuntimeError, match=r"saved with rotation_size=2 \(here 4\)"):
        LinearRotLSTM(3, 6, rotation_size=4).load_state_dict(layer.state_dict())
    with pytest.raises(RuntimeError, match="have no rows for its angles: they are those of"):
        layer.load_state_dict(rotcell.LSTM(3, 6).state_dict())


def test_docstrings_give_the_cost_of_its_rotation() -> None:
    linear, rot_lstm = (" ".join(str(c.__doc__).split()) for c in (LinearRotLSTM, rotcell.RotLSTM))
    assert "2 A (input features) more FLOPs" in linear
    assert "as all sizes do on GPUs" in linear
    assert "2 A (input features + P) more FLOPs" in rot_lstm
    assert "as all sizes but 2 do on GPUs" in rot_lstm
    assert "2 A (input features + H) more FLOPs" in " ".join(str(rotcell.RotGRU.__doc__).split())
