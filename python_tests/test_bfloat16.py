"""Layers that compute in bfloat16 on the CPU: what is rounded where, and who may ask for it.

test_instruction_sets.py repeats this file with the set that emulates the instructions.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from helpers import KINDS, Kind, assert_all_near
from kernel_cases import Case, run, variants
from torch import Tensor

from rotcell import _libraries

pytestmark = pytest.mark.skipif(
    not _libraries.computes_in_bfloat16(), reason="computes in float32 here"
)
EPS = torch.finfo(torch.bfloat16).eps
WITH_CELL_STATE = [kind for kind in KINDS if kind.num_states == 2]


def in_double(tensors: list[Tensor | None]) -> list[Tensor | None]:
    return [None if t is None else t.double() for t in tensors]


@pytest.mark.parametrize("sizes", [(1, 12, 7, 33), (9, 9, 20, 50), (3, 7, 1, 16)], ids=str)
@pytest.mark.parametrize("kind", WITH_CELL_STATE, ids=str)
def test_h_is_rounded_once_per_step_and_nothing_else_is(kind, sizes):
    """A loop in float64 that rounds h only differs where h lies at the middle of two values."""
    batch, steps, *_ = sizes
    tensors, _ = Case(kind, *sizes).arguments(torch.bfloat16)
    found = kind.kernel(*tensors)[0].view(steps, batch, -1)
    x, h, c, *weights = in_double(tensors)
    expected = []
    for of_step in x.view(steps, batch, -1):
        _, h, c = kind.reference(of_step, h, c, *weights)
        h = h.bfloat16().double()
        expected.append(h)
    differs = found.double() != torch.stack(expected)
    assert differs.double().mean() < 0.02
    torch.testing.assert_close(found.double(), torch.stack(expected), atol=EPS / 2, rtol=EPS)


@pytest.mark.parametrize(
    "case",
    [
        case
        for kind in KINDS
        for case in [
            *variants(kind, [(5, 6, 5, 35), (8, 5, 4, 20)]),
            Case(kind, 9, 4, 3, 18, gate_activation="hard_sigmoid", packed=True),
            Case(kind, 1, 600, 6, 40),
        ]
    ],
    ids=str,
)
def test_everything_is_near_float64(case):
    tensors, batch_sizes = case.arguments(torch.bfloat16)
    found, grads = run(case.kind.kernel, tensors, batch_sizes, *case.options)
    expected, true_grads = run(case.kind.reference, in_double(tensors), batch_sizes, *case.options)
    assert {t.dtype for t in found + grads} == {torch.bfloat16}
    assert_all_near(found, expected, tolerance=EPS)
    assert_all_near(grads, true_grads, tolerance=2 * EPS, least_scale=0.1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_inference_and_training_give_the_same_bits(kind):
    tensors, batch_sizes = Case(kind, 5, 9, 20, 33, packed=True).arguments(torch.bfloat16)
    trained = run(kind.kernel, tensors, batch_sizes)[0]
    assert all(map(torch.equal, kind.kernel(*tensors, batch_sizes), trained))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_threads_that_share_units_give_the_same_bits(kind):
    tensors, _ = Case(kind, 1, 8, 100, 256).arguments(torch.bfloat16)
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            out, grads = run(kind.kernel, tensors, None)
            results.append(out + grads)
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nothing_is_saved_in_float32(kind):
    layer = kind.layer(4, 6).bfloat16()
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        layer(torch.randn(5, 3, 4, dtype=torch.bfloat16))
    assert saved
    assert {t.dtype for t in saved} == {torch.bfloat16}


def test_gates_near_1_keep_their_distance_from_it():
    """With a forget gate of 1 - 2^-10 the gradient of its bias is not lost in rounding."""
    kind = next(k for k in KINDS if k.name == "lstm")
    layer = kind.layer(3, 4).bfloat16()
    with torch.no_grad():
        layer.bias_ih_l0[4:8] = 7.0
    exact = kind.layer(3, 4).double()
    exact.load_state_dict({name: t.double() for name, t in layer.state_dict().items()})
    x = torch.randn(6, 2, 3).bfloat16()
    layer(x)[0].sum().backward()
    exact(x.double())[0].sum().backward()
    found, expected = layer.bias_ih_l0.grad[4:8].double(), exact.bias_ih_l0.grad[4:8]
    torch.testing.assert_close(found, expected, rtol=8 * EPS, atol=0)


@pytest.fixture
def precision():
    """Sets torch.backends.mkldnn.rnn.fp32_precision, for the test only."""
    rnn = torch.backends.mkldnn.rnn
    before = rnn.fp32_precision

    def allow(value: str) -> None:
        rnn.fp32_precision = value

    yield allow
    rnn.fp32_precision = before


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_fp32_precision_lowers_float32_layers_if_and_only_if_set(kind: Kind, precision) -> None:
    layer = kind.layer(4, 6, num_layers=2, bidirectional=True)
    x = torch.randn(5, 3, 4, requires_grad=True)

    def results(layer, x):
        out, state = layer(x)
        states = state if isinstance(state, tuple) else (state,)
        return out, *states, torch.autograd.grad(out.float().sum(), x)[0]

    exact = results(layer, x)
    precision("bf16")
    lowered = results(layer, x)
    assert all(t.dtype == torch.float32 for t in lowered)
    assert not torch.equal(lowered[0], exact[0])
    assert torch.equal(layer.double()(x.double())[0], layer(x.double())[0])
    layer.float()
    precision("ieee")
    assert all(map(torch.equal, results(layer, x), exact))
    for t, of_exact in zip(lowered, exact, strict=True):
        torch.testing.assert_close(t, of_exact, atol=4 * EPS, rtol=0)
    one = kind.layer(4, 6)
    expected = kind.layer(4, 6).bfloat16()
    expected.load_state_dict({name: t.bfloat16() for name, t in one.state_dict().items()})
    precision("bf16")
    assert torch.equal(one(x)[0], expected(x.bfloat16())[0].float())


PRINT_OUTPUTS = """
import torch, rotcell
torch.manual_seed(0)
for name in ("RotLSTM", "LSTM", "RotGRU", "GRU"):
    layer = getattr(rotcell, name)(20, 50).bfloat16()
    out = layer(torch.randn(8, 5, 20).bfloat16())[0]
    print(*out.flatten().view(torch.int16).tolist())
"""


@pytest.mark.skipif(
    _libraries.instruction_set() != "avx512_bf16", reason="there is nothing to emulate"
)
def test_the_emulation_gives_what_the_instructions_give():
    def outputs(instruction_set: str) -> list[Tensor]:
        finished = subprocess.run(
            [sys.executable, "-c", PRINT_OUTPUTS],
            env={**os.environ, "ROTCELL_ISA": instruction_set},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        rows = [[int(n) for n in line.split()] for line in finished.stdout.splitlines()]
        return [torch.tensor(row, dtype=torch.int16).view(torch.bfloat16) for row in rows]

    # Sums have the same bits. Activations do not: only the instructions fuse their steps.
    for found, expected in zip(outputs("generic_bf16"), outputs("avx512_bf16"), strict=True):
        assert (found != expected).double().mean() < 0.005
        torch.testing.assert_close(found, expected, atol=EPS / 2, rtol=EPS)
