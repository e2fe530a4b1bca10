"""The same bits every time, in whatever order threads run."""

import pytest
import torch
from helpers import KINDS
from kernel_cases import Case, run
from machines import CLUSTER, COOPERATIVE_PLAIN, SETTINGS, STEPWISE, on

DTYPES = [torch.float32, torch.bfloat16]
PROJECTING = [kind for kind in KINDS if kind.description.can_project]


def results_and_gradients(machine, setting, case, dtype):
    machine.use(setting, case, dtype)
    tensors, batch_sizes = case.arguments(dtype)
    results, grads = run(case.kind.kernel, on(machine, tensors), batch_sizes, *case.options)
    return results + grads


def assert_same_bits(first, second):
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_two_runs_give_the_same_bits(machine, kind, setting, dtype):
    case = Case(kind, 7, 5, 3, 22, packed=True)
    assert_same_bits(
        results_and_gradients(machine, setting, case, dtype),
        results_and_gradients(machine, setting, case, dtype),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_two_backward_passes_give_the_same_bits(machine, kind, setting, dtype):
    case = Case(kind, 7, 5, 3, 22, packed=True)
    machine.use(setting, case, dtype)
    tensors, batch_sizes = case.arguments(dtype)
    leaves = [None if t is None else t.requires_grad_() for t in on(machine, tensors)]
    targets = [t for t in leaves if t is not None]
    results = kind.kernel(*leaves, batch_sizes, False)
    ones = [torch.ones_like(r) for r in results]
    first = torch.autograd.grad(results, targets, ones, retain_graph=True)
    assert_same_bits(first, torch.autograd.grad(results, targets, ones))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("setting", [*SETTINGS, COOPERATIVE_PLAIN], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_of_threads_does_not_matter(emulator, kind, setting, dtype, reverse):
    check_orders(emulator, setting, Case(kind, 6, 3, 3, 21, packed=True, reverse=reverse), dtype)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_of_threads_does_not_matter_in_clusters(emulator, kind, reverse):
    case = Case(kind, 18, 3, 3, 41, packed=True, reverse=reverse)
    check_orders(emulator, CLUSTER, case, torch.bfloat16)


def check_orders(emulator, setting, case, dtype):
    expected = results_and_gradients(emulator, setting, case, dtype)
    for order, seed in [("reverse", 0), ("random", 1), ("random", 2)]:
        emulator.module.set_order(order, seed)
        assert_same_bits(results_and_gradients(emulator, setting, case, dtype), expected)


# In the emulator, memory that an op asks for is NaN until it is written.


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("setting", [*SETTINGS, COOPERATIVE_PLAIN], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_memory_is_read_before_it_is_written(emulator, kind, setting, dtype):
    for hidden in (9, 20):
        case = Case(kind, 6, 3, 3, hidden, packed=True)
        found = results_and_gradients(emulator, setting, case, dtype)
        assert not any(t.isnan().any() for t in found)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", PROJECTING, ids=str)
def test_a_projection_reads_no_memory_before_it_is_written(emulator, kind, dtype):
    case = Case(kind, 6, 3, 3, 9, outputs=4, packed=True)
    found = results_and_gradients(emulator, STEPWISE, case, dtype)
    assert not any(t.isnan().any() for t in found)
