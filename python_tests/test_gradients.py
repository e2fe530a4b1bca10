"""First and second derivatives of whole layers, against finite differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import KINDS, LINEAR, OPTIONS, ROTATING, Kind, kinds_and_options, states_for
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.utils.rnn import PackedSequence

CASES = [
    (kind, name, hidden)
    for kind, name in kinds_and_options()
    for hidden in ((1, 4, 5) if name == "default" else (5,) if "deep" in name else (4,))
]


def function_and_inputs(
    kind: Kind, name: str, hidden: int, sizes: list[int] | None
) -> tuple[Any, tuple[Tensor, ...]]:
    """A layer as a function of input, states and all its parameters."""
    options = OPTIONS[name] | {"num_layers": min(2, OPTIONS[name].get("num_layers", 1))}
    layer = kind.layer(2, hidden, dtype=torch.float64, **options)
    x = torch.randn(3, 2, 2) if sizes is None else torch.randn(sum(sizes), 2)
    states = states_for(kind, layer, 2 if sizes is None else sizes[0])
    parameters = dict(layer.named_parameters())
    inputs = [x.double(), *states, *(p.detach() for p in parameters.values())]

    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        hx = kind.as_hx(rest[: kind.num_states])
        replaced = dict(zip(parameters, rest[kind.num_states :], strict=True))
        given = x if sizes is None else PackedSequence(x, torch.tensor(sizes))
        out, last = torch.func.functional_call(layer, replaced, (given, hx))
        return (out if sizes is None else out.data), *kind.as_states(last)

    return run, tuple(t.clone().requires_grad_() for t in inputs)


@pytest.mark.parametrize("sizes", [None, [3, 2, 1]], ids=["padded", "packed"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1]}-{c[2]}")
def test_first_and_second_derivatives(case: tuple[Kind, str, int], sizes: list[int] | None) -> None:
    run, inputs = function_and_inputs(*case, sizes)
    # Fast mode projects on random vectors, so an error in any entry shows.
    assert gradcheck(run, inputs, fast_mode=True)
    if case[1:] == ("default", 4):
        # By far the slowest, and by the reference, whose own are checked in test_reference.py.
        assert gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("sizes", [None, [2, 1]], ids=["padded", "packed"])
def test_every_entry_of_the_jacobian(kind: Kind, sizes: list[int] | None) -> None:
    run, inputs = function_and_inputs(kind, "default", 3, sizes)
    assert gradcheck(run, inputs)


@pytest.mark.parametrize("kind", [*KINDS, LINEAR], ids=str)
def test_derivatives_of_the_cells(kind: Kind) -> None:
    cell = kind.cell(2, 5).double()
    inputs = [torch.randn(3, 2), *(torch.randn(3, 5) for _ in range(kind.num_states))]

    def run(x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        return kind.as_states(cell(x, kind.as_hx(states)))

    doubles = [t.double().requires_grad_() for t in inputs]
    assert gradcheck(run, doubles)
    assert gradgradcheck(run, doubles)


@pytest.mark.parametrize("kind", ROTATING, ids=str)
def test_derivatives_with_the_angles_nearly_still(kind: Kind) -> None:
    """Saturated angles, on both sides, are where a kernel's shortcut would lose digits."""
    layer = kind.layer(2, 4, dtype=torch.float64)
    with torch.no_grad():
        layer.bias_ih_l0[kind.angle_rows(4)] = torch.tensor([-12.0, 12.0])
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: layer(x)[0], (x,))
    assert gradgradcheck(lambda x: layer(x)[0], (x,))


def test_derivatives_of_hard_gates(kind: Kind) -> None:
    """Some gates are fully open or shut, none so near an end that a difference would cross it."""
    functions = {"angle_activation": "hard_sigmoid"} if kind.description.rotates else {}
    layer = kind.layer(2, 4, dtype=torch.float64, gate_activation="hard_sigmoid", **functions)
    with torch.no_grad():
        layer.bias_ih_l0[::3] = 9.0
        layer.bias_ih_l0[1::3] = -9.0
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: layer(x)[0], (x,))
    assert gradgradcheck(lambda x: layer(x)[0], (x,))
