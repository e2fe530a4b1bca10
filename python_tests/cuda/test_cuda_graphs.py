"""CUDA graphs of the stepwise path: replays do what launching every step does.

In the executor a graph is what it is on a GPU: launches and products with the addresses they were
captured with, none of which runs during the capture.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import warnings
from dataclasses import replace

import pytest
import torch
from helpers import GRU, KINDS, LSTM
from kernel_cases import Case, run
from machines import KNOWN
from test_state_changes import WITH_MEMORY, draw

from rotcell import _C, _libraries, cuda_graphs, ops, self_check

STEPS = 16  # of a graph
LENGTH = 2 * STEPS + 5
EVERYTHING = "rdhc"


@pytest.fixture
def graphs(executor, monkeypatch):
    """The executor as a device with graphs; nothing is checked by itself."""
    monkeypatch.setattr(_libraries, "_cuda", ctypes.CDLL(executor.module.__file__))
    monkeypatch.setattr(self_check, "_enabled", False)
    monkeypatch.setattr(self_check, "_results", [])
    monkeypatch.setattr(self_check, "_graphs_checked", {})
    callbacks = cuda_graphs._make_callbacks(
        lambda device: contextlib.nullcontext(), lambda index: torch.device("cpu")
    )
    monkeypatch.setattr(cuda_graphs, "_callbacks", callbacks)
    before = cuda_graphs.enabled()
    cuda_graphs.enable()
    executor.force_path("stepwise")
    yield executor
    executor.module.remove_faults()
    executor.module.refuse_graphs(False)
    executor.module.slow_graphs(0)
    executor.module.pretend_capture(False)
    cuda_graphs.enable(False)
    monkeypatch.undo()
    cuda_graphs.enable(before)


class Counted:
    """How the statistics grow."""

    def __init__(self):
        self.before = cuda_graphs.statistics()

    def __call__(self):
        now = cuda_graphs.statistics()
        return {name: now[name] - self.before[name] for name in ("captured", "sequences")}


def bits(results):
    return [t.detach().clone() for part in results for t in part]


def assert_same_bits(found, expected):
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def step_by_step(function):
    """What it gives without graphs."""
    cuda_graphs.enable(False)
    try:
        return bits(function())
    finally:
        cuda_graphs.enable()


def call(case, dtype=torch.float32, seed=0, letters=""):
    """A call with random values; `letters` name changes of the state."""
    tensors, batch_sizes = case.arguments(dtype, seed)
    if not letters:
        return lambda: run(case.kind.kernel, tensors, batch_sizes, *case.options)
    changes = draw(case, len(tensors[0]), letters, dtype)
    has_cells = case.kind in WITH_MEMORY
    return lambda: run(
        lambda *a: ops.sequence(case.kind.description, *case.kind._split(a), False, changes,
                                has_cells),
        tensors, batch_sizes, *case.options,
    )  # fmt: skip


@pytest.mark.parametrize("letters", ["", EVERYTHING], ids=["plain", "changes"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_replays_give_the_bits_of_single_steps(graphs, kind, reverse, letters):
    case = Case(kind, 3, LENGTH, 4, 7, reverse=reverse)
    # Other values and weights each time, at other addresses.
    calls = [call(case, seed=seed, letters=letters) for seed in range(4)]
    expected = [step_by_step(one) for one in calls]
    counted = Counted()
    for number, one in enumerate(calls):
        assert_same_bits(bits(one()), expected[number])
    assert counted() == {"captured": 2, "sequences": 4}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [LSTM, GRU], ids=str)
def test_other_types(graphs, kind, dtype):
    case = Case(kind, 2, LENGTH, 4, 6)
    one = call(case, dtype)
    expected = step_by_step(one)
    for _ in range(3):
        found = bits(one())
    assert_same_bits(found, expected)


@pytest.mark.parametrize("kind", [LSTM, GRU], ids=str)
def test_one_graph_serves_all_lengths_functions_and_gradients(graphs, kind):
    case = Case(kind, 3, STEPS, 4, 6)
    for _ in range(2):
        call(case)()
    counted = Counted()
    others = [
        replace(case, steps=STEPS + 1, reverse=True),
        replace(case, steps=3 * STEPS, gates="hard_sigmoid"),
        replace(case, steps=LENGTH, angle_gates="hard_sigmoid", bias=False),
    ]
    for other in others:
        assert_same_bits(bits(call(other)()), step_by_step(call(other)))
    call(case)()
    # Off and on again, so all graphs went with each comparison.
    assert counted()["captured"] == 0


def test_lengths_and_options_are_not_part_of_the_key(graphs):
    case = Case(LSTM, 3, STEPS, 4, 6)
    for _ in range(2):
        call(case)()
    counted = Counted()
    call(replace(case, steps=LENGTH, reverse=True, gates="hard_sigmoid"))()
    tensors, _ = case.arguments(torch.float32)
    with torch.no_grad():
        case.kind.kernel(*tensors, None)  # nothing is kept
    assert counted() == {"captured": 0, "sequences": 3}


def test_what_is_launched(graphs):
    case = Case(LSTM, 3, LENGTH, 4, 6)
    one = call(case)
    for _ in range(2):
        one()
    graphs.launches()
    one()
    rest = LENGTH % STEPS
    assert graphs.launches() == {
        "place_sequence": 4,
        "rot_lstm_stage0_forward_ahead": 2 * STEPS,
        "rot_lstm_stage0_forward": rest,
        "rot_lstm_stage0_backward_ahead": 2 * STEPS,
        "rot_lstm_stage0_backward": rest,
    }


def test_two_shapes_in_turns(graphs):
    calls = [call(Case(LSTM, batch, LENGTH, 4, 6), seed=batch) for batch in (2, 5)]
    expected = [step_by_step(one) for one in calls]
    for _ in range(4):
        for one, wanted in zip(calls, expected, strict=True):
            assert_same_bits(bits(one()), wanted)
    assert cuda_graphs.statistics()["graphs"] == 4


def test_threads_do_not_disturb_each_other(graphs):
    graphs.module.slow_graphs(20)
    case = Case(GRU, 3, LENGTH, 4, 6)
    calls = [call(case, seed=seed) for seed in range(3)]
    expected = [step_by_step(one) for one in calls]
    found = [[] for _ in calls]

    def work(number):
        found[number] += [bits(calls[number]()) for _ in range(6)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for results, wanted in zip(found, expected, strict=True):
        assert len(results) == 6
        for result in results:
            assert_same_bits(result, wanted)


def infer(batch, hidden=4, times=1, dtype=torch.float32):
    tensors, _ = Case(LSTM, batch, STEPS, 2, hidden).arguments(dtype)
    with torch.no_grad():
        for _ in range(times):
            LSTM.kernel(*tensors, None)


def test_the_number_of_graphs_is_bounded(graphs):
    most = 32
    for batch in range(1, most + 3):
        infer(batch, times=2)
    assert cuda_graphs.statistics()["graphs"] == most  # those used last stay
    counted = Counted()
    infer(1, times=256)
    assert counted() == {"captured": 0, "sequences": 256}
    infer(most + 1, times=2)  # now one of the others goes for it
    assert counted()["captured"] == 1
    assert cuda_graphs.statistics()["graphs"] == most


def test_the_memory_of_graphs_is_bounded(graphs):
    graphs.module.pose_as(KNOWN["H100"] | {"multiprocessors": 1000})  # takes large weights, too
    hidden, most = 1100, 128 << 20
    weights = LSTM.rows(hidden) * hidden * 8
    for batch in (1, 2, 3, 4):
        infer(batch, hidden, times=2, dtype=torch.float64)
    found = cuda_graphs.statistics()
    assert found["graphs"] == most // weights == 3
    assert weights * 3 < found["bytes"] <= most


@pytest.mark.parametrize(
    "case",
    [
        Case(LSTM, 3, STEPS - 1, 4, 6),
        Case(LSTM, 3, LENGTH, 4, 6, packed=True),
        Case(LSTM, 3, LENGTH, 4, 6, outputs=2),
    ],
    ids=["short", "packed", "projection"],
)
def test_what_takes_no_part(graphs, case):
    counted = Counted()
    for _ in range(3):
        call(case)()
    assert counted() == {"captured": 0, "sequences": 0}


def test_packed_input_of_one_length_takes_part(graphs):
    case = Case(LSTM, 3, LENGTH, 4, 6)
    tensors, _ = case.arguments(torch.float32)
    sizes = torch.full((LENGTH,), 3)
    expected = step_by_step(call(case))
    counted = Counted()
    for _ in range(3):
        found = run(LSTM.kernel, tensors, sizes)
    assert_same_bits(bits(found), expected)
    assert counted()["sequences"] == 2


def test_a_caller_that_captures_gets_single_steps(graphs):
    one = call(Case(LSTM, 3, LENGTH, 4, 6))
    one()
    graphs.module.pretend_capture(True)
    counted = Counted()
    for _ in range(3):
        one()
    assert counted() == {"captured": 0, "sequences": 0}


def test_settings_of_torch_count(graphs):
    one = call(Case(LSTM, 3, LENGTH, 4, 6))
    for _ in range(3):
        one()
    counted = Counted()
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_accumulation
    try:
        matmul.allow_fp16_accumulation = not before
        one()
        assert counted() == {"captured": 0, "sequences": 0}
        for _ in range(2):
            one()
        assert counted() == {"captured": 2, "sequences": 2}
    finally:
        matmul.allow_fp16_accumulation = before
    one()
    assert counted() == {"captured": 2, "sequences": 4}


def test_a_capture_that_fails_is_told_once(graphs):
    one = call(Case(LSTM, 3, LENGTH, 4, 6))
    expected = step_by_step(one)
    graphs.module.refuse_graphs(True)
    one()
    with pytest.warns(RuntimeWarning, match="graphs do not work here: .*a planted fault") as caught:
        assert_same_bits(bits(one()), expected)
    assert len(caught) == 1
    assert not cuda_graphs.enabled()
    graphs.module.refuse_graphs(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert_same_bits(bits(one()), expected)
    assert cuda_graphs.statistics()["graphs"] == 0


def test_a_pool_that_torch_refuses_is_told(graphs, monkeypatch):
    def refuse(device):
        raise RuntimeError("no such pool")

    callbacks = cuda_graphs._make_callbacks(refuse, lambda index: torch.device("cpu"))
    monkeypatch.setattr(cuda_graphs, "_callbacks", callbacks)
    cuda_graphs.enable()
    one = call(Case(LSTM, 3, LENGTH, 4, 6))
    one()
    with pytest.warns(RuntimeWarning, match="no such pool"):
        one()


def test_memory_allocated_during_a_capture_is_noticed(graphs):
    tensors, _ = Case(LSTM, 3, 2, 4, 6).arguments(torch.float32)
    with pytest.raises(RuntimeError, match="allocated while a graph is captured"):
        graphs.module.record(lambda: torch.ops.rotcell.rot_lstm(*tensors, None, False, 0, 0, False))


def test_turned_off_all_graphs_go(graphs):
    one = call(Case(LSTM, 3, LENGTH, 4, 6))
    for _ in range(2):
        one()
    assert cuda_graphs.statistics()["bytes"] > 0
    cuda_graphs.enable(False)
    counted = Counted()
    for _ in range(3):
        one()
    assert counted() == {"captured": 0, "sequences": 0}
    assert cuda_graphs.statistics()["graphs"] == cuda_graphs.statistics()["bytes"] == 0


@pytest.mark.parametrize(("text", "on"), [("0", False), ("1", True)])
def test_the_environment_decides(monkeypatch, text, on):
    before = cuda_graphs.enabled()
    monkeypatch.setenv("ROTCELL_CUDA_GRAPHS", text)
    try:
        cuda_graphs.set_up()
        assert cuda_graphs.enabled() is on
    finally:
        cuda_graphs.enable(before)
    monkeypatch.setenv("ROTCELL_CUDA_GRAPHS", "yes")
    with pytest.raises(ValueError, match="ROTCELL_CUDA_GRAPHS must be 0 or 1, got 'yes'"):
        cuda_graphs.set_up()


# The self-check


@pytest.mark.parametrize("kind", [LSTM, GRU], ids=str)
def test_right_graphs_pass_the_check(graphs, monkeypatch, kind):
    monkeypatch.setattr(self_check, "_enabled", True)
    counted = Counted()
    for _ in range(3):
        call(Case(kind, 3, LENGTH, 4, 6))()
    found = self_check.results()
    assert [(c["path"], c["pass_name"], c["outcome"]) for c in found] == [
        (self_check.GRAPH, name, "right") for name in ("forward", "backward")
    ]
    assert all(c["largest_error"] < c["tolerance"] / 2 for c in found)
    assert counted()["sequences"] >= 2 + 2  # those of the check really were by a graph


@pytest.mark.parametrize(
    ("kernel", "fault"),
    [
        ("place_sequence", "fails to launch"),
        ("rot_lstm_stage0_forward_ahead", "fails to launch"),
        ("rot_lstm_stage0_forward_ahead", "does nothing"),
        ("rot_lstm_stage0_backward_ahead", "does nothing"),
    ],
)
def test_a_wrong_graph_is_found_before_it_is_used(graphs, monkeypatch, kernel, fault):
    monkeypatch.setattr(self_check, "_enabled", True)
    one = call(Case(LSTM, 3, LENGTH, 4, 6))
    expected = step_by_step(one)
    graphs.module.plant_fault(kernel, fault)
    one()
    with pytest.warns(RuntimeWarning, match="stepwise graph path does not work here.*report"):
        assert_same_bits(bits(one()), expected)
    assert not cuda_graphs.enabled()
    for _ in range(3):
        assert_same_bits(bits(one()), expected)


# The plan


@pytest.mark.parametrize(
    ("gpu", "dtype", "batch", "hidden", "pays"),
    [
        ("H100", "float32", 64, 512, True),
        ("RTX 4090", "float32", 64, 512, True),
        ("A100", "float32", 64, 512, False),  # its products take longer than launching them
        ("T4", "float32", 64, 512, False),
        ("T4", "float32", 64, 256, False),
        ("T4", "float32", 32, 112, True),
        ("H100", "float32", 1, 4096, False),  # so does bringing the weights
        ("T4", "float16", 64, 512, True),
    ],
)
def test_the_plan_says_where_a_graph_pays(gpu, dtype, batch, hidden, pays):
    for pass_name in _libraries.CUDA_PASSES:
        arguments = ("rot_lstm", pass_name, hidden, batch, 100, dtype, KNOWN[gpu])
        assert _C.cuda_plan(*arguments, path="stepwise")["graph_steps"] == (STEPS if pays else 0)


def test_the_plan_has_no_graph_for_short_or_projected_sequences():
    short = _C.cuda_plan("lstm", "forward", 512, 64, STEPS - 1, "float32", "H100", path="stepwise")
    projected = _C.cuda_plan("lstm", "forward", 512, 64, 100, "float32", "H100", projection=True)
    resident = _C.cuda_plan("lstm", "forward", 50, 32, 100, "float32", "H100")
    assert [plan["graph_steps"] for plan in (short, projected, resident)] == [0, 0, 0]
