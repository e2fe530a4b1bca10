"""Finished runs as lines of one file, to keep, to publish, and not to compute again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rotcell.lab.errors import SettingsError
from rotcell.lab.lines import both, stem
from rotcell.lab.tasks.babi.experiments import Plan, load_plan, plan_file
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.sweep.results import Result, load_lines, save_lines
from rotcell.lab.tasks.babi.sweep.runner import Folder


@dataclass
class Collected:
    """How many runs a collection had, got, and did not take."""

    known: int = 0
    new: int = 0
    failed: int = 0


def collect(folder: Path, into: Path) -> Collected:
    """Add the finished runs of the experiment that `into` is named after.

    A folder may hold several experiments. Runs that are in `into` already stay as they are;
    SettingsError when the folder holds a run of the same settings with other numbers: which of
    the two is right is for people to find out.
    """
    name = stem(into)
    for file in both(into):
        if file != into and file.exists():
            raise SettingsError(f"{file} already holds runs of {name}: collect into that file")
    there = known_runs(into)
    tally = Collected(known=len(there))
    plan = plan_file(folder, name)
    if not plan.exists():
        raise SettingsError(f"{folder} holds no sweep {name}, after which {into} is named")
    for run in load_plan(plan).runs:
        result = Folder(folder).result(run)
        if result is None:
            continue
        before = there.get(run)
        if result.failed:
            tally.failed += 1
        elif before is None:
            there[run] = result
            tally.new += 1
        elif (before.history, before.data) != (result.history, result.data):
            raise SettingsError(f"{folder} and {into} have other numbers for {run.name}")
    into.parent.mkdir(parents=True, exist_ok=True)
    save_lines(into, there.values())
    return tally


def restore(lines: Path, plan: Plan, folder: Folder) -> int:
    """Put collected runs of a plan back into a sweep's folder, which has none of them; how many."""
    known = known_runs(lines)
    restored = 0
    for run in plan.runs:
        if run in known and not folder.file(run).exists():
            folder.file(run).parent.mkdir(parents=True, exist_ok=True)
            known[run].save(folder.file(run))
            restored += 1
    return restored


def known_runs(path: Path) -> dict[RunSettings, Result]:
    """The runs in a file of collected ones, none if there is no such file."""
    return {r.settings: r for r in load_lines(path)} if path.exists() else {}
