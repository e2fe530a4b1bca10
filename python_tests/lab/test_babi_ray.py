"""Sweeps on Ray."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from training_helpers import SMALL, in_this_process, small

from rotcell.lab.errors import NotInstalledError
from rotcell.lab.sweep.engine import Ended
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.sweep.on_ray import ray_engine


def descendants(named: str) -> list[int]:
    """Processes under this one whose title begins with `named`."""
    parents, titles = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            pid, stat = int(folder.name), (folder / "stat").read_text()
            titles[pid] = (folder / "cmdline").read_bytes().decode(errors="replace")
            parents[pid] = int(stat.rsplit(")", 1)[1].split()[1])
        except OSError:
            continue

    def mine(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid, title in titles.items() if title.startswith(named) and mine(pid)]


def test_same_results_even_when_a_worker_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]' in a clone")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    first, long = small(epochs=1), small(cell="lstm", epochs=250)
    bad = RunSettings(2, "gru", 4, epochs=1)

    class OneTaskMissing:
        """Data that lacks task 2."""

        def load(self, task: int) -> Any:
            if task == 2:
                raise OSError("task 2 is not there")
            return SMALL.load(task)

    killed: list[int] = []
    ended = {}
    for event in ray_engine(None, workers=1)([first, long, bad], OneTaskMissing()):
        assert isinstance(event, Ended)
        ended[event.result.settings] = event.result
        if not killed:  # the long run is active, or about to start
            killed = descendants("ray::_run") or descendants("ray::IDLE")
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
    assert killed
    assert "task 2 is not there" in str(ended[bad].error)
    for run in (first, long):
        (_, expected) = in_this_process([run], SMALL)
        assert isinstance(expected, Ended)
        assert ended[run].history == expected.result.history


def test_without_ray_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(NotInstalledError, match=r"pip install .ray"):
        ray_engine(None, 1)
