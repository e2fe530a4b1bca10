"""The compiled ops against the reference. test_instruction_sets.py runs this file on each set."""

import itertools
import os

import pytest
import torch
from helpers import GROUPED, KINDS, LSTM, TOLERANCE, TORCH_GRU, Kind, assert_all_near
from kernel_cases import Case, run, variants

from rotcell.reference import GATE_FUNCTIONS

# Around the lanes and tiles of every instruction set: 4 to 16 lanes, pairs of them, 6 rows.
SMALL = [(1, 1, 1, 1), (1, 4, 3, 2), (2, 3, 2, 3), (7, 5, 4, 16), (13, 4, 17, 33), (5, 6, 11, 50)]
LARGER = [(9, 3, 8, 64), (6, 3, 65, 129), (19, 7, 5, 31)]
# Few tokens, for which weights are not packed: a row, a few and many, deeper than what is taken of
# the weights at once.
FEW = [(1, 20, 200, 260), (5, 6, 200, 260), (16, 2, 140, 150)]
# The shapes for which the accuracy of float32 is promised.
PROMISED = [(32, 68, 100, 50), (32, 100, 128, 128), (64, 50, 512, 512), (1, 200, 50, 50)]

FUNCTIONS = {kind: (kind.kernel, kind.reference) for kind in KINDS}
#: The ops' arguments reverse, gate_activation and angle_activation, as most tests have them.
SIGMOIDS = (False, 0, 0)
CASES = [case for kind in KINDS for case in variants(kind, SMALL + LARGER + FEW)]
# Around the vectors of groups: 3 to 8 units in each of 2 to 16 lanes.
GROUPED_SIZES = [*SMALL[2:], (3, 2, 3, 6), (9, 3, 8, 64), (6, 3, 65, 131)]
CASES += [case for kind in GROUPED for case in variants(kind, [*GROUPED_SIZES, FEW[-1]])]


