"""What result files add up to: one summary per experiment, of runs that may be averaged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rotcell.lab.errors import ResultError, SettingsError
from rotcell.lab.lines import COMPRESSED, both, is_lines, stem
from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.data.source import DataName
from rotcell.lab.tasks.babi.experiments import (
    EXPERIMENTS,
    PAPER_SIZE,
    Experiment,
    make_plan,
    plans_in,
)
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.sweep.results import Result, load_lines
from rotcell.lab.tasks.babi.sweep.runner import Folder


@dataclass(frozen=True)
class Summary:
    """An experiment with one kind of padding: what was planned and what is there."""

    experiment: Experiment
    data: str
    packed: bool
    planned: tuple[RunSettings, ...]
    results: tuple[Result, ...]  # of runs that went well
    failed: tuple[Result, ...] = ()
    damaged: tuple[str, ...] = ()  # what is wrong with which file

    @property
    def title(self) -> str:
        changed = self.packed and not self.experiment.packed
        return f"{self.experiment.name}{', packed' if changed else ''}"

    @cached_property
    def cells(self) -> tuple[str, ...]:
        """The cells that were planned, the experiment's first."""
        planned = {run.cell for run in self.planned}
        return tuple(c for c in dict.fromkeys([*self.experiment.cells, *CELLS]) if c in planned)

    @cached_property
    def tasks(self) -> tuple[int, ...]:
        """The tasks that have a result."""
        return tuple(sorted({result.settings.task for result in self.results}))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The state sizes that have a result."""
        return tuple(sorted({result.settings.state_size for result in self.results}))

    @property
    def missing(self) -> tuple[RunSettings, ...]:
        """The runs without any result."""
        there = {result.settings for result in self.results + self.failed}
        return tuple(run for run in self.planned if run not in there)

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Each rotating cell with the plain one that it is to be compared with."""
        found = ((CELLS[cell].plain, cell) for cell in self.cells)
        return tuple((plain, cell) for plain, cell in found if plain in self.cells)

    def of(self, task: int, cell: str, size: int | None = PAPER_SIZE) -> list[Result]:
        """The results of a task and a cell, seed by seed; None means all sizes."""
        return [
            result
            for result in self._by_task.get((task, cell), ())
            if size in (None, result.settings.state_size)
        ]

    @cached_property
    def _by_task(self) -> dict[tuple[int, str], list[Result]]:
        found: dict[tuple[int, str], list[Result]] = {}
        for result in sorted(self.results, key=lambda result: result.settings.order):
            found.setdefault((result.settings.task, result.settings.cell), []).append(result)
        return found

    def values(self, task: int, cell: str, size: int = PAPER_SIZE) -> tuple[float, ...]:
        """The test accuracies in %, one per seed."""
        return tuple(100 * result.outcome.test for result in self.of(task, cell, size))

    @property
    def environments(self) -> dict[str, dict[str, int]]:
        """What runs were computed with, where they differ: name -> value -> number of runs."""
        found: dict[str, dict[str, int]] = {}
        for result in self.results:
            for name, value in result.environment.items():
                counts = found.setdefault(name, {})
                counts[str(value)] = counts.get(str(value), 0) + 1
        return {name: counts for name, counts in found.items() if len(counts) > 1}


def comparable(one: Summary, other: Summary, *, but: Collection[str] = ()) -> bool:
    """Whether two experiments have runs on the same data, with one protocol (but for settings)."""

    def kinds(summary: Summary) -> set[str]:
        return {_protocol(result, but) for result in summary.results}

    def data(summary: Summary) -> dict[int, DataName | None]:
        return {result.settings.task: result.data for result in summary.results}

    mine, yours = data(one), data(other)
    same_data = all(mine[task] == yours[task] for task in mine.keys() & yours.keys())
    return same_data and bool(one.results) and kinds(one) == kinds(other)


def _protocol(result: Result, but: Collection[str] = ()) -> str:
    """All that runs which meet in one mean have in common."""
    free = {"task", "cell", "state_size", "seed", *but}
    settings = {k: v for k, v in result.settings.plain().items() if k not in free}
    return json.dumps([settings, dict(result.protocol or {})])


