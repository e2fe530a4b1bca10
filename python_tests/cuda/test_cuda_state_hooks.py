"""Resets, recurrent dropout, zoneout and c of every step on the CUDA ops: the stepwise path."""

from __future__ import annotations

import pytest
import torch
from helpers import KINDS, assert_all_near, gradients
from kernel_cases import Case, output_gradients, run
from test_state_hooks import OPTIONS, WITH_CELL_STATE, draw, run_with_all
from torch.nn.utils.rnn import pack_padded_sequence

import rotcell
from rotcell import ops


def op_cases():
    for kind in KINDS:
        for packed, reverse in ((False, True), (True, False), (True, True)):
            yield Case(kind, 3, 4, 4, 7, packed=packed, reverse=reverse)
        if kind.description.can_project:
            yield Case(kind, 3, 4, 4, 6, outputs=2, packed=True)


@pytest.mark.parametrize("case", list(op_cases()), ids=str)
def test_ops_match_the_reference(machine, case):
    kind, has_cells = case.kind, case.kind in WITH_CELL_STATE
    tensors, batch_sizes = case.arguments()
    tensors = [None if t is None else t.to(machine.device) for t in tensors]
    for letters in ("r", "d", "h", "c", "rdhc", "rdsc"):
        drawn = draw(case, len(tensors[0]), letters)
        hooks = type(drawn)(*(t if t is None else t.to(machine.device) for t in drawn))
        found, grads = run(
            lambda *a, c=hooks: ops.sequence(
                kind.description, *kind._split(a), False, c, has_cells
            ),
            tensors, batch_sizes, *case.options,
        )  # fmt: skip
        expected, expected_grads = run(
            lambda *a, c=hooks: kind.description.sequence(*kind._split(a), c, has_cells),
            tensors, batch_sizes, *case.options,
        )  # fmt: skip
        names = [f"{letters} {k}" for k in range(len(found) + len(grads))]
        assert_all_near(found + grads, expected + expected_grads, names)
        with torch.no_grad():
            inferred = ops.sequence(
                kind.description, *kind._split([*tensors, batch_sizes, *case.options]), False,
                hooks, has_cells,
            )  # fmt: skip
        assert_all_near(inferred, expected)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_half_precision_errors_are_within_rounding(machine, kind):
    case = Case(kind, 3, 4, 4, 6)
    exact, _ = case.arguments()
    rounded = [None if t is None else t.to(machine.device, torch.bfloat16) for t in exact]
    drawn = draw(case, 12, "rdhc", torch.bfloat16)
    hooks = type(drawn)(*(t.to(machine.device) if t is not None else None for t in drawn))
    wide = [t if t is None or t.dtype == torch.bool else t.double() for t in hooks]
    has_cells = kind in WITH_CELL_STATE
    found = run(
        lambda *a: ops.sequence(kind.description, *kind._split(a), False, hooks, has_cells),
        rounded, None, *case.options,
    )  # fmt: skip
    expected = run(
        lambda *a: kind.description.sequence(*kind._split(a), type(hooks)(*wide), has_cells),
        [None if t is None else t.double() for t in rounded], None, *case.options,
    )  # fmt: skip
    # Preactivations and gradients are rounded to bfloat16 on their way, unlike on the CPU.
    tolerance = 8 * torch.finfo(torch.bfloat16).eps
    assert_all_near(found[0] + found[1], expected[0] + expected[1], tolerance=tolerance)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_layers_with_everything_at_once(machine, kind, packed):
    layer = kind.layer(3, 5, dtype=torch.float64, **OPTIONS).to(machine.device)
    x, resets = torch.randn(4, 3, 3, dtype=torch.float64), torch.rand(4, 3) < 0.3
    if packed:
        x, resets = (pack_padded_sequence(t, [2, 4, 3], enforce_sorted=False) for t in (x, resets))
    x, resets = x.to(machine.device), resets.to(machine.device)
    inputs = list(layer.parameters())
    found = run_with_all(kind, layer, x, resets)
    with rotcell.use_reference():
        expected = run_with_all(kind, layer, x, resets)
    grads = [gradients(results, inputs, output_gradients(results)) for results in (found, expected)]
    assert_all_near([*found, *grads[0]], [*expected, *grads[1]])


@pytest.mark.parametrize("path", ["resident", "cooperative"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_another_forced_path_raises_with_the_missing_feature(machine, kind, path):
    layer = kind.layer(3, 4, zoneout=0.1).to(machine.device)
    x = torch.randn(5, 2, 3, device=machine.device)
    machine.force_path(path)
    with pytest.raises(RuntimeError, match=f"{path} .* does not support resets, recurrent"):
        layer(x)
    if kind in WITH_CELL_STATE:
        plain = kind.layer(3, 4).to(machine.device)
        with torch.no_grad(), pytest.raises(RuntimeError, match="does not return the cell states"):
            plain(x, return_cells=True)
        _, _, cells = plain(x, return_cells=True)
        with pytest.raises(RuntimeError, match="nor take their gradient"):
            cells.sum().backward()
