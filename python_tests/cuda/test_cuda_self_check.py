"""The self-check: paths are compared with the reference before they are used, and faults are found.

In emulation, with faults planted into its launches. On a GPU nothing may be found.
"""

from __future__ import annotations

import ast
import ctypes
import subprocess
import threading
import warnings
from pathlib import Path

import pytest
import torch
from helpers import GRU, KINDS, LSTM, assert_all_near
from kernel_cases import Case, run
from machines import KNOWN, POSES
from test_state_hooks import draw
from torch.utils.checkpoint import checkpoint

import rotcell
from rotcell import _libraries, ops
from rotcell.cuda import paths, self_check, short_sequence
from rotcell.reference import NO_HOOKS, StateHooks

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
#: Hidden sizes that go to each path on the device of `pose`.
SMALL = {"resident": 20, "cooperative": 72, "stepwise": 9, "cluster": 200}
#: What is checked in these tests: the emulator is slow.
SIZES = {
    "resident": (((9, 3),), ((9, self_check.MANY_ROWS),)),
    "cluster": (((40, 3),),),
    "cooperative": (((16, 3),),),
    "stepwise": (((9, 3),),),
}
PROJECTION, HOOKS = _libraries.CUDA_OPTIONS[1:]


def tight_device() -> dict[str, int]:
    """Eight multiprocessors with as little memory as the cooperative path needs."""
    for kilobytes in range(16, 100, 4):
        device = KNOWN["H100"] | {"shared_bytes_per_block": 1024 * kilobytes, "multiprocessors": 8}
        chosen = {
            paths.chosen_path(kind.name, pass_name, SMALL["cooperative"], 3, 4, "float32", device)
            for kind in (LSTM, GRU)
            for pass_name in _libraries.CUDA_PASSES
        }
        if chosen == {"cooperative"}:
            return device
    raise AssertionError("small sizes go to the cooperative path on no device")


@pytest.fixture
def checked(emulator, monkeypatch):
    """The emulator as a device whose paths are checked."""
    monkeypatch.setattr(_libraries, "_cuda", ctypes.CDLL(emulator.module.__file__))
    monkeypatch.setattr(ops.availability, "_CHECKED_DEVICES", {"cuda", "cpu"})
    monkeypatch.setattr(self_check, "SIZES", SIZES)
    monkeypatch.setattr(self_check, "_results", [])
    monkeypatch.setattr(self_check, "_checked", set())
    monkeypatch.setattr(self_check, "_enabled", True)
    _libraries.switch_on_all_cuda()
    yield emulator
    emulator.module.remove_faults()
    emulator.module.pretend_capture(False)
    _libraries.switch_on_all_cuda()
    paths.allow(_libraries.CUDA_PATHS)


def outcomes():
    return [(c["path"], c["option"], c["outcome"]) for c in self_check.results()]


def small_case(path, kind=LSTM):
    """A case that the plan sends to this path on the device that `pose` makes of the emulator."""
    return Case(kind, 3, 4, 5, SMALL[path])


def pose(emulator, path):
    """A device on which small sizes go to this path."""
    devices = {
        "stepwise": KNOWN["H100"] | {"shared_bytes_per_block": 16, "cooperative_launch": False},
        "resident": POSES["small"],
        "cooperative": tight_device(),
        "cluster": KNOWN["H100"],
    }
    emulator.module.pose_as(devices[path])


def run_checked(emulator, path, kind=LSTM, dtype=torch.float32):
    pose(emulator, path)
    tensors, _ = small_case(path, kind).arguments(dtype)
    return tensors, run(kind.kernel, tensors, None)


def assert_right(kind, tensors, found):
    expected = run(kind.reference, [None if t is None else t.double() for t in tensors], None)
    assert_all_near(found[0] + found[1], expected[0] + expected[1], tolerance=1e-5)


