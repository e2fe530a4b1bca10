"""Runs an experiment: one result file per run, each computed once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from rotcell.lab.errors import DataError, ResultError, SettingsError
from rotcell.lab.files import Claims
from rotcell.lab.progress import ProgressBar
from rotcell.lab.sweep.engine import Ended, Engine, Event
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.experiments import Plan, load_plan, plan_file
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.sweep.results import Result


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

    def claims(self) -> Claims:
        """What keeps two sweeps into this folder from doing the same."""
        return Claims(self.path / ".claims")


@dataclass
class Tally:
    """How many runs a sweep found done, did itself, saw fail, and saw done by another sweep."""

    before: int = 0
    done: int = 0
    failed: int = 0
    elsewhere: int = 0

    @property
    def ended(self) -> int:
        """The runs of this sweep that are over."""
        return self.done + self.failed + self.elsewhere

    def add(self, result: Result) -> None:
        """Count a run."""
        self.done += not result.failed
        self.failed += result.failed


def is_done(run: RunSettings, folder: Folder, source: Source) -> bool:
    """Whether a run has a good result on this data; a damaged file counts as none."""
    try:
        result = folder.result(run)
    except ResultError:
        return False
    if result is None or result.failed:
        return False
    if result.data != source.load(run.task).data:
        raise SettingsError(f"{folder.file(run)} is of a run on other data: {result.data}")
    return True


def pending(plan: Plan, folder: Folder, source: Source) -> list[RunSettings]:
    """The runs that have no good result on this data yet."""
    return [run for run in plan.runs if not is_done(run, folder, source)]


def sweep(
    plan: Plan,
    folder: Folder,
    source: Source,
    engine: Engine,
    bar: ProgressBar | None = None,
    poll: float = 5.0,
) -> Tally:
    """Run what is missing; each result is written as soon as it is there.

    If the sweep ends early, the next one continues; unfinished runs are lost. Of two sweeps into
    one folder each run is done by one; `poll` seconds pass between looks at what the other has.
    """
    bar = bar or ProgressBar()
    runs = pending(plan, folder, source)
    tally = Tally(before=len(plan.runs) - len(runs))
    if tally.before:
        bar.note(f"{tally.before} of {len(plan.runs)} runs were done before")
    with folder.claims() as claims:
        with claims.holding("the plan"):
            folder.adopt(plan)
        _Sweep(runs, folder, source, claims, bar, tally).run(engine, poll)
    return tally


class _Sweep:
    """The state of a running sweep."""

    def __init__(
        self,
        runs: Sequence[RunSettings],
        folder: Folder,
        source: Source,
        claims: Claims,
        bar: ProgressBar,
        tally: Tally,
    ) -> None:
        self.folder = folder
        self.source = source
        self.claims = claims
        self.bar = bar
        self.tally = tally
        self.number = len(runs)
        self.waiting = deque(runs)
        self.taken: list[RunSettings] = []  # by another sweep, when it was their turn
        self.clock = _Clock(runs, source)

    def run(self, engine: Engine, poll: float) -> None:
        """Do all runs, or see them done."""
        self.bar.show(0.0, f"{self.number} runs, starting")
        try:
            while self.waiting:
                self._once(engine)
                if self.taken:
                    self.bar.show(
                        self.clock.done, f"waiting for {len(self.taken)} runs of another sweep"
                    )
                    time.sleep(poll)
                    self.waiting.extend(self.taken)
                    self.taken = []
        finally:
            self.bar.close()

    def _once(self, engine: Engine) -> None:
        """Do all runs that no other sweep has."""
        claimed = self._claimed()
        first = next(claimed, None)
        if first is None:
            return  # without a start of the engine
        events = engine(chain([first], claimed), self.source)
        try:
            for event in events:
                if isinstance(event, Ended):
                    self._end(event.result)
                else:
                    self.clock.advance(event.run, event.epoch)
                self._show(event)
        finally:
            events.close()

    def _claimed(self) -> Iterator[RunSettings]:
        """The runs to do, each claimed when it is taken from here."""
        while self.waiting:
            run = self.waiting.popleft()
            if not self.claims.take(run.name):
                self.taken.append(run)
            elif is_done(run, self.folder, self.source):
                self.claims.release(run.name)
                self.tally.elsewhere += 1
                self.clock.advance(run, run.epochs)
            else:
                yield run

    def _end(self, result: Result) -> None:
        run = result.settings
        result.save(self.folder.file(run))
        self.claims.release(run.name)
        self.tally.add(result)
        self.clock.advance(run, run.epochs)
        left = self.bar.left(self.clock.done)
        self.bar.note(f"{self.tally.ended}/{self.number} {_said(result)}, {left} left")

    def _show(self, event: Event) -> None:
        failed = f" ({self.tally.failed} failed)" if self.tally.failed else ""
        left = f"{self.bar.left(self.clock.done)} left"
        self.bar.show(
            self.clock.done,
            f"{self.tally.ended}/{self.number} runs{failed}, {left}{_under_way(event)}",
        )


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
