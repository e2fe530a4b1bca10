"""Runs a study: takes what is ready, keeps what has ended, continues where it stopped."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from rotcell.lab import tasks
from rotcell.lab.errors import SettingsError
from rotcell.lab.files import SWEEPING, Claims
from rotcell.lab.progress import duration
from rotcell.lab.sweep.engine import Ended, Engine
from rotcell.lab.sweep.store import Store
from rotcell.lab.sweep.study import Block, Plain, Run, Study, full_key, key_of
from rotcell.lab.task import Record

Data = Mapping[str, Path]  # where the data of a task is


@dataclass(frozen=True)
class Outcome:
    """A run that ended: with a record, or with an error."""

    run: Run
    record: Record | None
    error: str | None = None


@dataclass(frozen=True)
class LabWork:
    """Computes runs of any task."""

    data: dict[str, Path] = field(default_factory=dict)

    def compute(
        self, run: Run, threads: int, model: Path | None, on_epoch: Callable[[int], None]
    ) -> Outcome:
        """The record of a run, or its error."""
        torch.set_num_threads(threads)
        try:
            task = tasks.find(run.task)
            settings = task.settings(run.settings)
            record = task.run(settings, self.data.get(run.task), lambda n, _error: on_epoch(n))
        except Exception:
            return Outcome(run, None, traceback.format_exc())
        return Outcome(run, record)

    def lost(self, run: Run, error: str) -> Outcome:
        """A run whose worker process died."""
        return Outcome(run, None, error)


class Queue(Iterator[Run]):
    """The runs of a study that are ready and not done; there may be more when others have ended."""

    def __init__(self, study: Study, out: Path, data: Data, claims: Claims | None = None) -> None:
        self.study, self._out, self._claims = study, out, claims
        self._stores: dict[tuple[str, str], Store] = {}
        self._known: dict[tuple[str, str], dict[str, Record]] = {}
        self._taken: set[Run] = set()
        self.blocks = tuple(
            block
            for block in study.blocks
            if not tasks.find(block.task).needs_data or block.task in data
        )

    @property
    def left_out(self) -> tuple[Block, ...]:
        """The blocks whose data was not given."""
        return tuple(block for block in self.study.blocks if block not in self.blocks)

    def __next__(self) -> Run:
        for block in self.blocks:
            known = self.known(block)
            for settings in block.ready(known):
                run = Run(block.task, block.file, full_key(block.task, settings))
                if run.key in known or run in self._taken:
                    continue
                if self._claims is not None and not self._claims.take(run.name):
                    continue
                known = self.known(block)  # another sweep may have done it just before
                if run.key in known:
                    continue
                self._taken.add(run)
                return run
        raise StopIteration

    def known(self, block: Block) -> dict[str, Record]:
        """The records of a block's file."""
        at = block.task, block.file
        if at not in self._stores:
            path = self._out / block.task / "runs" / f"{block.file}.jsonl"
            self._stores[at] = Store(path)
            self._known[at] = {key_of(r["settings"]): r for r in self._stores[at].records}
        for record in self._stores[at].refresh():
            self._known[at][key_of(record["settings"])] = record
        return self._known[at]

    def keep(self, outcome: Outcome) -> None:
        """Store what a run has given; a failed run is tried again by the next sweep.

        SettingsError if the records so far are of other data: they would be compared with it.
        """
        if outcome.record is not None:
            self._check_data(outcome.run, outcome.record)
            self._stores[outcome.run.task, outcome.run.file].append(outcome.record)
            if self._claims is not None:
                self._claims.release(outcome.run.name)

    def _check_data(self, run: Run, record: Record) -> None:
        same = ("dataset", *tasks.find(run.task).pooled)  # settings of runs with the same data
        of = [record["settings"].get(name) for name in same]
        for known in self._known[run.task, run.file].values():
            if [known["settings"].get(name) for name in same] == of:
                if known.get("data") != record.get("data"):
                    raise SettingsError(
                        f"{run.task} was run on {record.get('data')}, but its records in "
                        f"{self._out} are of {known.get('data')}: use that data or another --out"
                    )
                return

    def pending(self, block: Block) -> list[Run]:
        """The runs of a block that have no record."""
        known = self.known(block)
        keys = dict.fromkeys(full_key(block.task, settings) for settings in block.all(known))
        return [Run(block.task, block.file, key) for key in keys if key not in known]


def run_study(
    study: Study, out: Path, work: LabWork, engine: Engine, say: Callable[[str], None]
) -> tuple[int, int]:
    """Do all runs that are not done; how many went well, and how many failed."""
    done = failed = 0
    out.mkdir(parents=True, exist_ok=True)
    with Claims(out / ".claims") as claims:
        if not claims.share(SWEEPING):
            raise SettingsError(f"records in {out} are being published: try again in a moment")
        queue = Queue(study, out, work.data, claims)
        for block in queue.left_out:
            say(f"skipped for lack of data (--data {block.task}=PATH): {block.about}")
        for event in engine(queue, work):
            if isinstance(event, Ended):
                outcome: Outcome = event.result
                queue.keep(outcome)
                done, failed = done + (not outcome.error), failed + bool(outcome.error)
                say(f"{done + failed} {_said(outcome)}")
    return done, failed


def _said(outcome: Outcome) -> str:
    settings = " ".join(f"{k}={v}" for k, v in outcome.run.settings.items() if v not in ("", 0.0))
    if outcome.record is None:
        return f"FAILED {settings}: {(outcome.error or '').strip().splitlines()[-1]}"
    found = outcome.record["outcome"]
    measures = found["test"] if isinstance(found["test"], dict) else {"test": found["test"]}
    numbers = " ".join(f"{name}={value:.4g}" for name, value in measures.items())
    return f"{settings}: {numbers} in {duration(outcome.record['seconds'])}"


def estimate(queue: Queue, data: Data) -> Iterator[tuple[Block, int, float]]:
    """For every block the runs to do and their processor time: of like runs, or measured here."""
    costs: dict[str, float] = {}
    counted: set[Run] = set()
    for block in queue.blocks:
        known = queue.known(block)
        times: dict[str, list[float]] = {}
        for record in known.values():
            times.setdefault(_like(block, record["settings"]), []).append(record["cpu_seconds"])
        costs |= {like: sum(seen) / len(seen) for like, seen in times.items()}
        runs = [run for run in queue.pending(block) if run not in counted]
        counted.update(runs)
        seconds = 0.0
        for run in runs:
            like = _like(block, run.settings)
            if like not in costs:
                task = tasks.find(run.task)
                costs[like] = task.seconds(task.settings(run.settings), data.get(run.task))
            seconds += costs[like]
        yield block, len(runs), seconds


def _like(block: Block, settings: Plain) -> str:
    """Runs that take the same time but for chance."""
    free = {"seed", *block.grid}
    return block.task + key_of({k: v for k, v in settings.items() if k not in free})
