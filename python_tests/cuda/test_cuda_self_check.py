"""The self-check: paths are compared with the reference before they are used, and faults are found.

In the executor, with faults planted into its launches. On a GPU nothing may be found.
"""

from __future__ import annotations

import ctypes
import threading
import warnings

import pytest
import torch
from helpers import GRU, KINDS, LSTM, assert_all_near
from kernel_cases import Case, run
from machines import KNOWN, POSES
from test_state_changes import draw

import rotcell
from rotcell import _C, _libraries, ops, self_check
from rotcell.reference import UNCHANGED, StateChanges

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
#: Hidden sizes that go to each path on the device of `pose`.
SMALL = {"resident": 20, "cooperative": 72, "stepwise": 9, "cluster": 200}
#: Those for every number type.
ANY_TYPE = ["stepwise", "resident", "cooperative"]


def tight_device() -> dict[str, int]:
    """Eight multiprocessors with as little memory as the cooperative path needs."""
    for kilobytes in range(16, 100, 4):
        device = KNOWN["H100"] | {"shared_bytes_per_block": 1024 * kilobytes, "multiprocessors": 8}
        plans = [
            _C.cuda_plan(kind.name, pass_name, SMALL["cooperative"], 3, 4, "float32", device)
            for kind in (LSTM, GRU)
            for pass_name in _libraries.CUDA_PASSES
        ]
        if {plan["path"] for plan in plans} == {"cooperative"}:
            return device
    raise AssertionError("small sizes go to the cooperative path on no device")


@pytest.fixture
def checked(executor, monkeypatch):
    """The executor as a device whose paths are checked."""
    monkeypatch.setattr(_libraries, "_cuda", ctypes.CDLL(executor.module.__file__))
    monkeypatch.setattr(self_check, "_results", [])
    monkeypatch.setattr(ops, "_given_up", set())
    monkeypatch.setattr(ops, "_partly_given_up", set())
    callback = self_check._make_callback(lambda index: torch.device("cpu"))
    _libraries.forget_cuda_checks()
    _libraries.set_cuda_check(callback)
    yield executor
    executor.module.remove_faults()
    executor.module.pretend_capture(False)
    _libraries.set_cuda_check(None)
    _libraries.forget_cuda_checks()
    for path in _libraries.CUDA_PATHS:
        _libraries.allow_cuda_path(path, True)


def outcomes():
    return [(c["path"], c["pass_name"], c["outcome"]) for c in self_check.results()]


def small_case(path, kind=LSTM):
    """A case that the plan sends to this path on the device that `pose` makes of the executor."""
    return Case(kind, 3, 4, 5, SMALL[path])


def pose(executor, path):
    """A device on which small sizes go to this path."""
    devices = {
        "stepwise": KNOWN["H100"] | {"shared_bytes_per_block": 16, "cooperative_launch": False},
        "resident": KNOWN["H100"],
        "cooperative": tight_device(),
        "cluster": KNOWN["H100"],
    }
    executor.module.pose_as(devices[path])


def run_checked(executor, path, kind=LSTM, dtype=torch.float32):
    pose(executor, path)
    tensors, _ = small_case(path, kind).arguments(dtype)
    return tensors, run(kind.kernel, tensors, None)


def assert_right(kind, tensors, found):
    expected = run(kind.reference, [None if t is None else t.double() for t in tensors], None)
    assert_all_near(found[0] + found[1], expected[0] + expected[1], tolerance=1e-5)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("path", _libraries.CUDA_PATHS)
@pytest.mark.parametrize("kind", [LSTM, GRU], ids=str)
def test_right_paths_pass_by_a_margin(executor, monkeypatch, kind, path, dtype):
    if path == "cluster" and dtype.itemsize > 2:
        return
    executor.module.pose_as(POSES["small"])
    monkeypatch.setattr(_libraries, "_cuda", ctypes.CDLL(executor.module.__file__))
    for pass_name in ("forward", "backward"):
        found = self_check.check_path(
            torch.device("cpu"), path, kind.description, pass_name, dtype, 13, 5
        )
        assert found.outcome == "right", found
        assert found.largest_error < found.tolerance / 2, found


