"""Progress on a terminal and in a log."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from training_helpers import SMALL, in_this_process

from rotcell.lab.progress import ProgressBar, duration
from rotcell.lab.tasks.babi.experiments import EXPERIMENTS, make_plan
from rotcell.lab.tasks.babi.sweep.runner import Folder, sweep


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (185, "3:05 min"), (7800, "2:10 h")],
)
def test_durations_are_rounded_to_readable_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_terminal_has_one_line_that_is_redrawn() -> None:
    terminal = Terminal()
    bar = ProgressBar(terminal)
    bar.show(0.5, "half")
    bar.note("a line that stays")
    bar.show(1.0, "x" * 500)
    bar.close()
    half, stays, whole, end = terminal.getvalue().split("\r")[1:]
    assert half == "[############............]  50%  half\033[K"
    assert stays == "a line that stays\033[K\n"
    assert len(whole) < 500
    assert end == "\033[K"


def test_log_has_only_lines_that_stay() -> None:
    log = io.StringIO()
    bar = ProgressBar(log)
    bar.show(0.5, "half")
    bar.note("a line that stays")
    bar.close()
    assert log.getvalue() == "a line that stays\n"


def test_time_left_follows_the_rate_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    bar = ProgressBar(io.StringIO())
    assert bar.left(0) == "?"
    now = 130.0
    assert bar.left(0.25) == "1:30 min"
    assert bar.left(1) == "0 s"


def test_sweep_shows_runs_epochs_and_time_left(tmp_path: Path) -> None:
    terminal = Terminal()
    plan = make_plan(
        EXPERIMENTS["lstm-sigmoid"], tasks=(4,), seeds=1, epochs=1, cells=("lstm-torch", "rotlstm")
    )
    sweep(plan, Folder(tmp_path), SMALL, in_this_process, ProgressBar(terminal))
    shown = terminal.getvalue()
    assert "2 runs, starting" in shown
    assert "task 4 lstm-torch 1/1" in shown
    assert "100%  2/2 runs, 0 s left" in shown
