"""The CUDA ops against the reference in float64, on every path."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers import GRU, KINDS, TOLERANCE, Kind, assert_all_near
from kernel_cases import Case, output_gradients, run
from machines import (
    CLUSTER,
    COOPERATIVE,
    COOPERATIVE_PLAIN,
    COOPERATIVE_UNITS,
    RESIDENT,
    RESIDENT_ROWS,
    SETTINGS,
    STEPWISE,
    Machine,
    Setting,
    on,
)

# Every hidden size modulo 4, and batches and steps that fill no tile: of 4 and of 16 rows.
SMALL = [(1, 1, 1, 1), (1, 5, 3, 2), (3, 4, 2, 3), (5, 3, 7, 20), (18, 2, 3, 21), (7, 3, 4, 38)]


def small_cases(kind: Kind, setting: Setting) -> list[Case]:
    """Two cases per size, packed and not, in both directions; sometimes without a bias.

    Projections run stepwise only.
    """
    cases = []
    for number, size in enumerate(SMALL):
        plain = Case(kind, *size, bias=number % 3 != 2)
        even = number % 2 == 0
        both = [replace(plain, reverse=even), replace(plain, packed=True, reverse=not even)]
        cases += both
        if setting is STEPWISE and kind.description.can_project and plain.hidden > 2:
            cases += [replace(case, outputs=max(1, plain.hidden // 3)) for case in both]
    return cases


SMALL_CASES = [
    pytest.param(setting, case, id=f"{setting}-{case}")
    for setting in SETTINGS
    for kind in KINDS
    for case in small_cases(kind, setting)
]

# More than one stage of an operand, unrolled loops with their tails, blocks of all sizes.
LARGE = {
    STEPWISE: [(3, 2, 5, 161), (2, 3, 4, 258)],
    RESIDENT: [(3, 3, 5, 50), (2, 2, 3, 79)],
    RESIDENT_ROWS: [(6, 3, 5, 50), (5, 2, 3, 63)],
    COOPERATIVE: [(3, 2, 5, 163), (17, 2, 3, 160)],
    COOPERATIVE_UNITS: [(5, 3, 4, 33), (3, 2, 3, 45)],
}
# What only the narrower types fit.
LARGE_FLOAT32 = {RESIDENT: [(2, 2, 3, 112)], RESIDENT_ROWS: [(9, 2, 3, 103)]}
LARGE_HALF = {
    STEPWISE: [(3, 2, 5, 163)],
    RESIDENT: [(2, 2, 3, 160), (2, 2, 3, 129)],
    RESIDENT_ROWS: [(9, 2, 3, 129)],
    COOPERATIVE: [(3, 2, 5, 163), (17, 2, 3, 160), (2, 1, 3, 262)],
    COOPERATIVE_UNITS: [(18, 3, 4, 33), (3, 2, 3, 61)],
    COOPERATIVE_PLAIN: [(18, 3, 4, 33), (3, 2, 3, 42)],
    CLUSTER: [(17, 3, 3, 66), (3, 2, 5, 163), (2, 2, 3, 256), (2, 2, 3, 512)],
}


def large_cases(sizes: dict[Setting, list[tuple[int, int, int, int]]]) -> list:
    return [
        pytest.param(setting, case, id=f"{setting}-{case}")
        for setting, shapes in sizes.items()
        for number, shape in enumerate(shapes)
        for kind in KINDS
        for case in [Case(kind, *shape, packed=number % 2 == 0, reverse=number % 2 == 0)]
    ]


def check(
    machine: Machine,
    setting: Setting,
    case: Case,
    dtype: torch.dtype,
    results_tolerance: float,
    grads_tolerance: float,
    grads_scale: float = 0.0,
) -> None:
    machine.use(setting, case, dtype)
    tensors, batch_sizes = case.arguments(dtype)
    results, grads = run(case.kind.kernel, on(machine, tensors), batch_sizes, *case.options)
    assert {t.dtype for t in results + grads} == {dtype}
    assert {t.device for t in results + grads} == {machine.device}
    in_double = [None if t is None else t.double() for t in tensors]
    true_results, true_grads = run(case.kind.reference, in_double, batch_sizes, *case.options)
    assert_all_near([r.cpu() for r in results], true_results, tolerance=results_tolerance)
    assert_all_near(
        [g.cpu() for g in grads], true_grads, tolerance=grads_tolerance, least_scale=grads_scale
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("setting", "case"), SMALL_CASES)
def test_results_and_gradients_match_the_reference(machine, setting, case, dtype):
    check(machine, setting, case, dtype, TOLERANCE[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("setting", "case"), large_cases(LARGE))
def test_larger_sizes_match_the_reference(machine, setting, case, dtype):
    check(machine, setting, case, dtype, TOLERANCE[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize(("setting", "case"), large_cases(LARGE_FLOAT32))
def test_sizes_for_float32_only_match_the_reference(machine, setting, case):
    check(machine, setting, case, torch.float32, TOLERANCE[torch.float32], TOLERANCE[torch.float32])


HALF_TYPES = [torch.bfloat16, torch.float16]
HALF_SMALL = [(6, 3, 2, 1), (3, 4, 2, 3), (5, 3, 7, 20), (18, 2, 3, 21), (7, 3, 4, 38)]
HALF_CASES = [
    replace(Case(kind, *shape), packed=number % 2 == 1, reverse=number % 3 == 1)
    for kind in KINDS
    for number, shape in enumerate(HALF_SMALL)
]


def check_half(machine: Machine, setting: Setting, case: Case, dtype: torch.dtype) -> None:
    # Rounding affects the outputs, which the next step reads, and on the stepwise path torch's
    # matmuls; in the backward pass also the gradients of the gates. The gradient of a single unit
    # is one sum of terms of order 1, which may cancel.
    rounding = torch.finfo(dtype).eps
    check(machine, setting, case, dtype, 2 * rounding, 3 * rounding, grads_scale=1.0)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("case", HALF_CASES, ids=str)
@pytest.mark.parametrize("setting", [*SETTINGS, COOPERATIVE_PLAIN, CLUSTER], ids=str)
def test_half_precision_errors_are_within_rounding(machine, setting, case, dtype):
    check_half(machine, setting, case, dtype)


# One type for each case, in turns over cells and sizes; the smaller ones above have both.
@pytest.mark.parametrize(
    ("setting", "case", "dtype"),
    [
        pytest.param(setting, case, dtype, id=f"{setting}-{case}-{dtype}")
        for number, (setting, case) in enumerate(p.values for p in large_cases(LARGE_HALF))
        for dtype in [HALF_TYPES[(number + number // len(KINDS)) % 2]]
    ],
)
def test_larger_half_precision_errors_are_within_rounding(machine, setting, case, dtype):
    check_half(machine, setting, case, dtype)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
@pytest.mark.parametrize("kind", [k for k in KINDS if k.description.can_project], ids=str)
def test_half_precision_projection_errors_are_within_rounding(machine, kind, dtype):
    check_half(machine, STEPWISE, Case(kind, 5, 3, 4, 22, outputs=9, packed=True), dtype)


@pytest.mark.parametrize(
    ("gate_activation", "angle_activation"),
    [("hard_sigmoid", "sigmoid"), ("sigmoid", "hard_sigmoid"), ("hard_sigmoid", "hard_sigmoid")],
)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("setting", [*SETTINGS, COOPERATIVE_PLAIN], ids=str)
def test_gate_activations_match_the_reference(
    machine, setting, kind, gate_activation, angle_activation
):
    case = Case(
        kind,
        6,
        3,
        4,
        21,
        packed=True,
        gate_activation=gate_activation,
        angle_activation=angle_activation,
    )
    if case.kind.description.rotates or angle_activation == "sigmoid":
        tolerance = TOLERANCE[torch.float64]
        check(machine, setting, case, torch.float64, tolerance, tolerance)


def test_the_settings_reach_every_kind_of_launch():
    case = Case(GRU, 18, 2, 3, 40)

    def plans(dtype: torch.dtype) -> list:
        settings = [*SETTINGS, COOPERATIVE_PLAIN, CLUSTER]
        found = [p for s in settings if (p := s.plan(case, dtype, "forward")) is not None]
        return [
            (p["path"], p["rows_per_block"], p["units_per_block"] > 2, p["tensor_cores"])
            for p in found
        ]

    assert plans(torch.float32)[:5] == [
        ("stepwise", 0, False, False),
        ("resident", 1, False, False),
        ("resident", 4, False, False),
        ("cooperative", 0, False, False),
        ("cooperative", 0, True, False),
    ]
    assert plans(torch.bfloat16)[3:] == [
        ("cooperative", 0, False, True),
        ("cooperative", 0, True, True),
        ("cooperative", 0, True, False),
        ("cluster", 0, True, True),
    ]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_inference_gives_the_bits_of_training(machine, kind, setting, packed):
    case = Case(kind, 5, 4, 3, 14, packed=packed)
    for dtype in (torch.float32, torch.bfloat16):
        machine.use(setting, case, dtype)
        tensors, batch_sizes = case.arguments(dtype)
        tensors = on(machine, tensors)
        inference = kind.kernel(*tensors, batch_sizes, False)
        training, _ = run(kind.kernel, tensors, batch_sizes, False)
        assert all(torch.equal(a, b) for a, b in zip(inference, training, strict=True))


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_gradient_is_the_same_when_it_alone_is_wanted(machine, kind, setting):
    case = Case(kind, 5, 3, 4, 10, packed=True)
    machine.use(setting, case, torch.float64)
    tensors, batch_sizes = case.arguments()
    tensors = on(machine, tensors)
    _, every = run(kind.kernel, tensors, batch_sizes, False)
    present = [place for place, t in enumerate(tensors) if t is not None]
    for place, expected in zip(present, every, strict=True):
        leaves = list(tensors)
        leaves[place] = tensors[place].clone().requires_grad_()
        results = kind.kernel(*leaves, batch_sizes, False)
        (grad,) = torch.autograd.grad(results, [leaves[place]], output_gradients(results))
        assert torch.equal(grad, expected)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_gradients_of_one_result_alone_match_the_reference(machine, kind, setting):
    case = Case(kind, 5, 3, 4, 10, packed=True, reverse=True)
    machine.use(setting, case, torch.float64)
    tensors, batch_sizes = case.arguments()
    for wanted in range(1 + kind.num_states):

        def one(function, wanted=wanted):
            return lambda *args: [function(*args)[wanted]]

        kernel, reference = kind.kernel, kind.reference
        _, grads = run(one(kernel), on(machine, tensors), batch_sizes, True)
        _, expected = run(one(reference), tensors, batch_sizes, True)
        assert_all_near([g.cpu() for g in grads], expected)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_nan_stays_in_its_row_and_in_later_steps(machine, kind, setting):
    case = Case(kind, 5, 4, 3, 11)
    machine.use(setting, case, torch.float32)
    tensors, _ = case.arguments(torch.float32)
    tensors[0][2 * case.batch + 1, 0] = float("nan")  # step 2, row 1
    out = kind.kernel(*on(machine, tensors), None, False)[0].cpu()
    found = out.isnan().view(case.steps, case.batch, case.hidden)
    assert found[2:, 1].all()
    found[2:, 1] = False
    assert not found.any()


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_arguments_need_not_be_contiguous(machine, kind, setting):
    case = Case(kind, 5, 3, 4, 10)
    machine.use(setting, case, torch.float64)
    tensors, _ = case.arguments()
    tensors = on(machine, tensors)

    def strided(t):
        return None if t is None else t.repeat_interleave(2, dim=-1)[..., ::2]

    kernel = kind.kernel
    results, grads = run(kernel, tensors, None, False)
    leaves = [None if t is None else strided(t).requires_grad_() for t in tensors]
    strided_results = kernel(*leaves, None, False)
    found = torch.autograd.grad(
        strided_results,
        [t for t in leaves if t is not None],
        [strided(grad) for grad in output_gradients(results)],
    )
    # torch may add in another order for other strides.
    assert_all_near(strided_results, results)
    assert_all_near(found, grads)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("path", ["stepwise", "resident", "cooperative"])
@pytest.mark.parametrize("shape", [(0, 0, 3, 6), (2, 0, 3, 6)], ids=["no_batch", "no_steps"])
def test_empty_input_gives_empty_output_and_zero_gradients(machine, kind, path, shape):
    case = Case(kind, *shape)
    machine.use(Setting(path, "H100"), case, torch.float32)
    tensors, _ = case.arguments(torch.float32)
    results, grads = run(kind.kernel, on(machine, tensors), None, False)
    assert results[0].shape == (0, 6)
    for state, before in zip(results[1:], tensors[1:], strict=False):
        assert torch.equal(state.cpu(), before)
    for grad in grads[1 + kind.num_states :]:
        assert not grad.any()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_states_need_not_lie_at_multiples_of_16_bytes(machine, kind):
    case = Case(kind, 3, 3, 2, 8)
    machine.use(COOPERATIVE, case, torch.float32)
    tensors, _ = case.arguments(torch.float32)
    x, h0, *others = on(machine, tensors)
    shifted = h0.new_empty(h0.numel() + 1)[1:].view(h0.shape).copy_(h0)
    assert shifted.data_ptr() % 16 != 0
    expected = kind.kernel(x, h0, *others, None)
    results = kind.kernel(x, shifted, *others, None)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
