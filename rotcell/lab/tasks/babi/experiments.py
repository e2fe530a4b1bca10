"""The paper's experiments as lists of runs, and what a folder of runs was meant to hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rotcell.lab.errors import SettingsError
from rotcell.lab.files import write_atomically
from rotcell.lab.tasks.babi.data.catalog import ALL_TASKS
from rotcell.lab.tasks.babi.settings import PAPER_BATCH, RunSettings

FORMAT: Final = "rotcell bAbI plan 2"
PAPER_SIZE: Final = 50


@dataclass(frozen=True)
class Experiment:
    """What is compared; each part but the name can be changed on the command line."""

    name: str
    about: str
    cells: tuple[str, ...]
    gates: str = "hard_sigmoid"
    angle: str = "sigmoid"
    batch: int = PAPER_BATCH
    sizes: tuple[int, ...] = (PAPER_SIZE,)
    tasks: tuple[int, ...] = ALL_TASKS
    seeds: int = 10
    packed: bool = False  # real lengths instead of padding
    baseline: str | None = None  # the experiment with the same cells, without the change
    study_file: str | None = None  # the file of a study that has the runs as well

    @property
    def by_size(self) -> bool:
        """Whether it is about the size of the state."""
        return len(self.sizes) > 1


EXPERIMENTS: Final = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "lstm",
            "LSTM and RotLSTM, the paper's protocol, hard gates assumed",
            ("lstm", "rotlstm"),
        ),
        Experiment(
            "lstm-sigmoid",
            "LSTM and RotLSTM with sigmoid gates",
            ("lstm", "rotlstm"),
            "sigmoid",
            seeds=5,
            baseline="lstm",
        ),
        Experiment(
            "gru", "GRU and RotGRU, the paper's protocol, hard gates assumed", ("gru", "rotgru")
        ),
        Experiment(
            "state-size",
            "accuracy over state size, on the tasks that the paper speaks of",
            ("lstm", "rotlstm"),
            sizes=(6, 10, 14, 20, 30, 40, 50),
            tasks=(1, 4, 5, 7, 11, 12, 13, 18, 20),
            seeds=5,
        ),
        Experiment(
            "hard-angle",
            "RotLSTM with hard gates and a hard angle",
            ("rotlstm",),
            angle="hard_sigmoid",
            tasks=(4, 7, 18),
            seeds=3,
            baseline="lstm",
        ),
        Experiment(
            "batch-64",
            "LSTM and RotLSTM with twice the batch, so half the steps",
            ("lstm", "rotlstm"),
            batch=64,
            tasks=(4, 5, 7, 8, 18),
            seeds=3,
            baseline="lstm",
        ),
        Experiment(
            "packed",
            "LSTM and RotLSTM without padding, otherwise the paper's protocol",
            ("lstm", "rotlstm"),
            seeds=5,
            packed=True,
            baseline="lstm",
            study_file="packed-sizes",
        ),
    )
}


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment."""

    experiment: Experiment
    runs: tuple[RunSettings, ...]
    data: tuple[str, ...]  # what the runs are made on, in words

    def merged(self, other: Plan) -> Plan:
        """Both plans in one; SettingsError when their runs would not compare."""
        mine, yours = (replace(plan.runs[0], **_FREE) for plan in (self, other))
        difference = mine.difference(yours)
        if difference:
            raise SettingsError(f"has runs with other settings: {difference}")
        if set(self.data) != set(other.data):
            raise SettingsError(
                f"has runs on other data: {' and '.join(self.data)}, and not "
                f"{' and '.join(other.data)}"
            )
        return Plan(self.experiment, tuple(dict.fromkeys(other.runs + self.runs)), self.data)

    def save(self, folder: Path) -> None:
        """Write next to the results."""
        content = {
            "format": FORMAT,
            "experiment": self.experiment.name,
            "data": self.data,
            "runs": [run.plain() for run in self.runs],
        }
        write_atomically(
            plan_file(folder, self.experiment.name), (json.dumps(content) + "\n").encode()
        )


# What may differ between runs of one plan.
_FREE: Final[dict[str, Any]] = {
    "task": 1,
    "cell": "rotlstm",
    "state_size": PAPER_SIZE,
    "seed": 0,
    "packed": False,
}


def make_plan(
    experiment: Experiment,
    *,
    tasks: Sequence[int] | None = None,
    seeds: int | None = None,
    sizes: Sequence[int] | None = None,
    cells: Sequence[str] | None = None,
    gates: str | None = None,
    angle: str | None = None,
    batch: int | None = None,
    packed: bool = False,
    data: Sequence[str] = (),
    **common: Any,
) -> Plan:
    """All runs, seed by seed, so that an interrupted sweep has covered every task equally."""
    common |= {
        "gates": gates or experiment.gates,
        "angle": angle or experiment.angle,
        "batch": batch or experiment.batch,
        "packed": packed or experiment.packed,
    }
    runs = tuple(
        RunSettings(task, cell, size, seed, **common)
        for seed in range(experiment.seeds if seeds is None else seeds)
        for task in tasks or experiment.tasks
        for size in sizes or experiment.sizes
        for cell in cells or experiment.cells
    )
    if not runs:
        raise SettingsError("there is nothing to run")
    return Plan(experiment, runs, tuple(data))


def plan_file(folder: Path, experiment: str) -> Path:
    """Where the plan of an experiment is kept."""
    return folder / f"{experiment}.json"


def load_plan(path: Path) -> Plan:
    """Read a plan; SettingsError names the file when it is not one."""
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise ValueError("unknown format")
        runs = tuple(RunSettings.from_plain(run) for run in content["runs"])
        return Plan(EXPERIMENTS[content["experiment"]], runs, tuple(content["data"]))
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path} is not the plan of a sweep, or is damaged: {error}") from None


def plans_in(folder: Path) -> Iterable[Plan]:
    """The plans of all experiments in a folder."""
    for name in EXPERIMENTS:
        path = plan_file(folder, name)
        if path.exists():
            yield load_plan(path)
