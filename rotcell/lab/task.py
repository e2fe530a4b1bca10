"""What a task offers to training and sweeps, and how most tasks do it."""

from __future__ import annotations

import hashlib
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from rotcell.lab.errors import DataError, SettingsError
from rotcell.lab.judged import Anchor, Headline, Judged, Measure, Picture
from rotcell.lab.training.checkpoint import Checkpoint
from rotcell.lab.training.environment import environment
from rotcell.lab.training.loop import (
    Budget,
    Problem,
    budget_protocol,
    make_optimizer,
    run_problem,
    train_step,
)
from rotcell.lab.training.settings import LabSettings

FORMAT: Final = "rotcell lab run 1"

#: A finished run as it is kept: settings, data, protocol, environment, outcome, history.
Record = dict[str, Any]
#: Called after every epoch with its number and the validation error.
OnEpoch = Callable[[int, float], None]


class Settings(Protocol):
    """What identifies a run."""

    @property
    def name(self) -> str:
        """For logs and locks."""

    @property
    def seed(self) -> int: ...

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""


class Task(Protocol):
    """A task, found by its name."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str:
        """One line for the help."""

    @property
    def needs_data(self) -> bool:
        """Whether runs need a path to load data from."""

    def settings(self, plain: Mapping[str, Any]) -> Settings:
        """The settings of a run, from a record or a study's plan."""

    def run(self, settings: Any, data: Path | None, on_epoch: OnEpoch | None = None) -> Record:
        """Train and test; the same settings and data give the same bits."""

    def score(self, record: Record) -> tuple[float, float]:
        """Validation error and steps to the target; settings with less are chosen."""

    def seconds(self, settings: Any, data: Path | None) -> float:
        """Processor time of a run, from a few steps measured on this machine."""

    # What `rotcell.lab.judged.Judged` describes:
    @property
    def measure(self) -> Measure: ...

    @property
    def pooled(self) -> tuple[str, ...]: ...

    @property
    def shown(self) -> tuple[str, ...]: ...

    @property
    def anchors(self) -> tuple[Anchor, ...]: ...

    @property
    def headline(self) -> Headline | None: ...

    @property
    def picture(self) -> Picture | None: ...

    def item(self, settings: Mapping[str, Any]) -> str: ...

    def printed(self, settings: Mapping[str, Any]) -> float | None: ...

    def constant(self, settings: Mapping[str, Any]) -> float | None: ...

    def cell(self, settings: Mapping[str, Any]) -> str: ...


@dataclass(frozen=True)
class DataFile:
    """The data of a run, identified by its checksum."""

    name: str
    md5: str


def read_checked(path: Path, known: Mapping[str, str]) -> tuple[bytes, DataFile]:
    """A file and its name; `known` maps md5 sums to names, any other file is "unverified"."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    if not content:
        raise DataError(f"{path} is empty")
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return content, DataFile(known.get(md5, f"unverified {path.name}"), md5)


class LabTask(Judged, ABC):
    """A task that is a `Problem` per run, trained by the common loop."""

    about: str
    datasets: tuple[str, ...]
    needs_data: bool = False
    budget: Budget
    #: Epochs of a typical run, for estimates; a run stops by its own rule.
    expected_epochs: int

    @abstractmethod
    def problem(self, settings: LabSettings, data: Path | None) -> tuple[Problem, DataFile]:
        """The data and the untrained model of a run."""

    @abstractmethod
    def protocol(self) -> dict[str, Any]:
        """The fixed settings of the task, for the record."""

    def settings(self, plain: Mapping[str, Any]) -> LabSettings:
        """Settings of this task; SettingsError when its data has another name."""
        found = LabSettings.from_plain(plain)
        if found.dataset not in self.datasets:
            raise SettingsError(
                f"dataset must be one of {', '.join(self.datasets)}, got {found.dataset!r}"
            )
        return found

    def run(
        self, settings: LabSettings, data: Path | None, on_epoch: OnEpoch | None = None
    ) -> Record:
        """Train and test; the record of the run."""
        return self.train(settings, data, on_epoch)[0]

    def has_look(self, settings: LabSettings) -> bool:
        """Whether `look` shows anything of such a model."""
        return False

    def look(self, settings: LabSettings, problem: Problem) -> tuple[str, bytes]:
        """What a trained model has learned, in words and as a PNG."""
        raise NotImplementedError

    def train(
        self,
        settings: LabSettings,
        data: Path | None,
        on_epoch: OnEpoch | None = None,
        checkpoint: Path | None = None,
    ) -> tuple[Record, Problem]:
        """As `run`; then the problem with the trained model. Continues from a checkpoint's file."""
        report = None if on_epoch is None else lambda n, curve: on_epoch(n, curve.validation[-1])
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
            problem, named = self.problem(settings, data)
            described = {
                "settings": settings.plain(),
                "data": asdict(named),
                "protocol": {**self.protocol(), **budget_protocol(problem.budget)},
            }
            file = None if checkpoint is None else Checkpoint(checkpoint, described)
            outcome, curve, spent = run_problem(problem, settings, report, file)
        record = {
            "format": FORMAT,
            **described,
            "environment": {**environment(), "load": round(os.getloadavg()[0], 2)},
            "outcome": asdict(outcome),
            "history": asdict(curve),
            "seconds": round(spent.wall, 3),
            "cpu_seconds": round(spent.processor, 3),
        }
        return record, problem

    def score(self, record: Record) -> tuple[float, float]:
        """Infinite for a target that was not reached."""
        error, steps = (record["outcome"][name] for name in ("validation", "steps_to_target"))
        return math.inf if error is None else error, math.inf if steps is None else steps

    def seconds(self, settings: LabSettings, data: Path | None) -> float:
        """Measured: a few steps and one validation, times the epochs of a typical run."""
        with torch.random.fork_rng(devices=[]):
            problem, _ = self.problem(settings, data)
            batches = list(problem.batches(1))
            weights = list(problem.model.parameters())
            optimizer = make_optimizer(problem.budget, weights, settings.lr)
            step = _mean_time(lambda batch: train_step(problem, batch, optimizer), batches[:4])
            problem.model.eval()
            with torch.no_grad():
                began = time.process_time()
                problem.validate()
            validation = time.process_time() - began
        return self.expected_epochs * (len(batches) * step + validation)


def _mean_time(action: Callable[[Any], object], values: list[Any]) -> float:
    """Mean processor time of an action, after one to warm up."""
    action(values[0])
    began = time.process_time()
    for value in values:
        action(value)
    return (time.process_time() - began) / len(values)
