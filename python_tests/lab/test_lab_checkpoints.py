"""Runs of the common training loop that are interrupted and continued."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rotcell.lab import cli
from rotcell.lab.errors import CheckpointError
from rotcell.lab.task import LabTask, Record
from rotcell.lab.tasks import groups, text
from rotcell.lab.training.loop import Budget
from rotcell.lab.training.settings import LabSettings

TRACKER = replace(groups.TASK, epoch_steps=3, test_rows=4, validation_rows=4)
# Each way in which a rate falls and a run stops.
BUDGETS = {
    "linear": Budget(5, "linear"),
    "halve": Budget(6, "halve", halve_after=1, patience=3, clip=1.0),
    "decay": Budget(5, "decay", halve_after=2, sgd=True),
    "cooldown": Budget(9, "linear", target=1.0, target_epochs=2, cooldown=3),
}


@pytest.fixture(params=[*BUDGETS, "text"])
def case(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[LabTask, LabSettings, Path | None]:
    """A task, settings and data."""
    if request.param != "text":
        task: LabTask = replace(TRACKER, budget=BUDGETS[request.param])
        return task, task.settings(tracker()), None
    letters = random.Random(0).choices("abcd ", k=900)
    (tmp_path / "input.txt").write_text("".join(letters))
    task = replace(text.TASK, batch=3, length=20, budget=Budget(4, "halve", halve_after=1))
    plain = {**tracker(), "task": "text", "dataset": "tinyshakespeare", "dropout": 0.4}
    return task, task.settings(plain), tmp_path


def tracker() -> dict[str, Any]:
    return {
        "task": "groups", "dataset": "mod5", "cell": "rotlstm", "size": 6, "lr": 0.01, "seed": 3,
        "start": "pi", "dropout": 0.0,
    }  # fmt: skip


def interrupt_after(epoch: int) -> Callable[[int, float], None]:
    def on_epoch(done: int, error: float) -> None:
        if done == epoch:
            raise KeyboardInterrupt

    return on_epoch


def results(record: Record) -> list[Any]:
    return [record[name] for name in ("settings", "data", "protocol", "outcome", "history")]


def test_an_interrupted_run_ends_with_the_same_bits(
    case: tuple[LabTask, LabSettings, Path | None], tmp_path: Path
) -> None:
    task, settings, data = case
    expected = task.run(settings, data)
    epochs = expected["outcome"]["epochs"]
    assert epochs > 2
    for epoch in range(1, epochs):
        file = tmp_path / f"{epoch}.pt"
        with pytest.raises(KeyboardInterrupt):
            task.train(settings, data, interrupt_after(epoch), file)
        record, problem = task.train(settings, data, None, file)
        assert results(record) == results(expected)
        with torch.no_grad():
            assert problem.test() == expected["outcome"]["test"]
    # A file of a run that ended gives its outcome again.
    assert results(task.train(settings, data, None, file)[0]) == results(expected)


def test_the_time_before_an_interruption_counts(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    with pytest.raises(KeyboardInterrupt):
        TRACKER.train(TRACKER.settings(tracker()), None, interrupt_after(40), file)
    first = TRACKER.train(TRACKER.settings(tracker()), None, None, file)[0]
    again = TRACKER.train(TRACKER.settings(tracker()), None, None, file)[0]
    assert again["cpu_seconds"] > 0.9 * first["cpu_seconds"] > 0


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    task = replace(TRACKER, budget=BUDGETS["linear"])
    task.train(task.settings(tracker()), None, None, file)
    with pytest.raises(CheckpointError, match=r"a run with another settings: expected .*'seed': 4"):
        task.train(task.settings({**tracker(), "seed": 4}), None, None, file)
    with pytest.raises(CheckpointError, match="a run with another protocol"):
        replace(task, budget=BUDGETS["decay"]).train(task.settings(tracker()), None, None, file)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="not a checkpoint, or is damaged"):
        task.train(task.settings(tracker()), None, None, file)


def test_the_command_continues_only_when_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(groups, "TASK", replace(TRACKER, budget=BUDGETS["linear"]))
    options = ["train", "groups", "--dataset", "mod5", "--size", "6"]
    file = tmp_path / "new" / "run.pt"
    assert cli.main([*options, "--checkpoint", str(file), "--resume"]) == 1
    assert "does not exist; leave out --resume" in capfd.readouterr().err
    assert cli.main([*options, "--checkpoint", str(file)]) == 0
    printed = capfd.readouterr().out
    assert cli.main([*options, "--checkpoint", str(file)]) == 1
    assert "exists; add --resume to continue from it" in capfd.readouterr().err
    assert cli.main([*options, "--checkpoint", str(file), "--resume"]) == 0
    assert capfd.readouterr().out.partition(";")[0] == printed.partition(";")[0]
    assert cli.main([*options, "--resume"]) == 1
    assert "--resume needs --checkpoint" in capfd.readouterr().err