def summarize(path: Path) -> list[Summary]:
    """All experiments at `path`; SettingsError when there are none, or runs that do not compare.

    `path` is the folder of a sweep, a folder with collected runs (runs/EXPERIMENT.jsonl and
    runs/EXPERIMENT.jsonl.gz), or one file of these.
    """
    if is_lines(path):
        if stem(path) not in EXPERIMENTS:
            raise SettingsError(
                f"{path} is not named after an experiment: {', '.join(EXPERIMENTS)}"
            )
        return [_of_lines([path], EXPERIMENTS[stem(path)])]
    found = [
        _of_folder(path, plan.experiment, [run for run in plan.runs if run.packed == packed])
        for plan in plans_in(path)
        for packed in sorted({run.packed for run in plan.runs})
    ]
    for name, experiment in EXPERIMENTS.items():
        files = [f for f in both(path / "runs" / f"{name}{COMPRESSED}") if f.exists()]
        of_study = _of_study(path, experiment)
        found += [_of_lines(files, experiment, of_study)] if files or of_study else []
    if not found:
        raise SettingsError(f"{path} holds no sweep")
    return found


def _of_folder(path: Path, experiment: Experiment, runs: Sequence[RunSettings]) -> Summary:
    folder = Folder(path)
    results, damaged = [], []
    for run in runs:
        try:
            result = folder.result(run)
        except (ResultError, SettingsError) as error:
            damaged.append(str(error))
        else:
            results += [] if result is None else [result]
    return summary_of(experiment, runs, results, damaged)


def _of_study(path: Path, experiment: Experiment) -> list[Result]:
    """The runs of an experiment that a study has made, without the load, which studies record."""
    if experiment.study_file is None:
        return []
    planned = set(make_plan(experiment).runs)
    files = [f for f in both(path / "runs" / f"{experiment.study_file}{COMPRESSED}") if f.exists()]
    found = [result for file in files for result in load_lines(file) if result.settings in planned]
    return [
        replace(r, environment={k: v for k, v in r.environment.items() if k != "load"})
        for r in found
    ]


def _of_lines(
    paths: Sequence[Path], experiment: Experiment, of_study: Sequence[Result] = ()
) -> Summary:
    results = [*of_study, *(result for path in paths for result in load_lines(path))]
    counts = Counter(result.settings for result in results)
    if twice := [run.name for run, count in counts.items() if count > 1]:
        raise SettingsError(f"the files of {experiment.name} have {twice[0]} more than once")
    planned = dict.fromkeys([*make_plan(experiment).runs, *(r.settings for r in results)])
    return summary_of(experiment, tuple(planned), results)


def summary_of(
    experiment: Experiment,
    planned: Sequence[RunSettings],
    results: Sequence[Result],
    damaged: Sequence[str] = (),
) -> Summary:
    """A summary of results that compare; SettingsError says which runs do not."""
    good = [result for result in results if not result.failed]
    _refuse_mixtures(experiment, good)
    return Summary(
        experiment,
        str(good[0].data) if good else "none yet",
        planned[0].packed,
        tuple(planned),
        tuple(good),
        tuple(result for result in results if result.failed),
        tuple(damaged),
    )


def _refuse_mixtures(experiment: Experiment, results: Sequence[Result]) -> None:
    """Runs on other data or with another protocol must not meet in one mean."""

    kinds: dict[str, Callable[[Result], str]] = {
        "data": lambda result: str(result.data),
        "protocol": _protocol,
    }
    for what, kind in kinds.items():
        _refuse(f"{experiment.name}: runs that differ in their {what}", results, kind)
    for task in {result.settings.task for result in results}:
        _refuse(
            f"{experiment.name}: runs on different data of the same name",
            [result for result in results if result.settings.task == task],
            lambda result: json.dumps(result.data.plain() if result.data else None),
        )


def _refuse(what: str, results: Iterable[Result], kind: Callable[[Result], str]) -> None:
    groups: dict[str, list[str]] = {}
    for result in results:
        groups.setdefault(kind(result), []).append(result.settings.name)
    if len(groups) > 1:
        parts = (
            f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''} "
            f"({group})"
            for group, names in groups.items()
        )
        raise SettingsError(f"{what} cannot be put into one table: {'; '.join(parts)}")
