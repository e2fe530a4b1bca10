"""Runs an experiment: one result file a run, and none of them twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rotcell.babi.engine import Ended, Engine, Event
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

    @property
    def ended(self) -> int:
        """The runs of this sweep that are over."""
        return self.done + self.failed

    def add(self, result: Result) -> None:
        """Count a run."""
        self.done += not result.failed
        self.failed += result.failed


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
    bar.show(0.0, f"{len(runs)} runs, starting")
    try:
        for event in events:
            if isinstance(event, Ended):
                event.result.save(folder.file(event.result.settings))
                tally.add(event.result)
                clock.advance(event.result.settings, event.result.settings.epochs)
                bar.note(
                    f"{tally.ended}/{len(runs)} {_said(event.result)}, {bar.left(clock.done)} left"
                )
            else:
                clock.advance(event.run, event.epoch)
            failed = f" ({tally.failed} failed)" if tally.failed else ""
            left = f"{bar.left(clock.done)} left"
            bar.show(
                clock.done, f"{tally.ended}/{len(runs)} runs{failed}, {left}{_under_way(event)}"
            )
    finally:
        events.close()
        bar.close()
    return tally


def _said(result: Result) -> str:
    if result.error is not None:
        return f"{result.settings.name} FAILED: {result.error.strip().splitlines()[-1]}"
    return f"{result.settings.name} {result.outcome.test:.1%} in {result.seconds:.0f} s"


def _under_way(event: Event) -> str:
    if isinstance(event, Ended):
        return ""
    return f"  task {event.run.task} {event.run.cell} {event.epoch}/{event.run.epochs}"


class _Clock:
    """The share of the work that is done; runs count by the length of their stories."""

    def __init__(self, runs: Sequence[RunSettings], source: Source) -> None:
        words = {task: _longest(source, task) for task in {run.task for run in runs}}
        self._weight = {run: words[run.task] * (50 + run.state_size) for run in runs}
        self._total = sum(self._weight.values())
        self._epochs = dict.fromkeys(runs, 0)
        self._finished = 0.0

    def advance(self, run: RunSettings, epoch: int) -> None:
        """`run` is `epoch` epochs far; that may be less than before, when it is tried again."""
        self._finished += self._weight[run] * (epoch - self._epochs[run]) / run.epochs
        self._epochs[run] = epoch

    @property
    def done(self) -> float:
        return self._finished / max(self._total, 1)


def _longest(source: Source, task: int) -> int:
    try:
        return max(source.load(task).story_words)
    except (DataError, OSError):
        return 1  # its runs will fail, each with this error
