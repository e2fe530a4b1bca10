"""What the tests of training, sweeps and reports share."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rotcell.lab.sweep.engine import Advanced, Ended, Event
from rotcell.lab.tasks.babi.data.source import DataName, Source, SplitName, TaskQuestions
from rotcell.lab.tasks.babi.history import History
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.sweep.job import run_job
from rotcell.lab.tasks.babi.sweep.results import Result
from rotcell.lab.tasks.babi.sweep.runner import Folder

SMALL = Source(questions=40)


def small(task: int = 1, cell: str = "rotlstm", **changed: Any) -> RunSettings:
    """A run that takes a moment."""
    options = {"state_size": 6, "epochs": 3, "embedding": 8, "gates": "sigmoid"}
    return RunSettings(task, cell, **{**options, **changed})


def questions(task: int = 1) -> TaskQuestions:
    return SMALL.load(task)


def in_this_process(runs: Iterable[RunSettings], source: Source) -> Generator[Event, None, None]:
    """The simplest engine."""
    for run in runs:
        yield Advanced(run, 1)
        yield Ended(run_job(run, lambda run=run: source.load(run.task)))


def command(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start rotcell-lab in a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "rotcell.lab", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore it, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def wait_until(condition: Callable[[], bool], seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


MADE_UP = DataName(SplitName("files", "made up", "1"), SplitName("files", "made up", "2"))


def save_made_up(
    folder: Folder,
    run: RunSettings,
    test: float,
    error: str | None = None,
    data: DataName = MADE_UP,
    environment: Mapping[str, str | int] = MappingProxyType({"torch": "0"}),
) -> None:
    """A result file with a given test accuracy, without any training."""
    epochs = range(1, run.epochs + 1)
    curve = [test * epoch / run.epochs for epoch in epochs]
    tested = {epoch: curve[epoch - 1] for epoch in run.test_epochs}
    history = History([1 / epoch for epoch in epochs], curve, curve, tested)
    result = Result(run, data, None if error else history, error, 1.0, environment)
    folder.file(run).parent.mkdir(parents=True, exist_ok=True)
    result.save(folder.file(run))