def call_with(option, kind=LSTM, hidden=9):
    """A call of a sequence with this option: values, and the functions that take them."""
    case = Case(kind, 3, 4, 5, hidden, outputs=4 if option == PROJECTION else 0)
    tensors, _ = case.arguments(torch.float32)
    changes = draw(case, len(tensors[0]), "rdhc", torch.float32) if option == HOOKS else NO_HOOKS

    def by_kernel(*a):
        return ops.sequence(kind.description, *kind._split(a), False, changes)

    def by_reference(*a):
        wide = (t if t is None or t.dtype == torch.bool else t.double() for t in changes)
        return kind.description.sequence(*kind._split(a), StateHooks(*wide))

    return tensors, by_kernel, by_reference


# What makes the deadlock of a backward pass impossible: a backward pass on a GPU runs on a thread
# of torch's, which cannot run another backward pass that it waits for.


def test_a_check_runs_on_the_calling_thread_and_starts_none(checked, monkeypatch):
    def start(self):
        raise AssertionError("a thread is started")

    threads = set()
    compare = short_sequence.ShortSequence.compare

    def recorded(self, pass_name):
        threads.add(threading.current_thread())
        return compare(self, pass_name)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(short_sequence.ShortSequence, "compare", recorded)
    run_checked(checked, "resident")
    assert threads == {threading.current_thread()}


def test_a_backward_pass_checks_nothing(checked, monkeypatch):
    pose(checked, "resident")
    tensors, _ = small_case("resident").arguments(torch.float32)
    leaves = [None if t is None else t.requires_grad_() for t in tensors]
    results = LSTM.kernel(*leaves, None)
    found = outcomes()
    assert {outcome for *_, outcome in found} == {"right"}

    def forbidden(*arguments):
        raise AssertionError("a backward pass asks")

    monkeypatch.setattr(paths, "can_run", forbidden)
    checked.launches()
    results[0].sum().backward()
    assert checked.launches() == {"rot_lstm_resident_backward": 1}
    assert outcomes() == found


def test_the_library_calls_no_python(checked):
    """It takes no function pointer from Python, and the package makes none."""
    library = Path(checked.module.__file__)
    names = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    exported = {line.split()[-1] for line in names.splitlines() if " rotcell_" in line}
    assert "rotcell_cuda_can_run" in exported
    assert not [name for name in exported if "_set_" in name or "callback" in name]
    for source in Path(rotcell.__file__).parent.rglob("*.py"):
        used = {
            node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            for node in ast.walk(ast.parse(source.read_text()))
        }
        assert not used & {"CFUNCTYPE", "PYFUNCTYPE", "WINFUNCTYPE"}, source


# What is checked, and when


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("path", _libraries.CUDA_PATHS)
@pytest.mark.parametrize("kind", [LSTM, GRU], ids=str)
def test_right_paths_pass_by_a_margin(checked, kind, path, dtype):
    if path == "cluster" and dtype.itemsize > 2:
        return
    checked.module.pose_as(POSES["small"])
    options = _libraries.CUDA_OPTIONS if path == "stepwise" else [""]
    for option in options:
        if option == PROJECTION and not kind.description.can_project:
            continue
        found = self_check.check_path(
            torch.device("cpu"), path, kind.description, dtype, 13, 5, option
        )
        assert found.outcome == "right", found
        assert found.largest_error < found.tolerance / 2, found


def test_the_first_call_checks_everything_and_the_second_nothing(checked):
    tensors, found = run_checked(checked, "resident")
    assert outcomes() == [
        *[("resident", "", "right")] * 2,
        ("cooperative", "", "right"),
        *[("stepwise", option, "right") for option in _libraries.CUDA_OPTIONS],
    ]
    assert_right(LSTM, tensors, found)
    checked.launches()
    run(LSTM.kernel, tensors, None)
    assert checked.launches() == {"rot_lstm_resident_forward": 1, "rot_lstm_resident_backward": 1}


