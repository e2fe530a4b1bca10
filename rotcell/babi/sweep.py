"""Runs an experiment: one result file a run, and none of them twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rotcell.babi.engine import Advanced, Engine
from rotcell.babi.plan import Plan, load_plan, plan_file
from rotcell.babi.progress import ProgressBar
from rotcell.babi.results import Result, ResultError
from rotcell.babi.settings import RunSettings, SettingsError
from rotcell.babi.source import Source
from rotcell.babi.stories import DataError


@dataclass(frozen=True)
class Folder:
    """Where the results of a sweep are kept."""

    path: Path

    def file(self, run: RunSettings) -> Path:
        """The result file of a run."""
        return self.path / "runs" / f"{run.name}.json"

    def result(self, run: RunSettings) -> Result | None:
        """The result of a run, or None; errors when the file is damaged or another run's."""
        path = self.file(run)
        if not path.exists():
            return None
        result = Result.load(path)
        difference = result.settings.difference(run)
        if difference:
            raise SettingsError(f"{path} is of a run with other settings: {difference}")
        return result

    def adopt(self, plan: Plan) -> Plan:
        """Note down what is going to be run; what was planned before stays planned."""
        (self.path / "runs").mkdir(parents=True, exist_ok=True)
        path = plan_file(self.path, plan.experiment.name)
        if path.exists():
            try:
                merged = plan.merged(load_plan(path))
            except SettingsError as error:
                raise SettingsError(f"{self.path}: {error}") from None
            merged.save(self.path)
            return merged
        plan.save(self.path)
        return plan


@dataclass
class Tally:
    """How many runs a sweep found done, did itself, and saw fail."""

    before: int = 0
    done: int = 0
    failed: int = 0


def pending(plan: Plan, folder: Folder, source: Source) -> list[RunSettings]:
    """The runs that have no good result on this data yet; a damaged file counts as none."""
    missing = []
    for run in plan.runs:
        try:
            result = folder.result(run)
        except ResultError:
            result = None
        if result is None or result.failed:
            missing.append(run)
        elif result.digest != source.load(run.task).digest:
            raise SettingsError(f"{folder.file(run)} is of a run on other data")
    return missing


def sweep(
    plan: Plan, folder: Folder, source: Source, engine: Engine, bar: ProgressBar | None = None
) -> Tally:
    """Run what is missing; each result is written as soon as it is there.

    Whatever ends the sweep, the next one goes on: only runs under way are lost.
    """
    bar = bar or ProgressBar()
    runs = pending(plan, folder, source)
    tally = Tally(before=len(plan.runs) - len(runs))
    folder.adopt(plan)
    if tally.before:
        bar.note(f"{tally.before} of {len(plan.runs)} runs were done before")
    clock = _Clock(runs, source)
    events = engine(runs, source)
    try:
        for event in events:
            if isinstance(event, Advanced):
                clock.advance(event.run, event.epoch)
                activity = f"{event.run.name} {event.epoch}/{event.run.epochs}"
            else:
                result = event.result
                result.save(folder.file(result.settings))
                clock.advance(result.settings, result.settings.epochs)
                tally.done += not result.failed
                tally.failed += result.failed
                activity = result.settings.name
                bar.note(
                    f"{tally.done + tally.failed}/{len(runs)} {_said(result)}, "
                    f"{bar.left(clock.done)} left"
                )
            bar.show(
                clock.done,
                f"{tally.done + tally.failed}/{len(runs)} runs, {tally.failed} failed, "
                f"{bar.left(clock.done)} left, {activity}",
            )
    finally:
        events.close()
        bar.close()
    return tally


def _said(result: Result) -> str:
    if result.error is not None:
        return f"{result.settings.name} FAILED: {result.error.strip().splitlines()[-1]}"
    return f"{result.settings.name} {result.outcome.test:.1%} in {result.seconds:.0f} s"


class _Clock:
    """The share of the work that is done; runs count by the length of their stories."""

    def __init__(self, runs: Iterable[RunSettings], source: Source) -> None:
        words = {task: _longest(source, task) for task in {run.task for run in runs}}
        self._weight = {run: words[run.task] * (50 + run.state_size) for run in runs}
        self._total = sum(self._weight.values())
        self._epochs: dict[RunSettings, int] = {}

    def advance(self, run: RunSettings, epoch: int) -> None:
        self._epochs[run] = epoch

    @property
    def done(self) -> float:
        return sum(
            self._weight[run] * epoch / run.epochs for run, epoch in self._epochs.items()
        ) / max(self._total, 1)


def _longest(source: Source, task: int) -> int:
    try:
        return max(source.load(task).story_words)
    except (DataError, OSError):
        return 1  # its runs will fail, each with this error
