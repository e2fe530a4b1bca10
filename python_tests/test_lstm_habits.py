"""What programs written for nn.LSTM do to their layers, apart from running them."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest
import torch
from helpers import KINDS, Kind, assert_near, states_for
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

PROJECTING = [kind for kind in KINDS if kind.description.can_project]


# nn.RNNBase


def test_layers_are_rnns_to_isinstance(kind: Kind) -> None:
    layer = kind.layer(3, 4)
    assert isinstance(layer, nn.RNNBase)
    assert not isinstance(layer, (nn.LSTM, nn.GRU))
    assert layer.mode == kind.name.upper()


def test_lists_of_weights_show_the_parameters_of_the_moment(kind: Kind) -> None:
    layer = kind.layer(3, 4, 2, bidirectional=True)
    plain = kind.plain_layer(3, 4, 2, bidirectional=True)
    assert layer._flat_weights_names == plain._flat_weights_names
    assert layer._all_weights == plain._all_weights
    layer.weight_hh_l0 = nn.Parameter(torch.zeros(kind.rows(4), 4))
    layer.double()
    for shown in (layer._flat_weights, [w for weights in layer.all_weights for w in weights]):
        assert all(a is b for a, b in zip(shown, layer.parameters(), strict=True))


def test_a_weight_may_be_replaced_by_a_tensor(kind: Kind) -> None:
    """As dropout of weights does at every forward."""
    layer, x = kind.layer(3, 4), torch.randn(5, 2, 3)
    raw = layer.weight_hh_l0
    del layer._parameters["weight_hh_l0"]
    layer.weight_hh_l0 = raw * 0.5
    out, _ = layer(x)
    out.sum().backward()
    assert raw.grad is not None
    twin = kind.layer(3, 4)
    twin.load_state_dict({**layer.state_dict(), "weight_hh_l0": raw.detach() * 0.5})
    assert_near(out, twin(x)[0])


@pytest.mark.parametrize("batch_first", [False, True])
def test_checks_of_rnnbase_pass(kind: Kind, batch_first: bool) -> None:
    layer = kind.layer(3, 4, 2, batch_first=batch_first, bidirectional=True)
    x = torch.randn(5, 2, 3)
    batch = 5 if batch_first else 2
    states = states_for(kind, layer, batch)
    assert layer.get_expected_hidden_size(x, None) == tuple(states[0].shape)
    layer.check_forward_args(x, kind.as_hx(states), None)
    layer(x, kind.as_hx(states))
    with pytest.raises(RuntimeError):
        layer.check_forward_args(x[..., :2], kind.as_hx(states), None)
    for k in range(kind.num_states):
        wrong = [s[:, :1] if j == k else s for j, s in enumerate(states)]
        with pytest.raises(RuntimeError, match="hx"):
            layer.check_forward_args(x, kind.as_hx(wrong), None)
    order = torch.tensor(range(batch - 1, -1, -1))
    permuted = kind.as_states(layer.permute_hidden(kind.as_hx(states), order))
    assert all(torch.equal(p, s.flip(1)) for p, s in zip(permuted, states, strict=True))


@pytest.mark.parametrize("kind", PROJECTING, ids=str)
def test_expected_sizes_with_a_projection(kind: Kind) -> None:
    layer, plain = kind.layer(3, 5, proj_size=2), nn.LSTM(3, 5, proj_size=2)
    x = torch.randn(4, 2, 3)
    for method in ("get_expected_hidden_size", "get_expected_cell_size"):
        assert getattr(layer, method)(x, None) == getattr(plain, method)(x, None)


@pytest.mark.parametrize("proj_size", [0, 1])
@pytest.mark.parametrize("kind", [k for k in KINDS if k not in PROJECTING], ids=str)
def test_grus_refuse_a_projection_as_nn_gru_does(kind: Kind, proj_size: int) -> None:
    with pytest.raises(ValueError, match="proj_size"):
        kind.plain_layer(3, 4, proj_size=proj_size)
    with pytest.raises(ValueError, match="proj_size"):
        kind.layer(3, 4, proj_size=proj_size)


# Outputs


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("form", ["time_first", "batch_first", "unbatched"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_output_can_be_cut_off_in_place(
    kind: Kind, bidirectional: bool, form: str, needs_gradient: bool
) -> None:
    layer = kind.layer(3, 4, bidirectional=bidirectional, batch_first=form == "batch_first")
    layer.requires_grad_(needs_gradient)
    out, _ = layer(torch.randn(5, 3) if form == "unbatched" else torch.randn(5, 2, 3))
    assert out.requires_grad == needs_gradient
    assert not out.detach_().requires_grad


@pytest.mark.parametrize("batch_first", [False, True])
def test_an_output_changed_in_place_gives_no_wrong_gradient(kind: Kind, batch_first: bool) -> None:
    layer = kind.layer(3, 4, batch_first=batch_first)
    out, _ = layer(torch.randn(5, 2, 3))
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# Gates by name


def test_gates_are_views_by_name(kind: Kind) -> None:
    layer = kind.layer(3, 7, 2, bidirectional=True)
    for module, name in ((layer, "bias_hh_l1_reverse"), (kind.cell(3, 7), "weight_ih")):
        parameter = getattr(module, name)
        gates = dict(module.named_gates(name))
        assert tuple(gates) == kind.description.gates
        assert torch.equal(torch.cat(list(gates.values())), parameter)
        for number, gate in enumerate(gates):
            nn.init.constant_(module.gate_rows(gate, name), number)
        assert torch.equal(torch.cat(list(gates.values())), parameter)
        assert parameter.unique().tolist() == list(range(len(gates)))


@pytest.mark.parametrize("kind", [k for k in KINDS if "f" in k.description.gates], ids=str)
def test_the_forget_gate_is_the_one_of_nn_lstm(kind: Kind) -> None:
    layer, plain = kind.layer(3, 4), nn.LSTM(3, 4)
    with torch.no_grad():
        layer.gate_rows("forget", "bias_ih_l0").fill_(1)
        plain.bias_ih_l0[4:8].fill_(1)  # the usual line, n // 4 to n // 2
    assert torch.equal(layer.bias_ih_l0[:16] == 1, plain.bias_ih_l0 == 1)


@pytest.mark.parametrize(
    ("gate", "parameter", "words"),
    [
        ("forgot", "bias_ih_l0", "gate must be one of"),
        ("n", "bias_ih_l7", "parameter must be .* 'bias_ih_l7'"),
        ("n", "weight_hr_l0", "parameter must be"),
        ("n", "training", "parameter must be"),
    ],
)
def test_gates_and_parameters_that_are_not_there(
    kind: Kind, gate: str, parameter: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        kind.layer(3, 4).gate_rows(gate, parameter)
    if gate == "n":
        with pytest.raises(ValueError, match=words):
            list(kind.layer(3, 4).named_gates(parameter))


# Saving


@pytest.mark.parametrize("form", ["layer", "cell"])
def test_whole_modules_are_loaded_without_further_ado(kind: Kind, form: str) -> None:
    module = getattr(kind, form)(3, 5, gate_activation="hard_sigmoid")
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)  # weights_only=True
    assert repr(loaded) == repr(module)
    x = torch.randn(4, 3)
    assert torch.equal(kind.as_states(loaded(x))[0][0], kind.as_states(module(x))[0][0])


def test_layers_pickled_before_there_were_options(kind: Kind) -> None:
    layer = kind.layer(3, 4)
    state = layer.__getstate__()
    later = {
        "gate_activation",
        "angle_activation",
        "forget_bias",
        "mode",
        "_all_weights",
        "_flat_weights_names",
    }
    old = {key: value for key, value in state.items() if key not in later}
    loaded: Any = kind.layer.__new__(kind.layer)
    loaded.__setstate__(old | {"_weight_names": layer._all_weights})
    x = torch.randn(5, 2, 3)
    assert torch.equal(loaded(x)[0], layer(x)[0])
    assert repr(pickle.loads(pickle.dumps(loaded))) == repr(layer)


# Counting


def flops_of(module: nn.Module, x: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        module(x)[0].sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("needs_grad_x", [False, True])
def test_flops_are_those_of_the_same_matmuls_by_hand(kind: Kind, needs_grad_x: bool) -> None:
    """Every row of the weights meets every token, and twice in the backward pass."""
    steps, batch, inputs, hidden = 5, 2, 3, 4
    x = torch.randn(steps, batch, inputs, requires_grad=needs_grad_x)
    with_x = 2 * steps * batch * kind.rows(hidden) * inputs
    with_h = 2 * steps * batch * kind.rows(hidden) * hidden
    expected = (with_x + with_h) + (with_x + with_h) + with_h + needs_grad_x * with_x
    assert flops_of(kind.layer(inputs, hidden), x) == expected


@pytest.mark.parametrize("kind", PROJECTING, ids=str)
def test_flops_of_a_projection(kind: Kind) -> None:
    x = torch.randn(5, 2, 3)
    steps, rows = 10, kind.rows(6)
    forward = 2 * steps * (rows * 3 + rows * 2 + 6 * 2)
    backward = forward + 2 * steps * (rows * 2 + 6 * 2)
    assert flops_of(kind.layer(3, 6, proj_size=2), x) == forward + backward