def test_every_size_of_the_check_has_a_path_on_every_gpu(monkeypatch):
    """On a GPU the self-check has its own sizes: each path gets one wherever it can run at all."""
    for gpu in KNOWN.values():
        for kind in (k for k in KINDS if paths.has_cell(k.name)):
            for dtype in TYPES:
                for path in ("resident", "cooperative", "stepwise"):
                    for sizes in self_check.SIZES[path]:
                        found = self_check._fitting(path, kind.description, dtype, gpu, sizes)
                        assert found is not None, (gpu, kind, dtype, path)
    h100 = KNOWN["H100"]
    (sizes,) = self_check.SIZES["cluster"]
    assert self_check._fitting("cluster", LSTM.description, torch.float16, h100, sizes)


def test_nothing_is_checked_when_the_check_is_off(checked):
    self_check.enable(False)
    run_checked(checked, "resident")
    assert outcomes() == []


def test_nothing_is_checked_while_a_graph_is_captured(checked, monkeypatch):
    pose(checked, "resident")
    tensors, _ = small_case("resident").arguments(torch.float32)
    monkeypatch.setattr(self_check, "_must_not_wait", lambda device: True)
    checked.module.pretend_capture(True)
    run(LSTM.kernel, tensors, None)
    assert checked.launches() == {"rot_lstm_resident_forward": 1, "rot_lstm_resident_backward": 1}
    assert outcomes() == []


def test_a_compiled_layer_is_checked_while_it_is_traced(checked):
    pose(checked, "resident")
    layer = rotcell.RotLSTM(5, 20)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.zeros(4, 3, 5, requires_grad=True)
    compiled(x)[0].sum().backward()
    assert ("resident", "", "right") in outcomes()
    assert {outcome for *_, outcome in outcomes()} == {"right"}
    assert checked.launches()["rot_lstm_resident_backward"] > 1


def test_modes_of_the_caller_do_not_reach_the_check(checked):
    pose(checked, "resident")
    layer = rotcell.RotLSTM(5, 20)
    state = torch.get_rng_state()
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        layer(torch.zeros(4, 3, 5))
    assert torch.equal(torch.get_rng_state(), state)
    assert {outcome for *_, outcome in outcomes()} == {"right"}
    assert self_check.results()[0]["dtype"] == "bfloat16"


def test_activation_checkpointing_does_not_see_the_check(checked):
    """It counts the tensors saved in a forward pass and in its recomputation."""
    pose(checked, "resident")
    layer = rotcell.RotLSTM(5, 20)
    x = torch.randn(4, 3, 5, requires_grad=True)
    checkpoint(lambda x: layer(x)[0], x, use_reentrant=False).sum().backward()
    assert outcomes()
    assert x.grad is not None


# What is found


@pytest.mark.parametrize("fault", ["does nothing", "fails to launch"])
@pytest.mark.parametrize("pass_name", ["forward", "backward"])
@pytest.mark.parametrize("path", ["resident", "cooperative"])
@pytest.mark.parametrize("kind", [LSTM, GRU], ids=str)
def test_a_faulty_path_is_switched_off_and_another_takes_over(
    checked, kind, path, pass_name, fault
):
    checked.module.plant_fault(f"{kind}_{path}_{pass_name}", fault)
    with pytest.warns(RuntimeWarning, match=f"The {path} path failed its check") as caught:
        tensors, found = run_checked(checked, path, kind)
    (text,) = [str(w.message) for w in caught]
    for part in (str(kind), "float32", "report", "driver", str(torch.__version__)):
        assert part in text
    reason = "wrong by nan" if fault == "does nothing" else "failed to launch: a planted fault"
    assert reason in text
    assert_right(kind, tensors, found)
    assert ("stepwise", "", "right") in outcomes()
    checked.launches()
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        assert_right(kind, tensors, run(kind.kernel, tensors, None))
    assert not [name for name in checked.launches() if path in name]


