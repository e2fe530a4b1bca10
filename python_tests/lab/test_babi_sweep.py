"""Sweeps: one file per run, none lost or repeated, whatever is killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from training_helpers import (
    SMALL,
    alive,
    children,
    command,
    in_this_process,
    save_made_up,
    small,
    wait_until,
)

from rotcell.lab.errors import ResultError, SettingsError
from rotcell.lab.sweep.engine import Advanced, Ended
from rotcell.lab.sweep.local import local_engine
from rotcell.lab.tasks.babi import evaluate
from rotcell.lab.tasks.babi.data.generate import write_dataset
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.estimate import estimate
from rotcell.lab.tasks.babi.experiments import EXPERIMENTS, Plan, load_plan, make_plan, plan_file
from rotcell.lab.tasks.babi.sweep.results import Result
from rotcell.lab.tasks.babi.sweep.runner import Folder, pending, sweep


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


PLAIN_AND_ROTATING = ("lstm-torch", "rotlstm")


def small_plan(**changed: Any) -> Plan:
    options: dict[str, Any] = {
        "tasks": (1, 4),
        "seeds": 2,
        "epochs": 2,
        "sizes": (4,),
        "cells": PLAIN_AND_ROTATING,
        "gates": "sigmoid",
        "data": ("generated",),
    }
    return make_plan(EXPERIMENTS["lstm"], **{**options, **changed})


def contents(folder: Path) -> dict[str, Any]:
    """What the result files say, but for the time it took."""
    found = {}
    for path in sorted((folder / "runs").iterdir()):
        found[path.name] = json.loads(path.read_text())
        del found[path.name]["seconds"]
    return found


def test_experiments_have_distinct_runs() -> None:
    count = {name: len(make_plan(each).runs) for name, each in EXPERIMENTS.items()}
    assert count == {
        "lstm": 400,
        "lstm-sigmoid": 200,
        "gru": 400,
        "state-size": 630,
        "hard-angle": 9,
        "batch-64": 30,
        "packed": 200,
    }
    runs = make_plan(EXPERIMENTS["lstm"]).runs
    assert {run.cell for run in runs[:40]} == {"lstm", "rotlstm"}
    assert {run.seed for run in runs[:40]} == {0}  # a part of a sweep has every task
    assert {run.gates for run in runs} == {"hard_sigmoid"}
    assert {run.gates for run in make_plan(EXPERIMENTS["lstm-sigmoid"]).runs} == {"sigmoid"}
    assert all(run.packed for run in make_plan(EXPERIMENTS["packed"]).runs)
    everything = [run for each in EXPERIMENTS.values() for run in make_plan(each).runs]
    assert len({run.name for run in everything}) == len(set(everything))  # may share a folder


def test_one_file_per_run_and_none_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, plan = Folder(tmp_path), small_plan()
    tally = sweep(plan, folder, SMALL, in_this_process)
    assert (tally.before, tally.done, tally.failed) == (0, 8, 0)
    files = sorted((tmp_path / "runs").iterdir())
    assert [file.name for file in files] == sorted(f"{run.name}.json" for run in plan.runs)
    result = Result.load(folder.file(plan.runs[0]))
    assert result.settings == plan.runs[0]
    assert result.history is not None
    assert result.outcome.test == result.history.test[result.outcome.epoch]
    err = capsys.readouterr().err
    assert "8/8 task4-rotlstm-size4-seed1-sigmoid" in err
    assert " left" in err

    before = [file.stat().st_mtime_ns for file in files]
    tally = sweep(plan, folder, SMALL, in_this_process)
    assert (tally.before, tally.done) == (8, 0)
    assert [file.stat().st_mtime_ns for file in files] == before
    assert pending(small_plan(seeds=3), folder, SMALL) == list(small_plan(seeds=3).runs[8:])


def test_plans_grow_and_other_settings_are_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.adopt(small_plan(tasks=(1,)))
    folder.adopt(small_plan(tasks=(4,)))
    folder.adopt(small_plan(tasks=(4,), packed=True))
    plan = load_plan(plan_file(tmp_path, "lstm"))
    assert len(plan.runs) == 12
    with pytest.raises(SettingsError, match="other data: elsewhere, and not generated"):
        folder.adopt(small_plan(data=("elsewhere",)))
    with pytest.raises(SettingsError, match="epochs 3 and not 2"):
        folder.adopt(small_plan(epochs=3))


def test_results_on_other_data_or_settings_are_not_taken(tmp_path: Path) -> None:
    folder, plan = Folder(tmp_path), small_plan(tasks=(4,), seeds=1)
    sweep(plan, folder, SMALL, in_this_process)
    with pytest.raises(SettingsError, match="other data"):
        pending(plan, folder, Source(questions=40, seed=1))
    with pytest.raises(SettingsError, match=r"lr 0\.001 and not 0\.1"):
        pending(small_plan(tasks=(4,), seeds=1, lr=0.1), folder, SMALL)


def test_damaged_results_are_reported_and_recomputed(tmp_path: Path) -> None:
    folder, plan = Folder(tmp_path), small_plan(tasks=(4,), seeds=1)
    sweep(plan, folder, SMALL, in_this_process)
    good = contents(tmp_path)
    path = folder.file(plan.runs[0])
    whole = json.loads(path.read_text())
    short = {**whole, "history": {**whole["history"], "loss": [1.0]}}
    for damaged in ("", path.read_text()[:100], "[]", "{}", json.dumps(short)):
        path.write_text(damaged)
        with pytest.raises(ResultError, match=path.name):
            Result.load(path)
    assert sweep(plan, folder, SMALL, in_this_process).done == 1
    assert contents(tmp_path) == good
    plan_file(tmp_path, "lstm").write_text("{")
    with pytest.raises(SettingsError, match=r"lstm\.json is not the plan"):
        sweep(plan, folder, SMALL, in_this_process)


def test_a_failed_run_is_recorded_and_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dataset(tmp_path / "data", tasks=(4,), questions=40)
    source = Source.at(str(tmp_path / "data"))
    folder, plan = Folder(tmp_path / "out"), small_plan(seeds=1)
    tally = sweep(plan, folder, source, in_this_process)
    assert (tally.done, tally.failed) == (2, 2)
    assert "FAILED" in capsys.readouterr().err
    failed = Result.load(folder.file(plan.runs[0]))
    assert failed.failed
    assert "has no train file of task 1" in str(failed.error)
    write_dataset(tmp_path / "data", tasks=(1,), questions=40)
    tally = sweep(plan, folder, source, in_this_process)
    assert (tally.before, tally.done, tally.failed) == (2, 2, 0)


def test_runs_of_lost_workers_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose worker dies is run again; one that kills every worker is given up."""
    unlucky, deadly = small(cell="lstm-torch", epochs=60), small(cell="gru-torch", epochs=60)
    fine = small(cell="rotlstm", epochs=2)
    monkeypatch.setattr("rotcell.lab.sweep.local.ATTEMPTS", 2)
    deaths = {unlucky: 1, deadly: 99}
    ended = {}
    for event in local_engine(workers=1)([unlucky, fine, deadly], SMALL):
        if isinstance(event, Ended):
            ended[event.result.settings] = event.result
        elif isinstance(event, Advanced) and event.epoch == 1 and deaths.get(event.run, 0):
            deaths[event.run] -= 1
            (worker,) = multiprocessing.active_children()
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
    assert not multiprocessing.active_children()
    assert deaths == {unlucky: 0, deadly: 97}
    assert ended[deadly].error == "the worker process died 2 times (signal SIGKILL)"
    for run in (unlucky, fine):
        (_, expected) = in_this_process([run], SMALL)
        assert isinstance(expected, Ended)
        assert ended[run].history == expected.result.history


