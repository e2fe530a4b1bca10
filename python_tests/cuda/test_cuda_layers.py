"""Whole layers on the CUDA ops: against the reference, nn.LSTM, and with the checks of the ops."""

from __future__ import annotations

import copy

import pytest
import torch
from helpers import (
    KINDS,
    OPTIONS,
    assert_all_near,
    assert_near,
    gradients,
    kinds_and_options,
    pack,
    random_sequences,
    states_for,
)
from kernel_cases import Case, output_gradients
from test_kernels import SIGMOIDS
from torch import nn
from torch.nn.utils.rnn import PackedSequence

import rotcell
from rotcell import RotLSTM, ops
from rotcell.reference import Weights

PATHS = ["stepwise", "resident", "cooperative"]


@pytest.fixture(params=PATHS)
def forced(request, machine):
    """A machine on which every op takes the path."""
    machine.force_path(request.param)
    return machine


def results_and_gradients(layer, x, states, kind):
    inputs = [t.requires_grad_() for t in (*states, *layer.parameters())]
    out, last = layer(x, kind.as_hx(states))
    tokens = out.data if isinstance(out, PackedSequence) else out
    results = [tokens, *kind.as_states(last)]
    return [*results, *gradients(results, inputs, output_gradients(results))]


def layer_inputs(kind, tensors):
    """What a backward op takes of the forward op's tensors: all but the biases."""
    first_bias = 3 + kind.num_states
    return [*tensors[:first_bias], *tensors[first_bias + 2 :]]


LAYERS = [
    pytest.param(kind, name, path, id=f"{kind}-{name}-{path}")
    for kind, name in kinds_and_options()
    for path in PATHS
    if path == "stepwise" or "proj_size" not in OPTIONS[name]  # which is how projections run
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "name", "path"), LAYERS)
def test_layers_match_the_reference(machine, kind, name, path, packed):
    machine.force_path(path)
    layer = kind.layer(3, 5, dtype=torch.float64, **OPTIONS[name]).to(machine.device)
    x = pack(random_sequences([4, 2, 3], 3)) if packed else torch.randn(4, 3, 3).double()
    x = x.to(machine.device)
    states = [s.to(machine.device) for s in states_for(kind, layer, 3)]
    found = results_and_gradients(layer, x, states, kind)
    with rotcell.use_reference():
        expected = results_and_gradients(layer, x, states, kind)
    assert_all_near(found, expected)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("hidden", [6, 7])
def test_with_the_rotation_off_it_is_nn_lstm(forced, hidden, packed):
    lstm = nn.LSTM(3, hidden, num_layers=2, bidirectional=True, dtype=torch.float64)
    layer = RotLSTM.from_lstm(lstm).to(forced.device)
    x = pack(random_sequences([5, 2, 4], 3)) if packed else torch.randn(5, 3, 3).double()
    expected, states = lstm(x)
    out, found = layer(x.to(forced.device))
    if packed:
        out, expected = out.data, expected.data
    assert_all_near([t.cpu() for t in (out, *found)], [expected, *states])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("save", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_ops_pass_opcheck(forced, kind, save, packed, dtype):
    tensors, batch_sizes = Case(kind, 3, 4, 5, 6, packed=packed).arguments(dtype)
    tensors = [None if t is None else t.to(forced.device) for t in tensors]
    checks = ("test_schema", "test_faketensor")
    arguments = (*tensors, batch_sizes, *SIGMOIDS, save)
    torch.library.opcheck(kind.op.default, arguments, test_utils=checks)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("wanted", [(True, True), (False, True), (True, False)])
def test_backward_ops_pass_opcheck(forced, kind, wanted):
    tensors, _ = Case(kind, 3, 4, 5, 6).arguments(torch.bfloat16)
    tensors = [None if t is None else t.to(forced.device) for t in tensors]
    out, *rest = kind.op(*tensors, None, *SIGMOIDS, True)
    states, saved = rest[: kind.num_states], rest[kind.num_states :]
    grads = [torch.randn_like(out), None, *(torch.randn_like(s) for s in states[1:])]
    arguments = (*grads, *layer_inputs(kind, tensors), None, *SIGMOIDS, out, *saved, *wanted)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(kind.backward_op.default, arguments, test_utils=checks)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_keeps_the_distance_of_a_gate_from_one(forced, kind, dtype):
    case = Case(kind, 3, 2, 5, 6)
    tensors = [torch.zeros_like(t).to(forced.device) for t in case.arguments(dtype)[0][:-1]]
    x, *states = tensors[: 1 + kind.num_states]
    w_ih, w_hh, b_ih = tensors[1 + kind.num_states :][:3]
    cell, weights = kind.description, Weights(w_ih, w_hh, b_ih + 7)
    _, (gates, *_) = ops.sequence_with_saved(
        cell, x, states, weights, None, False, *["sigmoid"] * 2
    )
    expected = torch.sigmoid(torch.tensor(-7.0, dtype=torch.float64))
    for gate in cell.gates:
        if cell.activations[gate] != "tanh":
            distance = 1 - gates[:, cell.rows_of(gate, 6)].double().cpu()
            assert_near(distance, expected.expand_as(distance), torch.finfo(dtype).eps)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_backward_refuses_what_forward_did_not_save(machine, kind):
    tensors, _ = Case(kind, 3, 4, 5, 6).arguments(torch.float32)
    tensors = [None if t is None else t.to(machine.device) for t in tensors]
    out, *rest = kind.op(*tensors, None, *SIGMOIDS, True)
    gates, *cells = rest[kind.num_states :]
    inputs = layer_inputs(kind, tensors)
    nothing = [None] * (1 + kind.num_states)
    with pytest.raises(RuntimeError, match="expected gates as the forward op saved it"):
        kind.backward_op(*nothing, *inputs, None, *SIGMOIDS, out, gates[:-1], *cells, True, True)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_layer_trains_as_on_the_cpu_kernels(emulator_module, kind):
    """Some steps of training: what the two do must not drift apart."""
    layer = kind.layer(4, 6, dtype=torch.float64)
    twin = copy.deepcopy(layer)
    x, target = torch.randn(5, 3, 4).double(), torch.randn(5, 3, 6).double()

    def train(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(5):
            optimizer.zero_grad()
            (model(x)[0] - target).pow(2).mean().backward()
            optimizer.step()
        return list(model.parameters())

    on_cpu = train(twin)
    emulator_module.install()
    try:
        found = train(layer)
    finally:
        emulator_module.remove()
    assert_all_near(found, on_cpu)
