"""Gradients of the CUDA ops against finite differences, on every path."""

import pytest
import torch
from helpers import KINDS
from kernel_cases import Case
from machines import SETTINGS, STEPWISE, on
from torch.autograd import gradcheck


def check(machine, setting, case, fast_mode):
    machine.use(setting, case, torch.float64)
    tensors, batch_sizes = case.arguments()
    tensors = on(machine, tensors)
    present = [place for place, t in enumerate(tensors) if t is not None]

    def function(*leaves):
        arguments = list(tensors)
        for place, leaf in zip(present, leaves, strict=True):
            arguments[place] = leaf
        return case.kind.kernel(*arguments, batch_sizes, *case.options)

    leaves = [tensors[place].requires_grad_() for place in present]
    assert gradcheck(function, leaves, fast_mode=fast_mode)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("hidden", [4, 7])
def test_gradients_match_finite_differences(machine, kind, setting, reverse, hidden):
    # Fast mode projects on random vectors, so an error in any entry shows.
    check(machine, setting, Case(kind, 5, 3, 2, hidden, packed=True, reverse=reverse), True)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_entry_of_the_jacobian(machine, kind, setting):
    check(machine, setting, Case(kind, 2, 2, 1, 3, packed=True), False)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.description.can_project], ids=str)
def test_gradients_through_a_projection(machine, kind):
    check(machine, STEPWISE, Case(kind, 3, 3, 2, 5, outputs=2, packed=True), True)
