"""The compiled ops against the reference. test_instruction_sets.py runs this file on each set."""

import os

import pytest
import torch
from helpers import GRU, KINDS, LSTM, TOLERANCE, assert_all_near
from kernel_cases import Case, run, variants

from rotcell import ops, reference

# Around the lanes and tiles of every instruction set: 4 to 16 lanes, pairs of them, 6 rows.
SMALL = [(1, 1, 1, 1), (1, 4, 3, 2), (2, 3, 2, 3), (7, 5, 4, 16), (13, 4, 17, 33), (5, 6, 11, 50)]
LARGER = [(9, 3, 8, 64), (6, 3, 65, 129), (19, 7, 5, 31)]
# The shapes for which the accuracy of float32 is promised.
PROMISED = [(32, 68, 100, 50), (32, 100, 128, 128), (64, 50, 512, 512), (1, 200, 50, 50)]

FUNCTIONS = {LSTM: (ops.rot_lstm, reference.rot_lstm), GRU: (ops.rot_gru, reference.rot_gru)}
CASES = [case for kind in KINDS for case in variants(kind, SMALL + LARGER)]


def check_against_reference(case: Case, dtype: torch.dtype) -> None:
    kernel, expected = FUNCTIONS[case.kind]
    tensors, batch_sizes = case.arguments(dtype)
    results, grads = run(kernel, tensors, batch_sizes, case.reverse)
    in_double = [None if t is None else t.double() for t in tensors]
    true_results, true_grads = run(expected, in_double, batch_sizes, case.reverse)
    assert_all_near(results, true_results, tolerance=TOLERANCE[dtype])
    assert_all_near(grads, true_grads, tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_and_gradients_match_the_reference(case, dtype):
    check_against_reference(case, dtype)


@pytest.mark.parametrize("shape", PROMISED, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_float32_keeps_its_promised_accuracy(kind, shape):
    check_against_reference(Case(kind, *shape), torch.float32)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sizes", [(5, 300, 6, 100), (9, 80, 310, 300)], ids=["long", "large"])
def test_products_with_x_may_be_made_piece_by_piece(kind, sizes, packed, reverse):
    # A small batch, or weights larger than the cache, and more tokens than one piece has.
    check_against_reference(Case(kind, *sizes, packed=packed, reverse=reverse), torch.float64)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("batch", [5, 9])
def test_inference_agrees_with_training(kind, batch, packed, reverse):
    # Long enough that inference of the small batch works in several pieces.
    case = Case(kind, batch, 1000, 6, 40, packed=packed, reverse=reverse)
    tensors, batch_sizes = case.arguments(torch.float32)
    kernel, _ = FUNCTIONS[kind]
    inference = kernel(*tensors, batch_sizes, reverse)
    training, _ = run(kernel, tensors, batch_sizes, reverse)
    assert_all_near(inference, training, tolerance=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_inference_saves_nothing(kind):
    tensors, _ = Case(kind, 3, 4, 5, 6).arguments()
    op = getattr(torch.ops.rotcell, f"rot_{kind}")
    saved = op(*tensors, None, False, False)[1 + kind.num_states :]
    assert [s.numel() for s in saved] == [0] * len(saved)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_training_saves_gates_and_memory_only(kind):
    case = Case(kind, 3, 4, 5, 6)
    tensors, _ = case.arguments()
    op = getattr(torch.ops.rotcell, f"rot_{kind}")
    saved = op(*tensors, None, False, True)[1 + kind.num_states :]
    shapes = [(12, kind.rows(6))] + ([(12, 6)] if kind is LSTM else [])
    assert [tuple(s.shape) for s in saved] == shapes


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nan_and_inf_pass_through_as_in_the_reference(kind, value):
    case = Case(kind, 3, 4, 5, 6)
    kernel, expected = FUNCTIONS[kind]
    clean, _ = case.arguments()
    for place in range(len(clean)):
        tensors, _ = case.arguments()
        if tensors[place] is None:
            continue
        tensors[place].view(-1)[1] = value
        # At a full turn the kernel has sin = 0, the reference sin(2 pi rounded), a tiny number, and
        # infinity times them differs. So whatever is infinite turns the angles to 0, not 2 pi.
        for weight in tensors[1 + kind.num_states : 3 + kind.num_states]:
            angles = weight[(len(kind.gates) - 1) * case.hidden :]
            angles.copy_(-angles.abs() if value > 0 else angles.abs())
        results, grads = run(kernel, tensors, None, False)
        true_results, true_grads = run(expected, tensors, None, False)
        for a, b in zip(results + grads, true_results + true_grads, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_activations_saturate_without_nan(kind):
    case = Case(kind, 4, 3, 5, 7)
    tensors, _ = case.arguments(torch.float32)
    tensors[0] *= 1e4
    kernel, expected = FUNCTIONS[kind]
    results, grads = run(kernel, tensors, None, False)
    true_results, _ = run(
        expected, [None if t is None else t.double() for t in tensors], None, False
    )
    # An angle that float32 cannot tell from a full turn is off by up to 2 pi 2^-24 per step.
    assert_all_near(results, true_results, tolerance=1e-5)
    assert all(torch.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("save", [False, True])
def test_ops_pass_opcheck(kind, packed, save):
    case = Case(kind, 3, 4, 5, 6, packed=packed, outputs=2 if kind is LSTM and packed else 0)
    tensors, batch_sizes = case.arguments()
    op = getattr(torch.ops.rotcell, f"rot_{kind}").default
    torch.library.opcheck(op, (*tensors, batch_sizes, False, save))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("wanted", [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("projected", [False, True])
def test_backward_ops_pass_opcheck(kind, wanted, projected):
    if projected and kind is GRU:
        pytest.skip("only the LSTM has projections")
    tensors, _ = Case(kind, 3, 4, 5, 6, outputs=2 if projected else 0).arguments()
    forward = getattr(torch.ops.rotcell, f"rot_{kind}")
    out, *rest = forward(*tensors, None, False, True)
    states, saved = rest[: kind.num_states], rest[kind.num_states :]
    grads = [torch.randn_like(out), None, *(torch.randn_like(s) for s in states[1:])]
    inputs = tensors[: 3 + kind.num_states]
    if kind is LSTM:
        inputs.append(tensors[-1])
    backward = getattr(torch.ops.rotcell, f"rot_{kind}_backward").default
    torch.library.opcheck(backward, (*grads, *inputs, None, False, out, *saved, *wanted))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_backward_twice_gives_the_same_bits(kind):
    tensors, batch_sizes = Case(kind, 7, 9, 5, 21, packed=True).arguments(torch.float32)
    leaves = [None if t is None else t.requires_grad_() for t in tensors]
    targets = [t for t in leaves if t is not None]
    out = FUNCTIONS[kind][0](*leaves, batch_sizes)[0]
    first = torch.autograd.grad(out.sum(), targets, retain_graph=True, allow_unused=True)
    second = torch.autograd.grad(out.sum(), targets, allow_unused=True)
    for a, b in zip(first, second, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


BAD_SEQUENCES = {
    "x has 3 dimensions": ({"x": torch.zeros(2, 3, 5)}, "x with 2 dimensions"),
    "x does not fill its steps": ({"x": torch.zeros(7, 5)}, "x with a multiple of 3 rows"),
    "h0 too wide": ({"h0": torch.zeros(3, 7)}, "expected h0 of shape"),
    "w_ih too short": ({"w_ih": torch.zeros(3, 5)}, "expected w_ih of shape"),
    "w_hh too short": ({"w_hh": torch.zeros(3, 6)}, "expected w_hh of shape"),
    "b_ih too short": ({"b_ih": torch.zeros(3)}, "expected b_ih of shape"),
    "w_hh of another type": ({"w_hh": torch.zeros(27, 6).double()}, "expected w_hh of type"),
    "integers": ({"x": torch.zeros(6, 5, dtype=torch.long)}, "expected x of type float32"),
    "growing batch_sizes": (
        {"batch_sizes": torch.tensor([1, 2, 3])},
        "batch_sizes to be positive and never increasing",
    ),
    "zero in batch_sizes": (
        {"batch_sizes": torch.tensor([3, 3, 0])},
        "batch_sizes to be positive and never increasing",
    ),
    "batch_sizes of another sum": ({"batch_sizes": torch.tensor([3, 1])}, "sum of batch_sizes"),
    "batch_sizes of another batch": (
        {"batch_sizes": torch.tensor([2, 2, 2])},
        "expected h0 with 2 rows",
    ),
    "float batch_sizes": ({"batch_sizes": torch.tensor([3.0, 3.0])}, "int64 tensor"),
}


@pytest.mark.parametrize("name", BAD_SEQUENCES)
def test_ops_refuse_arguments_that_do_not_fit(name):
    change, message = BAD_SEQUENCES[name]
    tensors, _ = Case(LSTM, 3, 2, 5, 6).arguments(torch.float32)
    names = ["x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "w_hr"]
    arguments = dict(zip(names, tensors, strict=True), batch_sizes=None, reverse=False, save=False)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.rotcell.rot_lstm(**{**arguments, **change})


def test_the_same_tensor_may_come_in_twice():
    tensors, _ = Case(LSTM, 3, 4, 5, 6).arguments()
    state = tensors[1].requires_grad_()

    def total(function):
        out, _, c_n = function(tensors[0], state, state, *tensors[3:])
        return out.sum() + c_n.pow(2).sum()

    (actual,) = torch.autograd.grad(total(ops.rot_lstm), state)
    (expected,) = torch.autograd.grad(total(reference.rot_lstm), state)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    (grad,) = torch.autograd.grad(total(ops.rot_lstm), state, create_graph=True)
    torch.testing.assert_close(grad, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_more_than_two_billion_elements_do_not_overflow(kind):
    tokens, inputs = 2**26 + 1, 2**5
    needed = 8 * 2**30
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if available < needed:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of free memory")
    few, _ = Case(kind, 1, 2, inputs, 1).arguments(torch.bfloat16)
    x = torch.zeros(tokens, inputs, dtype=torch.bfloat16)
    x[-1] = few[0][-1]
    states = [s.expand(tokens, 1) for s in few[1 : 1 + kind.num_states]]
    op = FUNCTIONS[kind][0]
    out, *_ = op(x, *states, *few[1 + kind.num_states :])
    alone, *_ = op(x[-1:], *few[1:])
    assert torch.equal(out[-1:], alone)