@pytest.mark.parametrize("path", ANY_TYPE)
def test_each_path_is_checked_once_for_each_pass(checked, path):
    tensors, found = run_checked(checked, path)
    assert outcomes() == [(path, "forward", "right"), (path, "backward", "right")]
    assert_right(LSTM, tensors, found)
    checked.launches()
    run(LSTM.kernel, tensors, None)
    later = checked.launches()
    assert len(self_check.results()) == 2
    # Nothing but the call itself, the second time.
    assert sum(later.values()) == (2 * small_case(path).steps if path == "stepwise" else 2)


def test_a_first_call_costs_two_short_sequences_more(checked):
    pose(checked, "resident")
    tensors, _ = small_case("resident").arguments(torch.float32)
    checked.launches()
    with torch.no_grad():
        LSTM.kernel(*tensors, None)
    assert checked.launches() == {"rot_lstm_resident_forward": 3}


@pytest.mark.parametrize("fault", ["does nothing", "fails to launch"])
@pytest.mark.parametrize("pass_name", ["forward", "backward"])
@pytest.mark.parametrize("path", ["resident", "cooperative"])
@pytest.mark.parametrize("kind", [LSTM, GRU], ids=str)
def test_a_faulty_path_is_switched_off_and_stepwise_takes_over(
    checked, kind, path, pass_name, fault
):
    checked.module.plant_fault(f"{kind}_{path}_{pass_name}", fault)
    with pytest.warns(RuntimeWarning, match=f"{path} path does not work here") as caught:
        tensors, found = run_checked(checked, path, kind)
    (text,) = [str(w.message) for w in caught]
    for part in (f"{kind} {pass_name}", "float32", "report", "driver", str(torch.__version__)):
        assert part in text
    reason = "wrong by nan" if fault == "does nothing" else "failed to launch: a planted fault"
    assert reason in text
    assert_right(kind, tensors, found)
    wrong = "wrong" if fault == "does nothing" else "failed"
    assert (path, pass_name, wrong) in outcomes()
    assert ("stepwise", pass_name, "right") in outcomes()
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        assert_right(kind, tensors, run(kind.kernel, tensors, None))


