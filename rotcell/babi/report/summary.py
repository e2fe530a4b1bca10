"""What the result files of a sweep add up to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rotcell.babi.errors import ResultError, SettingsError
from rotcell.babi.report import paper
from rotcell.babi.sweep.experiments import Experiment, Plan, plans_in
from rotcell.babi.sweep.results import Result
from rotcell.babi.sweep.runner import Folder
from rotcell.babi.training.settings import RunSettings


@dataclass(frozen=True)
class Sample:
    """Test accuracies in %, one a seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """The sample's standard deviation (n - 1); None with a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def allowed(self, printed: paper.Printed) -> float | None:
        """How far this mean may be from the paper's by chance; None when one cannot tell.

        Twice the standard error of the difference of two means, and the rounding in print.
        """
        if self.deviation is None:
            return None
        variance = self.deviation**2 / len(self.values) + printed.deviation**2 / paper.RUNS
        return 2 * math.sqrt(variance) + paper.ROUNDING

    def differs(self, printed: paper.Printed) -> bool:
        """Whether the distance to the paper is larger than the joint spread allows."""
        allowed = self.allowed(printed)
        return allowed is not None and abs(self.mean - printed.mean) > allowed


@dataclass(frozen=True)
class Summary:
    """An experiment with one kind of padding: what was planned and what is there."""

    experiment: Experiment
    source: str
    packed: bool
    planned: tuple[RunSettings, ...]
    results: tuple[Result, ...]  # of runs that went well
    failed: tuple[Result, ...]
    damaged: tuple[str, ...]  # what is wrong with which file

    @property
    def title(self) -> str:
        return f"{self.experiment.name}{', packed' if self.packed else ''}"

    @property
    def tasks(self) -> tuple[int, ...]:
        """The tasks that have a result."""
        return tuple(sorted({result.settings.task for result in self.results}))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The state sizes that have a result."""
        return tuple(sorted({result.settings.state_size for result in self.results}))

    @property
    def missing(self) -> tuple[RunSettings, ...]:
        """The runs without any result."""
        there = {result.settings for result in self.results + self.failed}
        return tuple(run for run in self.planned if run not in there)

    def of(self, task: int, cell: str, size: int | None = None) -> list[Result]:
        """The results of a task and a cell."""
        return [
            result
            for result in self.results
            if (result.settings.task, result.settings.cell) == (task, cell)
            and size in (None, result.settings.state_size)
        ]

    def sample(self, task: int, cell: str, size: int) -> Sample | None:
        """The test accuracies of a task, cell and size, if there are any."""
        values = tuple(100 * result.outcome.test for result in self.of(task, cell, size))
        return Sample(values) if values else None


def summarise(folder: Path) -> list[Summary]:
    """All experiments in a folder; SettingsError when there are none."""
    found = [
        _summary(plan, folder, packed)
        for plan in plans_in(folder)
        for packed in sorted({run.packed for run in plan.runs})
    ]
    if not found:
        raise SettingsError(f"{folder} holds no sweep")
    return found


def _summary(plan: Plan, folder: Path, packed: bool) -> Summary:
    runs = tuple(run for run in plan.runs if run.packed == packed)
    results, damaged = _read(runs, Folder(folder))
    return Summary(
        plan.experiment,
        " and ".join(plan.data),
        packed,
        runs,
        tuple(result for result in results if not result.failed),
        tuple(result for result in results if result.failed),
        tuple(damaged),
    )


def _read(runs: Iterable[RunSettings], folder: Folder) -> tuple[Sequence[Result], Sequence[str]]:
    results, damaged = [], []
    for run in runs:
        try:
            result = folder.result(run)
        except (ResultError, SettingsError) as error:
            damaged.append(str(error))
        else:
            results += [] if result is None else [result]
    return results, damaged
