"""``python -m rotcell --check-gpu``: in the emulator, and with workers that crash and hang."""

from __future__ import annotations

import ctypes
import io
import json
import sys
import time

import pytest
import torch
from machines import POSES

from rotcell import _libraries
from rotcell.__main__ import main
from rotcell.cuda.gpu_check import checks, command, timings, worker
from rotcell.cuda.gpu_check.collect import collect
from rotcell.cuda.gpu_check.machine import Gpu
from rotcell.cuda.gpu_check.summary import summary, verdict


class PosedGpu(Gpu):
    """The emulator as the GPU that is checked."""

    has_streams = False
    sizes = ((3, 9),)

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def properties(self) -> dict[str, int]:
        return POSES["small"]

    def synchronize(self) -> None:
        pass

    def seconds(self, function, calls):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - start) / calls


@pytest.fixture
def posed(emulator, monkeypatch):
    monkeypatch.setattr(_libraries, "_cuda", ctypes.CDLL(emulator.module.__file__))
    emulator.module.pose_as(POSES["small"])
    yield emulator
    emulator.module.remove_faults()


EVERY = checks.all_checks()
RESULTS = [
    f"results, {path}, {cell}, {dtype}"
    for path in checks.PATHS
    for cell, dtype in (("rot_lstm", "float32"), ("rot_gru", "float16"), ("lstm", "float64"))
    if path != "cluster" or dtype == "float16"
]


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_compared_on_every_path(posed, name):
    posed.launches()
    found = EVERY[name](PosedGpu(), 0.1)
    assert found["ok"] is True, found
    assert found["same_bits_twice"]
    assert found["sizes"][0]["passes"] == ["forward", "backward"]
    path = name.split(", ")[1]
    kernels = ("stage", "enter_step", "leave_step") if path == "stepwise" else (path,)
    launches = posed.launches()
    assert launches
    assert all(any(kernel in launched for kernel in kernels) for launched in launches)


def test_wrong_results_are_found_and_the_next_check_is_made(posed):
    posed.module.plant_fault("rot_lstm_resident_backward", "does nothing")
    names = [f"results, resident, {cell}, float32" for cell in ("rot_lstm", "lstm")]
    output = io.StringIO()
    assert worker.work(PosedGpu(), EVERY, names, 0.1, output) == 0
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    wrong, right = (line["result"] for line in lines if "done" in line)
    assert wrong["ok"] is False
    assert wrong["what"].startswith("gradient")
    assert right["ok"] is True
    assert "WRONG" in verdict(wrong)


def test_a_launch_that_fails_is_an_error_of_its_check(posed):
    posed.module.plant_fault("rot_lstm_resident_forward", "fails to launch")
    found = worker.run(EVERY["results, resident, rot_lstm, float32"], PosedGpu(), 0.1)
    assert found["ok"] is False
    assert "failed to launch: a planted fault" in verdict(found)


@pytest.mark.parametrize("name", ["packed, rot_gru", "self-check"])
def test_layers_and_the_self_check(posed, name):
    found = EVERY[name](PosedGpu(), 0.1)
    assert found["ok"] is True, found
    if name == "self-check":  # every path and cell
        assert len(found["milliseconds"]) == 4 * 4


def test_what_needs_streams_is_not_possible_without(posed):
    assert EVERY["graphs, resident, rot_lstm"](PosedGpu(), 0.1)["ok"] is None


def test_every_path_is_timed_next_to_torch(posed, monkeypatch):
    monkeypatch.setattr(timings, "MOST_SAMPLES", 1)
    monkeypatch.setattr(timings, "SHORTEST_SAMPLE", 1e-9)
    row = timings.Row("rot_lstm", "float32", 3, 2, 8)
    found = row.measure(PosedGpu(), 0.0)
    for pass_name in ("forward", "backward"):
        assert found["chosen"][pass_name] == "resident"
        times = found["microseconds_per_step"][pass_name]
        assert set(times) == {"stepwise", "resident", "cooperative", "torch"}
    assert times["torch"] >= 0


def measured(chosen, **times):
    row = {"cell": "rot_lstm", "dtype_name": "float32", "batch": 1, "steps": 2, "hidden": 3}
    return {"row": row, "chosen": {"forward": chosen}, "microseconds_per_step": {"forward": times}}


def test_choices_are_compared_with_the_fastest():
    good = measured("resident", stepwise=4.0, resident=2.0, torch=1.0)
    bad = measured("stepwise", stepwise=4.0, resident=2.0, torch=8.0)
    first, second = timings.choices([good, bad])
    assert (first["chosen_over_fastest"], first["fastest_over_torch"]) == (1.0, 2.0)
    assert (second["fastest"], second["chosen_over_fastest"]) == ("resident", 2.0)
    report = {"facts": {}, "checks": {}, "choices": [first, second], "not_made": ["a"]}
    text = summary(report)
    assert text.count("x the fastest") == 1
    assert "2.00 x the fastest" in text
    assert "1 not run for lack of time" in text


