"""The paper's experiments as lists of runs, and what a folder of runs was meant to hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rotcell.babi.atomic import write_atomically
from rotcell.babi.catalog import ALL_TASKS
from rotcell.babi.settings import RunSettings, SettingsError

FORMAT: Final = "rotcell bAbI plan 1"
DEFAULT_SEEDS: Final = 10


@dataclass(frozen=True)
class Experiment:
    """Cells to compare, and at which state sizes."""

    name: str
    cells: tuple[str, str]
    sizes: tuple[int, ...]
    about: str


EXPERIMENTS: Final = {
    experiment.name: experiment
    for experiment in (
        Experiment("table1", ("lstm", "rotlstm"), (50,), "LSTM and RotLSTM"),
        Experiment("table2", ("gru", "rotgru"), (50,), "GRU and RotGRU"),
        Experiment(
            "state-size", ("lstm", "rotlstm"), tuple(range(6, 51, 2)), "accuracy over state size"
        ),
    )
}


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment."""

    experiment: Experiment
    runs: tuple[RunSettings, ...]
    sources: tuple[str, ...]  # of the data, in words; several when the plan grew

    def merged(self, other: Plan) -> Plan:
        """Both plans in one; SettingsError when their runs would not compare."""
        mine, yours = (replace(plan.runs[0], **_FREE) for plan in (self, other))
        difference = mine.difference(yours)
        if difference:
            raise SettingsError(f"has runs with other settings: {difference}")
        sources = dict.fromkeys([*other.sources, *self.sources])
        runs = dict.fromkeys(other.runs + self.runs)
        return Plan(self.experiment, tuple(runs), tuple(sources))

    def save(self, folder: Path) -> None:
        """Write beside the results."""
        content = {
            "format": FORMAT,
            "experiment": self.experiment.name,
            "sources": self.sources,
            "runs": [run.plain() for run in self.runs],
        }
        write_atomically(
            plan_file(folder, self.experiment.name), (json.dumps(content) + "\n").encode()
        )


# What may differ between runs of one plan.
_FREE: Final[dict[str, Any]] = {
    "task": 1,
    "cell": "lstm",
    "state_size": 50,
    "seed": 0,
    "packed": False,
}


def make_plan(
    experiment: Experiment,
    *,
    tasks: Sequence[int] = ALL_TASKS,
    seeds: int = DEFAULT_SEEDS,
    sizes: Sequence[int] | None = None,
    source: str = "generated",
    **common: Any,
) -> Plan:
    """All runs, seed by seed, so that a sweep cut short has seen every task alike."""
    runs = tuple(
        RunSettings(task, cell, size, seed, **common)
        for seed in range(seeds)
        for task in tasks
        for size in sizes or experiment.sizes
        for cell in experiment.cells
    )
    if not runs:
        raise SettingsError("there is nothing to run")
    return Plan(experiment, runs, (source,))


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
        return Plan(EXPERIMENTS[content["experiment"]], runs, tuple(content["sources"]))
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path} is not the plan of a sweep, or is damaged: {error}") from None


def plans_in(folder: Path) -> Iterable[Plan]:
    """The plans of all experiments in a folder."""
    for name in EXPERIMENTS:
        path = plan_file(folder, name)
        if path.exists():
            yield load_plan(path)
