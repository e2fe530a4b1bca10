"""Studies: what is compared, with which grids and seeds, in which order.

Settings such as the learning rate are chosen per arm on validation, with separate seeds; then
the arm is run with the final seeds. Which runs come next depends on the records so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, Final

from rotcell.lab.errors import SettingsError
from rotcell.lab.task import Record
from rotcell.lab.tasks import find

#: Rates that a grid widens to, one step at a time, when the best one is at its edge.
LADDER: Final = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
#: Seeds from here on choose settings and are never reported.
FIRST_TUNING_SEED: Final = 100

Plain = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run of a study, ready to be sent to a worker."""

    task: str
    file: str  # under results/TASK/runs
    key: str  # the settings as JSON

    @property
    def settings(self) -> Plain:
        """As JSON has them."""
        found: Plain = json.loads(self.key)
        return found

    @property
    def name(self) -> str:
        """For logs and locks."""
        return f"{self.task}/{self.file} {self.key}"


def key_of(settings: Mapping[str, Any]) -> str:
    """Equal for equal settings, whatever the order of their names."""
    return json.dumps(settings, sort_keys=True)


@cache
def _full_key(task: str, key: str) -> str:
    return key_of(find(task).settings(json.loads(key)).plain())


def full_key(task: str, settings: Mapping[str, Any]) -> str:
    """The key of settings of a task with all that they leave to its defaults."""
    return _full_key(task, key_of(settings))


#: The records of a task's file by the settings' key.
Known = Mapping[str, Record]


@dataclass(frozen=True)
class Block:
    """Runs that are compared with each other."""

    task: str
    file: str
    about: str
    arms: tuple[Plain, ...]  # all settings but those of the grid, and the seed
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    tuning_seeds: int = 2
    seeds: int = 10

    @property
    def description(self) -> str:
        """For people, and to name the block by a part of it."""
        return f"{self.task}: {self.about}"

    @property
    def title(self) -> str:
        """The description without the layers, such as "groups: mod5, 8 units"."""
        head, units, _ = self.description.partition(" units")
        return head + units

    def ready(self, known: Known) -> Iterator[Plain]:
        """The runs that can be run now or have been, tuning first, seed by seed."""
        chosen: list[Plain] = []
        for arm in self.arms:
            runs, choice = self._tuning(arm, known)
            yield from runs
            if choice is not None:
                chosen.append({**arm, **choice})
        for seed in range(self.seeds):
            for settings in chosen:
                yield {**settings, "seed": seed}

    def all(self, known: Known) -> Iterator[Plain]:
        """All runs, as far as is known: what is not chosen yet is taken to be mid-grid."""
        for arm in self.arms:
            runs, choice = self._tuning(arm, known)
            yield from runs
            if choice is None:
                choice = {name: values[len(values) // 2] for name, values in self.grid.items()}
            for seed in range(self.seeds):
                yield {**arm, **choice, "seed": seed}

    def choice(self, arm: Plain, known: Known) -> Plain | None:
        """What was chosen for an arm; None while that is open."""
        return self._tuning(arm, known)[1]

    def _tuning(self, arm: Plain, known: Known) -> tuple[list[Plain], Plain | None]:
        """The tuning runs of an arm as far as they are decided, and the choice when it is made."""
        if not self.grid:
            return [], {}
        grid = dict(self.grid)
        widened = {"down": False, "up": False}
        while True:
            points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
            runs = [
                {**arm, **point, "seed": FIRST_TUNING_SEED + seed}
                for seed in range(self.tuning_seeds)
                for point in points
            ]
            scores = [self._score(arm, point, known) for point in points]
            if any(score is None for score in scores):
                return runs, None
            best = points[min(range(len(points)), key=lambda i: scores[i] or ())]
            wider = _wider(grid["lr"], best["lr"], widened) if "lr" in grid else None
            if wider is None:
                return runs, best
            grid["lr"] = wider

    def _score(self, arm: Plain, point: Plain, known: Known) -> tuple[float, ...] | None:
        """Mean validation error over the tuning seeds, then steps to the target; less is better."""
        errors, steps = [], []
        for seed in range(self.tuning_seeds):
            record = known.get(
                full_key(self.task, {**arm, **point, "seed": FIRST_TUNING_SEED + seed})
            )
            if record is None:
                return None
            error, step = find(self.task).score(record)
            errors.append(error)
            steps.append(step)
        return sum(errors) / len(errors), sum(steps) / len(steps), point.get("lr", 0.0)


def _wider(
    rates: Sequence[float], best: float, widened: dict[str, bool]
) -> tuple[float, ...] | None:
    """The rates with one more beyond the best, if that is at an edge; once in each direction.

    A single rate is not a grid: it stays.
    """
    if len(rates) == 1:
        return None
    low, high = LADDER.index(min(rates)), LADDER.index(max(rates))
    if best == min(rates) and low > 0 and not widened["down"]:
        widened["down"] = True
        return (LADDER[low - 1], *rates)
    if best == max(rates) and high + 1 < len(LADDER) and not widened["up"]:
        widened["up"] = True
        return (*rates, LADDER[high + 1])
    return None


@dataclass(frozen=True)
class Study:
    """Blocks most informative first."""

    name: str
    about: str
    blocks: tuple[Block, ...]

    def only(self, parts: Sequence[str]) -> Study:
        """The blocks whose descriptions contain one of these texts, in the order of the texts."""
        found: list[Block] = []
        for part in parts:
            named = [block for block in self.blocks if part in block.description]
            if not named:
                listed = "".join(f"\n  {block.description}" for block in self.blocks)
                raise SettingsError(f"no block of {self.name} contains {part!r}:{listed}")
            found += [block for block in named if block not in found]
        return replace(self, blocks=tuple(found))