# A worker that does what the names of its checks say. Its last words come late, as may be.
SCRIPT = """
import json, os, sys, time
for name in sys.stdin.read().splitlines():
    print(json.dumps({"start": name}), flush=True)
    if name.startswith("crash"):
        if os.fork() == 0:
            os.close(1)
            time.sleep(0.2)
            print("last words", file=sys.stderr, flush=True)
        os._exit(7)
    if name.startswith("hang"):
        time.sleep(60)
    print(json.dumps({"done": name, "result": {"ok": not name.startswith("wrong")}}), flush=True)
    if name.startswith("lost"):
        sys.exit(3)
"""
COMMAND = [sys.executable, "-c", SCRIPT]


def test_the_rest_is_checked_after_a_crash_and_a_hang():
    names = ["a", "crash", "b", "hang", "lost", "wrong", "c"]
    seen = []
    found = collect(names, COMMAND, 30, lambda name, _: seen.append(name), longest_check=2)
    assert seen == names
    assert {name: result["ok"] for name, result in found.items()} == {
        **dict.fromkeys(["a", "b", "c", "lost"], True),
        **dict.fromkeys(["crash", "hang", "wrong"], False),
    }
    assert "status 7" in found["crash"]["error"]
    assert "last words" in found["crash"]["stderr"]
    assert "no answer" in found["hang"]["error"]


# As the real one is started, but for what it checks.
NOISY = """
import os, sys
from rotcell.cuda.gpu_check import worker

class Machine:
    def force_path(self, path): pass
    def synchronize(self): pass

def check(machine, seconds):
    print("noise")
    os.write(1, b"more noise")
    return {"ok": seconds == 0.5}

worker.Gpu, worker.all_checks = Machine, lambda: {"a": check}
sys.exit(worker.main(sys.argv[1:]))
"""


def test_what_others_print_does_not_disturb_a_worker():
    found = collect(["a"], [sys.executable, "-c", NOISY, "0.5"], 60, lambda *_: None)
    assert found["a"]["ok"] is True


def test_a_worker_that_cannot_start_is_no_endless_loop():
    found = collect(["a", "b"], [sys.executable, "-c", "raise SystemExit(5)"], 30, lambda *_: None)
    assert [result["ok"] for result in found.values()] == [False, False]


def test_time_is_kept_and_what_is_missing_is_named(tmp_path, capsys):
    output = tmp_path / "found.json"
    start = time.monotonic()
    assert command.check_gpu(output, 3.0, ["a", "hang", "b"], COMMAND) == 0
    assert time.monotonic() - start < 50  # hanging takes 60
    report = json.loads(output.read_text())
    assert list(report["checks"]) == ["a"]
    assert report["not_made"] == ["hang", "b"]
    assert f"send us {output}" in capsys.readouterr().out


def test_a_failure_is_the_exit_status_and_in_the_file(tmp_path, capsys):
    output = tmp_path / "found.json"
    assert command.check_gpu(output, 30, ["wrong", "a"], COMMAND) == command.FAILED
    assert json.loads(output.read_text())["checks"]["wrong"]["ok"] is False
    assert "wrong: WRONG" in capsys.readouterr().out


def test_an_interrupted_check_is_written_and_ends_with_its_status(tmp_path, monkeypatch, capsys):
    def interrupted(names, *arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "collect", interrupted)
    output = tmp_path / "found.json"
    assert command.check_gpu(output, 30, ["a"], COMMAND) == command.INTERRUPTED
    assert json.loads(output.read_text())["not_made"] == ["a"]
    assert "Interrupted" in capsys.readouterr().err


def test_a_gpu_without_code_is_reported(tmp_path, capsys):
    script = SCRIPT.replace('"ok":', '"has_code": False, "ok":')
    command_line = [sys.executable, "-c", script]
    found = command.check_gpu(tmp_path / "x.json", 30, ["facts", "crash"], command_line)
    assert found == command.CANNOT
    assert "not built for this one" in capsys.readouterr().err


def test_an_unwritable_file_is_reported_before_any_check(tmp_path, capsys):
    assert command.check_gpu(tmp_path / "no" / "x.json", 30, ["a"], COMMAND) == command.CANNOT
    assert "--output" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to check")
def test_without_a_gpu_there_is_a_message_and_an_exit_status(capsys, tmp_path):
    output = tmp_path / "x.json"
    assert main(["--check-gpu", "--output", str(output)]) == command.CANNOT
    assert "No GPU was checked" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "10"], "--seconds belongs to --check-gpu"),
        (["--output", "x"], "--output belongs to --check-gpu"),
        (["--check-gpu", "--seconds", "0"], "--seconds must be positive, got 0"),
    ],
)
def test_options_that_do_nothing_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.needs_cuda
def test_a_worker_on_a_gpu_reports_the_device(gpu, tmp_path):
    output = tmp_path / "found.json"
    names = ["facts", RESULTS[0], "graphs, resident, rot_lstm", "no waiting, resident, rot_lstm"]
    assert command.check_gpu(output, 120, names, command.worker_command(0.1)) == 0