def start_sweep(data: Path, out: Path, *more: str) -> Any:
    common = ("--tasks", "1", "--seeds", "3", "--sizes", "8", "--epochs", "6", "--workers", "1")
    common += ("--cells", "lstm-torch,rotlstm", "--gates", "sigmoid")
    return command("sweep", "state-size", *common, "--data", str(data), "--out", str(out), *more)


def test_killed_and_resumed_has_the_same_files(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", tasks=(1,), questions=200)
    source = Source.at(str(tmp_path / "data"))
    options: dict[str, Any] = {"tasks": (1,), "seeds": 3, "sizes": (8,), "epochs": 6}
    options |= {"cells": PLAIN_AND_ROTATING, "gates": "sigmoid"}
    plan = make_plan(EXPERIMENTS["state-size"], data=source.names((1,)), **options)
    sweep(plan, Folder(tmp_path / "whole"), source, in_this_process)

    out = tmp_path / "out"

    def done() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (out / "runs").glob("task*.json")}

    with start_sweep(tmp_path / "data", out) as process:
        wait_until(lambda: len(done()) >= 1)
        workers = [pid for pid in children(process.pid) if alive(pid)]
        process.kill()
        process.communicate()
    assert workers
    wait_until(lambda: not any(map(alive, workers)), 20)  # no worker outlives its sweep
    survived = done()
    assert 1 <= len(survived) < 6

    with start_sweep(tmp_path / "data", out) as process:
        wait_until(lambda: len(done()) > len(survived))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert "Run the same command to continue" in err
    assert "Traceback" not in err

    rest = pending(plan, Folder(out), source)
    assert 0 < len(rest) < 6
    assert sweep(plan, Folder(out), source, in_this_process).done == len(rest)
    assert contents(out) == contents(tmp_path / "whole")
    assert {path: path.read_bytes() for path in survived} == survived
    assert not list(out.rglob("*.partial"))