def check_against_reference(case: Case, dtype: torch.dtype) -> None:
    kernel, expected = case.kind.kernel, case.kind.reference
    tensors, batch_sizes = case.arguments(dtype)
    results, grads = run(kernel, tensors, batch_sizes, *case.options)
    in_double = [None if t is None else t.double() for t in tensors]
    true_results, true_grads = run(expected, in_double, batch_sizes, *case.options)
    assert_all_near(results, true_results, tolerance=TOLERANCE[dtype])
    assert_all_near(grads, true_grads, tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_and_gradients_match_the_reference(case, dtype):
    check_against_reference(case, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("functions", list(itertools.product(GATE_FUNCTIONS, repeat=2)), ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_gate_activations_match_the_reference(kind, functions, dtype):
    case = Case(
        kind,
        13,
        4,
        17,
        33,
        packed=True,
        gate_activation=functions[0],
        angle_activation=functions[1],
    )
    check_against_reference(case, dtype)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_hard_gates_have_no_slope_beyond_their_ends(kind):
    case = Case(kind, 4, 3, 5, 7, gate_activation="hard_sigmoid", angle_activation="hard_sigmoid")
    tensors, _ = case.arguments(torch.float64)
    tensors[0] *= 1e4
    results, grads = run(kind.kernel, tensors, None, *case.options)
    true_results, true_grads = run(kind.reference, tensors, None, *case.options)
    assert_all_near(results, true_results, tolerance=TOLERANCE[torch.float64])
    # All gradients may be tiny: 1 - tanh^2 of saturated candidates, as exact as the 1 is.
    assert_all_near(grads, true_grads, tolerance=TOLERANCE[torch.float64], least_scale=1e-3)


@pytest.mark.parametrize("shape", PROMISED, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_float32_keeps_its_promised_accuracy(kind, shape):
    check_against_reference(Case(kind, *shape), torch.float32)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sizes", [(5, 300, 6, 100), (9, 80, 310, 300)], ids=["long", "large"])
def test_input_matmul_may_be_made_chunk_by_chunk(kind, sizes, packed, reverse):
    # A small batch, or weights larger than the cache, and more tokens than one piece has.
    check_against_reference(Case(kind, *sizes, packed=packed, reverse=reverse), torch.float64)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_weight_gradients_may_be_cut_within_a_step(kind, packed, reverse):
    # A step has more tokens than are added to the gradients at once.
    check_against_reference(
        Case(kind, 1100, 3, 4, 6, packed=packed, reverse=reverse), torch.float64
    )


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("batch", [5, 9])
def test_inference_agrees_with_training(kind, batch, packed, reverse):
    # Long enough that inference of the small batch works in several pieces.
    case = Case(kind, batch, 1000, 6, 40, packed=packed, reverse=reverse)
    tensors, batch_sizes = case.arguments(torch.float32)
    inference = kind.kernel(*tensors, batch_sizes, reverse)
    training, _ = run(kind.kernel, tensors, batch_sizes, reverse)
    assert_all_near(inference, training, tolerance=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_inference_saves_nothing(kind):
    tensors, _ = Case(kind, 3, 4, 5, 6).arguments()
    saved = kind.op(*tensors, None, *SIGMOIDS, False)[1 + kind.num_states :]
    assert [s.numel() for s in saved] == [0] * len(saved)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_training_saves_gates_and_cell_states_only(kind):
    case = Case(kind, 3, 4, 5, 6)
    tensors, _ = case.arguments()
    saved = kind.op(*tensors, None, *SIGMOIDS, True)[1 + kind.num_states :]
    # Both halves of torch's GRU candidate are saved.
    columns = 4 * 6 if kind is TORCH_GRU else kind.rows(6)
    shapes = [(12, columns), *[(12, 6)] * (kind.num_states - 1)]
    assert [tuple(s.shape) for s in saved] == shapes


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nan_and_inf_pass_through_as_in_the_reference(kind, value):
    case = Case(kind, 3, 4, 5, 6)
    kernel, expected = kind.kernel, kind.reference
    clean, _ = case.arguments()
    for place in range(len(clean)):
        tensors, _ = case.arguments()
        if tensors[place] is None:
            continue
        tensors[place].view(-1)[1] = value
        # At a full turn the kernel has sin = 0, the reference sin(2 pi rounded), a tiny number, and
        # infinity times them differs. So whatever is infinite turns the angles to 0, not 2 pi.
        for weight in tensors[1 + kind.num_states : 3 + kind.num_states]:
            angles = weight[kind.angle_rows(case.hidden)]
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
    kernel, expected = kind.kernel, kind.reference
    results, grads = run(kernel, tensors, None, False)
    true_results, _ = run(
        expected, [None if t is None else t.double() for t in tensors], None, False
    )
    # An angle that rounds to a full turn in float32 is off by up to 2 pi 2^-24 per step.
    assert_all_near(results, true_results, tolerance=1e-5)
    assert all(torch.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("save", [False, True])
def test_ops_pass_opcheck(kind, packed, save):
    outputs = 2 if kind.description.can_project and packed else 0
    tensors, batch_sizes = Case(kind, 3, 4, 5, 6, packed=packed, outputs=outputs).arguments()
    tensors = [None if t is None else t.requires_grad_() for t in tensors]
    torch.library.opcheck(kind.op.default, (*tensors, batch_sizes, False, 0, 1, save))


@pytest.mark.parametrize("needed", [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize(
    ("kind", "projected"),
    [(k, p) for k in KINDS for p in (False, True) if k.description.can_project or not p],
    ids=str,
)
def test_backward_ops_pass_opcheck(kind, projected, needed):
    arguments = backward_arguments(kind, 2 if projected else 0)
    torch.library.opcheck(kind.backward_op.default, (*arguments, *needed))


def backward_arguments(kind: Kind, outputs: int = 0) -> list:
    """The arguments of a backward op, but for which gradients are needed."""
    tensors, _ = Case(kind, 3, 4, 5, 6, outputs=outputs).arguments()
    out, *rest = kind.op(*tensors, None, *SIGMOIDS, True)
    states, saved = rest[: kind.num_states], rest[kind.num_states :]
    grads = [torch.randn_like(out), None, *(torch.randn_like(s) for s in states[1:])]
    first_bias = 3 + kind.num_states
    inputs = tensors[:first_bias] + tensors[first_bias + 2 :]
    return [*grads, *inputs, None, *SIGMOIDS, out, *saved]


@pytest.mark.parametrize("save", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_op_itself_is_differentiable(kind, packed, save):
    tensors, batch_sizes = Case(kind, 3, 4, 5, 6, packed=packed).arguments()

    def op(*arguments):
        return kind.op(*arguments, 0, 0, save)[: 1 + kind.num_states]

    results, grads = run(op, tensors, batch_sizes, False)
    true_results, true_grads = run(kind.reference, tensors, batch_sizes, False)
    assert_all_near(results, true_results, tolerance=1e-12)
    assert_all_near(grads, true_grads, tolerance=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_the_op_saves_is_not_differentiable(kind):
    tensors, _ = Case(kind, 3, 4, 5, 6).arguments()
    results = kind.op(tensors[0].requires_grad_(), *tensors[1:], None, *SIGMOIDS, True)
    differentiable = [r.requires_grad for r in results]
    num_results = 1 + kind.num_states
    assert differentiable == [True] * num_results + [False] * (len(results) - num_results)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_op_itself_can_be_differentiated_twice(kind):
    tensors, _ = Case(kind, 2, 2, 2, 3).arguments()
    x = tensors[0].requires_grad_()

    def op(x):
        return kind.op(x, *tensors[1:], None, *SIGMOIDS, True)[0]

    assert torch.autograd.gradgradcheck(op, (x,))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_backward_ops_refuse_to_be_differentiated(kind):
    arguments = backward_arguments(kind)
    arguments[0].requires_grad_()
    grad_x, *_ = kind.backward_op(*arguments, True, True)
    with pytest.raises(RuntimeError, match="is not differentiable"):
        grad_x.sum().backward()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_backward_twice_gives_the_same_bits(kind):
    tensors, batch_sizes = Case(kind, 7, 9, 5, 21, packed=True).arguments(torch.float32)
    leaves = [None if t is None else t.requires_grad_() for t in tensors]
    targets = [t for t in leaves if t is not None]
    out = kind.kernel(*leaves, batch_sizes)[0]
    first = torch.autograd.grad(out.sum(), targets, retain_graph=True, allow_unused=True)
    second = torch.autograd.grad(out.sum(), targets, allow_unused=True)
    for a, b in zip(first, second, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_tensors_as_nn_lstm_has_them_give_the_same_bits(kind, packed):
    """Tokens [T, B, .] and states [1, B, .] of one layer and direction; results in that layout."""
    tensors, batch_sizes = Case(kind, 5, 4, 3, 6, packed=packed).arguments(torch.float32)
    x, *rest = tensors
    first_weight = kind.num_states
    laid_out = [x if packed else x.unflatten(0, (4, 5))]
    laid_out += [state[None] for state in rest[:first_weight]] + rest[first_weight:]
    expected, expected_grads = run(kind.kernel, tensors, batch_sizes)
    results, grads = run(kind.kernel, laid_out, batch_sizes)
    with torch.no_grad():
        inferred = kind.kernel(*laid_out, batch_sizes)
    out, *last = results
    assert out.shape[:-1] == laid_out[0].shape[:-1]
    assert all(state.shape[:2] == (1, 5) for state in last)
    given = [t.shape for t in laid_out if t is not None]
    assert [grad.shape for grad in grads] == given
    for found in (*results, *inferred):
        assert not found._is_view()  # users call detach_()
    for found, true in zip(
        [*results, *inferred, *grads], [*expected, *expected, *expected_grads], strict=True
    ):
        assert torch.equal(found.view_as(true), true)


BAD_SEQUENCES = {
    "x has 4 dimensions": ({"x": torch.zeros(2, 3, 1, 5)}, "x with 2 or 3 dimensions"),
    "rows of x": ({"x": torch.zeros(3, 2, 5)}, "h0 with 2 rows, as x, got 3"),
    "two layers of h0": ({"h0": torch.zeros(2, 3, 6)}, "h0 of one layer, got 2"),
    "packed x has 3 dimensions": (
        {"x": torch.zeros(2, 3, 5), "batch_sizes": torch.tensor([3, 3])},
        "x with 2 dimensions, because batch_sizes is given",
    ),
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
    "batch_sizes of another sum": ({"batch_sizes": torch.tensor([3, 1])}, "sum to 4, but x has 6"),
    "batch_sizes of more rows": ({"batch_sizes": torch.tensor([3, 3, 3])}, "more than the 6 rows"),
    "batch_sizes of more steps": ({"batch_sizes": torch.tensor([1]).expand(2**31)}, "at most 6 "),
    "batch_sizes of another batch": (
        {"batch_sizes": torch.tensor([2, 2, 2])},
        "expected h0 with 2 rows",
    ),
    "unknown gate function": ({"gate_activation": 2}, "gate_activation"),
    "unknown angle function": ({"angle_activation": -1}, "angle_activation"),
    "float batch_sizes": ({"batch_sizes": torch.tensor([3.0, 3.0])}, "int64 tensor"),
}


@pytest.mark.parametrize("name", BAD_SEQUENCES)
def test_ops_refuse_arguments_that_do_not_fit(name):
    change, message = BAD_SEQUENCES[name]
    tensors, _ = Case(LSTM, 3, 2, 5, 6).arguments(torch.float32)
    names = ["x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "w_hr"]
    arguments = dict(zip(names, tensors, strict=True), batch_sizes=None, reverse=False)
    arguments |= {"gate_activation": 0, "angle_activation": 0, "save": False}
    with pytest.raises(RuntimeError, match=message):
        LSTM.op(**(arguments | change))


def test_the_same_tensor_may_come_in_twice():
    tensors, _ = Case(LSTM, 3, 4, 5, 6).arguments()
    state = tensors[1].requires_grad_()

    def total(function):
        out, _, c_n = function(tensors[0], state, state, *tensors[3:])
        return out.sum() + c_n.pow(2).sum()

    (actual,) = torch.autograd.grad(total(LSTM.kernel), state)
    (expected,) = torch.autograd.grad(total(LSTM.reference), state)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    (grad,) = torch.autograd.grad(total(LSTM.kernel), state, create_graph=True)
    torch.testing.assert_close(grad, expected, rtol=1e-12, atol=1e-12)


def test_more_than_two_billion_elements_do_not_overflow():
    kind = LSTM  # the input matmul is the same code for all
    tokens, inputs = 2**20 + 1, 2**11
    needed = 8 * 2**30
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if available < needed:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of free memory")
    few, _ = Case(kind, 1, 2, inputs, 1).arguments(torch.bfloat16)
    x = torch.zeros(tokens, inputs, dtype=torch.bfloat16)
    x[-1] = few[0][-1]
    states = [s.expand(tokens, 1) for s in few[1 : 1 + kind.num_states]]
    out, *_ = kind.kernel(x, *states, *few[1 + kind.num_states :])
    alone, *_ = kind.kernel(x[-1:], *few[1:])
    assert torch.equal(out[-1:], alone)