@pytest.mark.parametrize("pass_name", ["forward", "backward"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_reference_takes_over_where_stepwise_fails(checked, kind, pass_name):
    checked.module.plant_fault(f"{kind}_resident_{pass_name}", "does nothing")
    for stage in (0, 1):
        checked.module.plant_fault(f"{kind}_stage{stage}_{pass_name}", "does nothing")
    with pytest.warns(RuntimeWarning, match="does not work") as caught:
        tensors, found = run_checked(checked, "resident", kind)
    assert len(caught) == 2
    assert "reference code does its work" in str(caught[-1].message)
    assert_right(kind, tensors, found)
    checked.launches()
    assert_right(kind, tensors, run(kind.kernel, tensors, None))
    with torch.no_grad():
        kind.kernel(*tensors, None)
    assert checked.launches() == {}


def test_a_compiled_call_that_has_no_path_left_says_so(checked):
    pose(checked, "resident")
    tensors, _ = small_case("resident").arguments(torch.float32)
    for kernel in ("rot_lstm_resident", "rot_lstm_stage0"):
        checked.module.plant_fault(kernel, "does nothing")
    with pytest.warns(RuntimeWarning), pytest.raises(RuntimeError, match="switched off every path"):
        torch.ops.rotcell.rot_lstm(*tensors, None, False, 0, 0, False)


def test_a_kernel_that_hangs_is_told_and_not_waited_for(checked, monkeypatch):
    monkeypatch.setattr(self_check, "TIME_LIMIT", 0.5)
    checked.module.plant_fault("rot_lstm_resident_forward", "hangs")
    with pytest.raises(RuntimeError, match=r"no answer within 0\.5 s.*ROTCELL_CUDA_PATHS=stepwise"):
        run_checked(checked, "resident")
    # Whoever goes on all the same does not meet it again.
    monkeypatch.undo()
    monkeypatch.setattr(_libraries, "_cuda", ctypes.CDLL(checked.module.__file__))
    tensors, found = run_checked(checked, "resident")
    assert_right(LSTM, tensors, found)
    checked.module.remove_faults()
    waiting = [t for t in threading.enumerate() if t.name == "rotcell self-check"]
    for thread in waiting:
        thread.join(60)


# What only the stepwise path does

PROJECTION, CHANGES = _libraries.CUDA_OPTIONS[1:]


def call_with(option, kind=LSTM, hidden=9):
    """A call of a sequence with this option: values, and the function that takes them."""
    case = Case(kind, 3, 4, 5, hidden, outputs=4 if option == PROJECTION else 0)
    tensors, _ = case.arguments(torch.float32)
    changes = draw(case, len(tensors[0]), "rdhc", torch.float32) if option == CHANGES else UNCHANGED

    def by_kernel(*a):
        return ops.sequence(kind.description, *kind._split(a), False, changes)

    def by_reference(*a):
        wide = (t if t is None or t.dtype == torch.bool else t.double() for t in changes)
        return kind.description.sequence(*kind._split(a), StateChanges(*wide))

    return tensors, by_kernel, by_reference


def assert_right_with(option, kind=LSTM):
    tensors, by_kernel, by_reference = call_with(option, kind)
    found = run(by_kernel, tensors, None, False, "sigmoid", "sigmoid")
    wide = [None if t is None else t.double() for t in tensors]
    expected = run(by_reference, wide, None, False, "sigmoid", "sigmoid")
    assert_all_near(found[0] + found[1], expected[0] + expected[1], tolerance=1e-5)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("kind", [LSTM, GRU], ids=str)
def test_right_options_pass_by_a_margin(executor, monkeypatch, kind, dtype):
    monkeypatch.setattr(_libraries, "_cuda", ctypes.CDLL(executor.module.__file__))
    for option in (PROJECTION, CHANGES) if kind.description.can_project else (CHANGES,):
        for pass_name in _libraries.CUDA_PASSES:
            found = self_check.check_path(
                torch.device("cpu"), "stepwise", kind.description, pass_name, dtype, 13, 5, option
            )
            assert found.outcome == "right", found
            assert found.largest_error < found.tolerance / 2, found


@pytest.mark.parametrize("option", [PROJECTION, CHANGES])
def test_an_option_is_checked_when_it_is_first_used(checked, option):
    pose(checked, "stepwise")
    assert_right_with("")
    assert len(self_check.results()) == 2
    checked.launches()
    tensors, by_kernel, _ = call_with(option)
    with torch.no_grad():
        by_kernel(*tensors, None, False, "sigmoid", "sigmoid")
    # The call, and one short sequence more, whose three rows have up to three steps.
    assert checked.launches()["rot_lstm_stage0_forward"] == 4 + 3
    assert_right_with(option)
    found = [(c["pass_name"], c["outcome"]) for c in self_check.results()[2:]]
    assert found == [("forward", "right"), ("backward", "right")]
    assert all(option in c["what"] for c in self_check.results()[2:])
    assert_right_with(option)
    assert len(self_check.results()) == 4


@pytest.mark.parametrize("fault", ["does nothing", "fails to launch"])
@pytest.mark.parametrize("kernel", ["enter_step", "leave_step"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_faulty_option_goes_to_the_reference_alone(checked, kind, kernel, fault):
    pose(checked, "stepwise")
    checked.module.plant_fault(kernel, fault)
    with pytest.warns(RuntimeWarning, match="with a change of the state, slowly") as caught:
        assert_right_with(CHANGES, kind)
    assert len(caught) == 1
    pass_name = "forward" if kernel == "enter_step" else "backward"
    wrong = "wrong" if fault == "does nothing" else "failed"
    assert ("stepwise", pass_name, wrong) in outcomes()
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        assert_right_with(CHANGES, kind)
        checked.launches()
        assert_right_with("", kind)  # still by the kernels
    assert sum(checked.launches().values()) >= 2 * 4


def test_a_wrong_projection_is_found(checked, monkeypatch):
    original = ops.sequence_with_saved

    def disturbed(*arguments):
        (out, *states), saved = original(*arguments)
        if arguments[3].w_hr is not None:
            out.view(-1)[-1] += 0.01
        return (out, *states), saved

    monkeypatch.setattr(ops, "sequence_with_saved", disturbed)
    pose(checked, "stepwise")
    with pytest.warns(RuntimeWarning, match=r"output \(projection\) is wrong by 0\.0"):
        assert_right_with(PROJECTION)


def test_errors_just_beyond_the_tolerance_are_found(checked, monkeypatch):
    original = ops.sequence_with_saved
    allowed = self_check.tolerance(torch.float32)

    def disturbed(*arguments):
        (out, *states), saved = original(*arguments)
        out.view(-1)[-1] += factor * allowed * max(out.abs().max(), self_check.LEAST_SCALE)
        return (out, *states), saved

    monkeypatch.setattr(ops, "sequence_with_saved", disturbed)
    arguments = (torch.device("cpu"), "stepwise", LSTM.description, "forward", torch.float32, 6, 3)
    factor = 1.3
    found = self_check.check_path(*arguments)
    assert (found.outcome, found.what) in {
        ("wrong", "output"),
        ("wrong", "output (packed, reverse)"),
    }
    factor = 0.5
    assert self_check.check_path(*arguments).outcome == "right"


def test_what_is_saved_for_backward_is_compared_too(checked, monkeypatch):
    original = ops.sequence_with_saved

    def disturbed(*arguments):
        results, (gates, *rest) = original(*arguments)
        return results, (gates.flip(1), *rest)

    monkeypatch.setattr(ops, "sequence_with_saved", disturbed)
    found = self_check.check_path(
        torch.device("cpu"), "resident", LSTM.description, "forward", torch.float32, 6, 3
    )
    assert (found.outcome, found.what.split(" ")[0]) == ("wrong", "gates")


def test_nothing_is_checked_while_a_graph_is_captured(checked):
    pose(checked, "resident")
    tensors, _ = small_case("resident").arguments(torch.float32)
    checked.module.pretend_capture(True)
    run(LSTM.kernel, tensors, None)
    assert checked.launches() == {"rot_lstm_resident_forward": 1, "rot_lstm_resident_backward": 1}
    assert outcomes() == []
    checked.module.pretend_capture(False)
    run(LSTM.kernel, tensors, None)
    assert outcomes() == [("resident", "forward", "right"), ("resident", "backward", "right")]


def test_a_path_that_is_switched_off_is_not_captured(checked):
    checked.module.plant_fault("rot_lstm_resident_forward", "does nothing")
    with pytest.warns(RuntimeWarning):
        tensors, _ = run_checked(checked, "resident")
    checked.launches()
    checked.module.pretend_capture(True)
    with torch.no_grad():
        LSTM.kernel(*tensors, None)
    assert checked.launches() == {"rot_lstm_stage0_forward": 4}


def test_compiled_layers_are_checked_when_they_run(checked):
    pose(checked, "resident")
    layer = rotcell.RotLSTM(5, 20)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.zeros(4, 3, 5, requires_grad=True)
    compiled(x)[0].sum().backward()
    assert outcomes() == [("resident", "forward", "right"), ("resident", "backward", "right")]


def test_modes_of_the_caller_do_not_reach_the_check(checked):
    pose(checked, "resident")
    layer = rotcell.RotLSTM(5, 20)
    state = torch.get_rng_state()
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        layer(torch.zeros(4, 3, 5))
    assert torch.equal(torch.get_rng_state(), state)
    assert outcomes() == [("resident", "forward", "right")]
    assert self_check.results()[0]["dtype"] == "bfloat16"


def test_a_warning_made_an_error_reaches_the_caller(checked):
    checked.module.plant_fault("rot_lstm_resident_forward", "does nothing")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="resident path does not work here"):
            run_checked(checked, "resident")


def test_a_refused_cooperative_launch_is_no_fault(checked):
    checked.module.pose_as(tight_device() | {"shared_bytes_per_multiprocessor": 2048})
    tensors, _ = small_case("cooperative").arguments(torch.float32)
    found = run(LSTM.kernel, tensors, None)
    assert_right(LSTM, tensors, found)
    assert {outcome for *_, outcome in outcomes()} == {"right"}


def run_in_clusters(checked, kind=LSTM):
    tensors, found = run_checked(checked, "cluster", kind, torch.float16)
    expected = run(kind.reference, [None if t is None else t.double() for t in tensors], None)
    assert_all_near(found[0], expected[0], tolerance=4e-3)


def test_clusters_are_checked_once(checked):
    run_in_clusters(checked)
    assert outcomes() == [("cluster", "forward", "right"), ("cooperative", "backward", "right")]
    run_in_clusters(checked)
    assert len(outcomes()) == 2


@pytest.mark.parametrize(
    ("kind", "fault"), [(LSTM, "does nothing"), (GRU, "fails to launch")], ids=str
)
def test_faulty_clusters_are_switched_off_and_the_cooperative_path_takes_over(checked, kind, fault):
    checked.module.plant_fault(f"{kind}_cluster_forward", fault)
    with pytest.warns(RuntimeWarning, match="cluster path does not work.*The cooperative path"):
        run_in_clusters(checked, kind)
    checked.launches()
    run_in_clusters(checked, kind)
    assert f"{kind}_cooperative_forward" in checked.launches()
    assert ("cooperative", "forward", "right") in outcomes()


def test_refused_clusters_are_no_fault(checked):
    checked.module.pose_as(KNOWN["H100"] | {"shared_bytes_per_multiprocessor": 2048})
    tensors, _ = small_case("cluster").arguments(torch.float16)
    run(LSTM.kernel, tensors, None)
    assert {outcome for *_, outcome in outcomes()} == {"right"}


def test_paths_can_be_forbidden(checked):
    _libraries.allow_cuda_path("resident", False)
    tensors, found = run_checked(checked, "resident")
    assert_right(LSTM, tensors, found)
    assert {path for path, *_ in outcomes()} == {"stepwise"}


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", ("stepwise", "resident", "cooperative", "cluster")),
        ("stepwise", ("stepwise",)),
        ("resident", ("stepwise", "resident")),
        ("cooperative, stepwise", ("stepwise", "cooperative")),
        ("reference", ()),
    ],
)
def test_the_environment_names_paths(text, paths):
    assert self_check.allowed_paths(text) == paths


def test_an_unknown_path_in_the_environment_is_refused():
    with pytest.raises(ValueError, match=r"ROTCELL_CUDA_PATHS must be reference or of .*'fast'"):
        self_check.allowed_paths("stepwise,fast")


def test_an_unknown_switch_is_refused(monkeypatch):
    monkeypatch.setenv("ROTCELL_SELF_CHECK", "no")
    with pytest.raises(ValueError, match="ROTCELL_SELF_CHECK must be 0 or 1, got 'no'"):
        self_check.set_up()


def test_the_switch_turns_the_check_on_and_off(monkeypatch):
    before = self_check.enabled()
    try:
        for text, on in (("0", False), ("1", True)):
            monkeypatch.setenv("ROTCELL_SELF_CHECK", text)
            self_check.set_up()
            assert self_check.enabled() is on
    finally:
        self_check.enable(before)