def test_two_sweeps_at_once_share_the_runs(tmp_path: Path) -> None:
    """Each run is done by one of them, and what a killed one had the other does."""
    write_dataset(tmp_path / "data", tasks=(1,), questions=400)
    out = tmp_path / "out"
    with start_sweep(tmp_path / "data", out) as one, start_sweep(tmp_path / "data", out) as two:
        wait_until(lambda: len(list((out / "runs").glob("task*.json"))) >= 2)
        workers = children(one.pid)
        one.kill()
        _, of_one = one.communicate()
        _, of_two = two.communicate(timeout=120)
    wait_until(lambda: not any(map(alive, workers)), 20)
    assert two.returncode == 0, of_two
    done = [re.findall(r"\d/\d (task\S+) [\d.]+% in", text) for text in (of_one, of_two)]
    files = {path.stem for path in (out / "runs").glob("task*.json")}
    assert len(files) == 6
    assert not set(done[0]) & set(done[1])
    assert len(done[0] + done[1]) >= 5  # the killed one may have written what it could not report
    assert set(done[0] + done[1]) <= files
    assert done[1]


def test_models_are_kept_on_request(tmp_path: Path) -> None:
    run = small(4)
    (*_, ended) = local_engine(1, models=tmp_path / "models")([run], SMALL)
    assert isinstance(ended, Ended)
    found = evaluate(tmp_path / "models" / f"{run.name}.pt", SMALL.load(4).test)
    assert found.accuracy == ended.result.outcome.test


def test_estimate_grows_with_the_work() -> None:
    one, two = small_plan(seeds=1, tasks=(1,)), small_plan(seeds=2, tasks=(1,))
    assert 0 < estimate(one.runs, SMALL) < estimate(two.runs, SMALL)


def test_results_of_made_up_runs_can_be_read(tmp_path: Path) -> None:
    save_made_up(Folder(tmp_path), small(), 0.5)
    save_made_up(Folder(tmp_path), small(seed=1), 0.5, error="boom")
    assert Folder(tmp_path).result(small()).outcome.test == 0.5
    assert Folder(tmp_path).result(small(seed=1)).error == "boom"
    assert Folder(tmp_path).result(small(seed=2)) is None