@pytest.mark.parametrize("pass_name", ["forward", "backward"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_reference_takes_over_where_stepwise_fails(checked, kind, pass_name):
    for stage in (0, 1):
        checked.module.plant_fault(f"{kind}_stage{stage}_{pass_name}", "does nothing")
    with pytest.warns(RuntimeWarning, match="slower reference code runs instead") as caught:
        tensors, found = run_checked(checked, "resident", kind)
    assert len(caught) == 1
    assert_right(kind, tensors, found)
    checked.launches()
    assert_right(kind, tensors, run(kind.kernel, tensors, None))
    with torch.no_grad():
        kind.kernel(*tensors, None)
    assert checked.launches() == {}
    pose(checked, "stepwise")
    with pytest.raises(RuntimeError, match=r"every path for .* is switched off"):
        getattr(torch.ops.rotcell, kind.name)(*tensors, None, False, 0, 0, False)


@pytest.mark.parametrize("fault", ["does nothing", "fails to launch"])
@pytest.mark.parametrize("kernel", ["enter_step", "leave_step"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_faulty_option_goes_to_the_reference_alone(checked, kind, kernel, fault):
    pose(checked, "stepwise")
    checked.module.plant_fault(kernel, fault)
    with pytest.warns(RuntimeWarning, match="Calls with state hooks run on the slower") as caught:
        assert_right_with(HOOKS, kind)
    assert len(caught) == 1
    checked.launches()
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        assert_right_with(HOOKS, kind)
        assert checked.launches() == {}
        assert_right_with("", kind)  # still by the kernels
    assert sum(checked.launches().values()) >= 2 * 4


def assert_right_with(option, kind=LSTM):
    tensors, by_kernel, by_reference = call_with(option, kind)
    found = run(by_kernel, tensors, None, False, "sigmoid", "sigmoid")
    wide = [None if t is None else t.double() for t in tensors]
    expected = run(by_reference, wide, None, False, "sigmoid", "sigmoid")
    assert_all_near(found[0] + found[1], expected[0] + expected[1], tolerance=1e-5)


def disturb_kernels(monkeypatch, disturb):
    """Let `disturb(weights, out, gates)` change what the forward kernels give."""
    original = ops.kernel_with_saved

    def disturbed(*arguments):
        results, saved = original(*arguments)
        disturb(arguments[3], results[0], saved[0])
        return results, saved

    monkeypatch.setattr(ops, "kernel_with_saved", disturbed)


def test_a_wrong_projection_is_found(checked, monkeypatch):
    def disturb(weights, out, gates):
        if weights.w_hr is not None:
            out.view(-1)[-1] += 0.01

    disturb_kernels(monkeypatch, disturb)
    pose(checked, "stepwise")
    with pytest.warns(RuntimeWarning, match=r"output \(projection\) is wrong by 0\.0"):
        assert_right_with(PROJECTION)


def test_errors_just_beyond_the_tolerance_are_found(checked, monkeypatch):
    allowed = short_sequence.tolerance(torch.float32)
    factor = 1.3

    def disturb(weights, out, gates):
        out.view(-1)[-1] += factor * allowed * max(out.abs().max(), short_sequence.LEAST_SCALE)

    disturb_kernels(monkeypatch, disturb)
    arguments = (torch.device("cpu"), "stepwise", LSTM.description, torch.float32, 6, 3)
    found = self_check.check_path(*arguments)
    assert (found.outcome, found.what.split(" ")[0]) == ("wrong", "output")
    factor = 0.5
    assert self_check.check_path(*arguments).outcome == "right"


def test_what_is_saved_for_backward_is_compared_too(checked, monkeypatch):
    disturb_kernels(monkeypatch, lambda weights, out, gates: gates.copy_(gates.flip(1)))
    found = self_check.check_path(
        torch.device("cpu"), "resident", LSTM.description, torch.float32, 6, 3
    )
    assert (found.outcome, found.what.split(" ")[0]) == ("wrong", "gates")


# Errors that are not the kernels'


@pytest.mark.parametrize("error", [KeyboardInterrupt, torch.OutOfMemoryError])
def test_an_error_that_is_no_fault_of_a_path_reaches_the_caller(checked, monkeypatch, error):
    def interrupted(*arguments):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(ops, "kernel_with_saved", interrupted)
        with pytest.raises(error):
            run_checked(checked, "resident")
    assert outcomes() == []
    run_checked(checked, "resident")  # the next call checks again
    assert {outcome for *_, outcome in outcomes()} == {"right"}


def test_an_error_of_a_call_is_not_rerun_on_the_reference(checked):
    checked.module.plant_fault("rot_lstm_resident", "does nothing")
    with pytest.warns(RuntimeWarning):
        tensors, _ = run_checked(checked, "resident")
    checked.module.plant_fault("rot_lstm_stage0_backward", "fails to launch")
    with pytest.raises(RuntimeError, match="a planted fault"):
        run(LSTM.kernel, tensors, None)
    checked.module.plant_fault("rot_lstm_stage0_forward", "fails to launch")
    with pytest.raises(RuntimeError, match="a planted fault"), torch.no_grad():
        LSTM.kernel(*tensors, None)


def test_a_warning_made_an_error_reaches_the_caller(checked):
    checked.module.plant_fault("rot_lstm_resident_forward", "does nothing")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="The resident path failed its check"):
            run_checked(checked, "resident")


# Launches that a device refuses, clusters


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


@pytest.mark.parametrize(
    ("kind", "fault"), [(LSTM, "does nothing"), (GRU, "fails to launch")], ids=str
)
def test_faulty_clusters_are_switched_off_and_the_cooperative_path_takes_over(checked, kind, fault):
    checked.module.plant_fault(f"{kind}_cluster_forward", fault)
    with pytest.warns(RuntimeWarning, match="cluster path failed.*The cooperative path"):
        run_in_clusters(checked, kind)
    checked.launches()
    run_in_clusters(checked, kind)
    launched = checked.launches()
    assert f"{kind}_cooperative_forward" in launched
    assert f"{kind}_cluster_forward" not in launched


def test_a_refused_cluster_does_not_fall_back_to_a_path_that_is_off(checked):
    self_check.enable(False)
    checked.module.pose_as(KNOWN["H100"] | {"shared_bytes_per_multiprocessor": 2048})
    _libraries.switch_off_cuda(0, 0, torch.float16, "cooperative")
    tensors, _ = small_case("cluster").arguments(torch.float16)
    checked.launches()
    with torch.no_grad():
        LSTM.kernel(*tensors, None)
    assert set(checked.launches()) == {"rot_lstm_stage0_forward"}


# The environment


def test_paths_can_be_forbidden(checked):
    paths.allow(("stepwise",))
    tensors, found = run_checked(checked, "resident")
    assert_right(LSTM, tensors, found)
    assert {path for path, *_ in outcomes()} == {"stepwise"}
    paths.allow(())
    checked.launches()
    assert_right(LSTM, tensors, run(LSTM.kernel, tensors, None))
    assert checked.launches() == {}


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", ("stepwise", "resident", "cooperative", "cluster")),
        ("stepwise", ("stepwise",)),
        ("resident", ("stepwise", "resident")),
        ("cooperative, stepwise", ("stepwise", "cooperative")),
        ("reference", ()),
    ],
)
def test_the_environment_names_paths(text, allowed):
    assert paths.allowed_paths(text) == allowed


def test_an_unknown_path_in_the_environment_is_refused():
    with pytest.raises(ValueError, match=r"ROTCELL_CUDA_PATHS must be reference, or .*'fast'"):
        paths.allowed_paths("stepwise,fast")


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
