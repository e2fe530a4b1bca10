"""The single-step cells: one timestep of the layers."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from helpers import KINDS, LINEAR, SHIFTS, Kind, assert_all_near, gradients, leaves
from torch.nn.utils.parametrizations import spectral_norm

from rotcell.reference import GATE_FUNCTIONS


@pytest.fixture(params=[*KINDS, LINEAR], ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("gates", GATE_FUNCTIONS)
@pytest.mark.parametrize(("hidden_size", "bias"), [(1, True), (7, True), (4, False)])
def test_results_and_gradients_match_the_reference(
    kind: Kind, hidden_size: int, bias: bool, gates: str, dtype: torch.dtype
) -> None:
    cell = kind.cell(3, hidden_size, bias=bias, dtype=dtype, gate_activation=gates)
    inputs = leaves(
        [torch.randn(5, 3), *(torch.randn(5, hidden_size) for _ in range(kind.num_states))], dtype
    )
    results = kind.as_states(cell(inputs[0], kind.as_hx(inputs[1:])))
    cotangents = [torch.randn(5, hidden_size).double() for _ in results]
    actual = gradients(results, [*inputs, *cell.parameters()], cotangents)

    inputs64 = leaves(inputs, torch.float64)
    parameters64 = leaves(cell.parameters(), torch.float64)
    named = {name: p for (name, _), p in zip(cell.named_parameters(), parameters64, strict=True)}
    weights = kind.weights(named, hidden_size)
    expected_results = kind.step(inputs64[0], inputs64[1:], *weights, gate_activation=gates)
    expected = gradients(expected_results, [*inputs64, *parameters64], cotangents)
    assert_all_near(results, expected_results)
    assert_all_near(actual, expected)


def test_cell_in_a_loop_is_the_layer(kind: Kind) -> None:
    layer, cell = kind.layer(3, 5).double(), kind.cell(3, 5).double()
    cell.load_state_dict({name.removesuffix("_l0"): p for name, p in layer.state_dict().items()})
    x = torch.randn(6, 2, 3).double()
    hx, outputs = None, []
    for x_t in x:
        hx = cell(x_t, hx)
        outputs.append(kind.as_states(hx)[0])
    out, last = layer(x)
    assert_all_near(
        [torch.stack(outputs), *kind.as_states(hx)], [out, *(s[0] for s in kind.as_states(last))]
    )


def test_missing_state_is_zeros(kind: Kind) -> None:
    cell = kind.cell(3, 5)
    x, zeros = torch.randn(2, 3), torch.zeros(2, 5)
    given = kind.as_states(cell(x, kind.as_hx([zeros] * kind.num_states)))
    assert all(map(torch.equal, kind.as_states(cell(x)), given))


def test_unbatched_input_is_a_batch_of_one(kind: Kind) -> None:
    cell = kind.cell(3, 5)
    x, states = torch.randn(3), [torch.randn(5) for _ in range(kind.num_states)]
    for hx, hx_batched in [
        (None, None),
        (kind.as_hx(states), kind.as_hx([s.unsqueeze(0) for s in states])),
    ]:
        results = kind.as_states(cell(x, hx))
        expected = kind.as_states(cell(x.unsqueeze(0), hx_batched))
        assert all(r.shape == (5,) for r in results)
        assert all(torch.equal(r, e.squeeze(0)) for r, e in zip(results, expected, strict=True))


@pytest.mark.parametrize(("batch", "inputs", "hidden"), [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
def test_empty_dimensions_are_accepted_as_by_the_plain_cell(
    kind: Kind, batch: int, inputs: int, hidden: int
) -> None:
    x = torch.randn(batch, inputs)
    ours = kind.as_states(kind.cell(inputs, hidden)(x))
    theirs = kind.as_states(kind.plain_cell(inputs, hidden)(x))
    assert [r.shape for r in ours] == [r.shape for r in theirs]


@pytest.mark.parametrize("bias", [True, False])
def test_parameters_have_the_names_and_order_of_the_plain_cell(kind: Kind, bias: bool) -> None:
    cell, plain = kind.cell(3, 5, bias), kind.plain_cell(3, 5, bias)
    recurrent = () if kind.description.reads_h else ("weight_hh", "bias_hh")
    assert list(cell.state_dict()) == [n for n in plain.state_dict() if n not in recurrent]
    assert {p.shape[0] for p in cell.parameters()} == {kind.rows(5)}
    assert (cell.bias_ih is None) == (plain.bias_ih is None)
    assert cell.extra_repr() == plain.extra_repr()


@pytest.mark.parametrize("option", SHIFTS)
def test_options_shift_the_rows_of_their_gate_in_the_input_bias(kind: Kind, option: str) -> None:
    gate = SHIFTS[option]
    if gate not in kind.description.gates:
        with pytest.raises(TypeError, match=option):
            kind.cell(3, 7, **{option: 2.0})
        return
    torch.manual_seed(3)
    plain = kind.cell(3, 7)
    torch.manual_seed(3)
    moved = kind.cell(3, 7, **{option: 2.0})
    with torch.no_grad():
        plain.bias_ih[kind.description.rows_of(gate, 7)] += 2.0
    for (name, found), expected in zip(moved.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, expected), name
    assert f"{option}=2.0" in repr(moved)


def test_parametrized_weights_are_computed_once_per_step(kind: Kind) -> None:
    cell, calls = kind.cell(3, 5), []
    spectral_norm(cell, "weight_ih")
    parametrization = cell.parametrizations.weight_ih[0]
    parametrization.register_forward_hook(lambda *_: calls.append(1))
    cell(torch.randn(2, 3))
    assert len(calls) == 1


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_compute_the_same(kind: Kind, duplicate: object) -> None:
    cell = kind.cell(3, 5)
    x = torch.randn(2, 3)
    assert all(map(torch.equal, kind.as_states(duplicate(cell)(x)), kind.as_states(cell(x))))


def test_conversion_of_dtypes(kind: Kind) -> None:
    cell = kind.cell(3, 5)
    assert kind.as_states(cell.double()(torch.randn(2, 3).double()))[0].dtype == torch.float64
    assert kind.cell(3, 5, device="meta", dtype=torch.float16).weight_ih.dtype == torch.float16
