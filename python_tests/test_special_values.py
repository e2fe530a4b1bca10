"""Infinity, NaN, denormals and huge numbers: in the same places as in the reference.

test_instruction_sets.py repeats this file with every other instruction set.
"""

import math

import pytest
import torch
from helpers import GROUPED, KINDS
from kernel_cases import Case, run

import rotcell

# 1e-40 is denormal in float32, 1e30 overflows in a square.
VALUES = (math.inf, -math.inf, math.nan, 1e-40, 1e30)

# Which loop runs follows from sizes (csrc/cpu, plan.cpp): (batch, steps, packed).
LOOPS = {
    "weights_as_they_are": (3, 4, False),
    "input_matmul_by_chunk": (2, 20, False),
    "input_matmul_by_step": (9, 8, True),
    "batch_vectorized": (16, 4, False),
    "batch_vectorized_with_empty_lanes": (15, 5, False),
}


def places(tensor):
    """0 for finite elements; NaN, infinity and -infinity have other numbers."""
    return torch.where(tensor.isnan(), 3, tensor.isposinf() + 2 * tensor.isneginf())


@pytest.mark.parametrize("hidden", [5, 6])
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_special_values_stay_in_the_places_of_the_reference(kind, loop, hidden):
    check_places(kind, *LOOPS[loop], hidden)


@pytest.mark.parametrize("loop", ["weights_as_they_are", "input_matmul_by_step"])
@pytest.mark.parametrize("kind", GROUPED, ids=str)
def test_special_values_in_units_that_no_group_has_stay_there(kind, loop):
    check_places(kind, *LOOPS[loop], hidden=kind.description.rotation.size + 2)


def check_places(kind, batch, steps, packed, hidden):
    case = Case(kind, batch, steps, 3, hidden, packed=packed)
    states = kind.num_states
    names = ["x", *kind.description.states, "w_ih", "w_hh", "b_ih", "b_hh"]
    for value in VALUES:
        for position, name in enumerate(names):
            tensors, batch_sizes = case.arguments(torch.float32)
            # The last unit of a state: with an odd size it has no partner.
            element = hidden - 1 if 1 <= position <= states else 0
            tensors[position].view(-1)[element] = value
            # At a full turn the kernels have sin = 0 and the reference has the sine of 2 pi rounded
            # to float32, about 1e-7: times infinity these differ. So angles become 0, not 2 pi.
            for weight in tensors[1 + states : 3 + states]:
                angles = weight[kind.angle_rows(hidden)]
                angles.copy_(-angles.abs() if value > 0 else angles.abs())
            found, grads = run(kind.kernel, tensors, batch_sizes, *case.options)
            expected, expected_grads = run(kind.reference, tensors, batch_sizes, *case.options)
            for a, b in zip(found + grads, expected + expected_grads, strict=True):
                assert torch.equal(places(a), places(b)), f"{value} in {name}"


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_infinite_input_of_one_row_leaves_an_odd_layer_finite(kind):
    """All activations saturate, so nothing but the padding of the last pair could make a NaN."""
    torch.manual_seed(0)
    layer, x = kind.layer(3, 5), torch.randn(4, 16, 3)
    x[0, 0, 0] = math.inf
    assert layer(x)[0].isfinite().all()


ROW_LAYERS = {
    "layer_norm_lstm": lambda: rotcell.LSTM(3, 5, layer_norm=True),
    "layer_norm_rot_lstm": lambda: rotcell.RotLSTM(3, 5, layer_norm=True),
    "rum": lambda: rotcell.RUM(3, 5, eta=1.0),
    "goru": lambda: rotcell.GORU(3, 5),
    "eurnn": lambda: rotcell.EURNN(3, 5),
}


@pytest.mark.parametrize("name", ROW_LAYERS)
def test_special_values_change_no_other_row_of_a_row_cell(name):
    torch.manual_seed(0)
    layer, x = ROW_LAYERS[name](), torch.randn(4, 3, 3)
    for value in VALUES:
        odd = x.clone()
        odd[0, 1, 0] = value
        runs = []
        for given in (x, odd):
            leaf = given.clone().requires_grad_()
            out, _ = layer(leaf)
            runs.append((out, *torch.autograd.grad(out[:, ::2].sum(), leaf)))
        for expected, found in zip(*runs, strict=True):
            assert torch.equal(found[:, ::2], expected[:, ::2]), value
