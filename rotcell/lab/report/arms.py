"""The arms of a study with their final runs."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rotcell.lab.cells import CELLS
from rotcell.lab.sweep.study import FIRST_TUNING_SEED, Block, Known, Plain, full_key, key_of
from rotcell.lab.task import Record
from rotcell.lab.tasks import find


@dataclass(frozen=True)
class Arm:
    """The final runs of a layer in a block, by seed (and by part of the task, if it has parts)."""

    settings: Plain
    cell: str
    records: Mapping[tuple[int, ...], Record]
    is_whole: bool

    @property
    def title(self) -> str:
        """Layer, size, and where the angles start."""
        words = self.cell, self.size, self.settings.get("start", "")
        return " ".join(str(word) for word in words if word)

    @property
    def size(self) -> int:
        """Hidden units."""
        return size_of(self.settings)

    def values(self, name: str) -> dict[tuple[int, ...], float]:
        """One of the test results of every run."""
        tests = {key: record["outcome"]["test"] for key, record in self.records.items()}
        return {key: t[name] if isinstance(t, dict) else t for key, t in tests.items()}

    def steps_to_target(self) -> list[int]:
        """The training steps of the runs that reach the target."""
        steps = (record["outcome"].get("steps_to_target") for record in self.records.values())
        return [step for step in steps if step is not None]


def size_of(settings: Mapping[str, object]) -> int:
    """Hidden units."""
    return int(str(settings.get("size", settings.get("state_size"))))


def arm_of(block: Block, arms: Sequence[Plain], known: Known) -> Arm | None:
    """The final runs of one arm, or of several that are pooled; None without any."""
    records: dict[tuple[int, ...], Record] = {}
    is_whole = True
    for place, settings in enumerate(arms):
        choice = block.choice(settings, known)
        for seed in range(block.seeds):
            if choice is None:
                is_whole = False
                continue
            key = full_key(block.task, {**settings, **choice, "seed": seed})
            if key in known:
                records[seed, place] = known[key]
            else:
                is_whole = False
    # The mean over some parts of a task does not compare with the mean over all.
    parts = Counter(seed for seed, _ in records)
    records = {key: r for key, r in records.items() if parts[key[0]] == len(arms)}
    cell = find(block.task).cell(arms[0])
    return Arm(dict(arms[0]), cell, records, is_whole) if records else None


def _validation(block: Block, settings: Plain, known: Known) -> float:
    """The mean validation error over the tuning seeds, by which the angles' start is chosen."""
    choice = block.choice(settings, known)
    if not choice:  # open, or there is nothing to choose
        return math.inf
    errors = []
    for seed in range(block.tuning_seeds):
        key = full_key(block.task, {**settings, **choice, "seed": FIRST_TUNING_SEED + seed})
        errors.append(find(block.task).score(known[key])[0])
    return statistics.fmean(errors)


def cells_of(block: Block) -> list[str]:
    """The layers of a block, by their names in `CELLS`."""
    return list(dict.fromkeys(map(find(block.task).cell, block.arms)))


def _pools(block: Block, cell: str) -> list[list[Plain]]:
    """The arms of a layer; those that differ only in the part of the task are together."""
    task = find(block.task)
    found: dict[str, list[Plain]] = {}
    for arm in block.arms:
        if task.cell(arm) == cell:
            own = {name: value for name, value in arm.items() if name not in task.pooled}
            found.setdefault(key_of(own), []).append(arm)
    return list(found.values())


def arms_of_cell(block: Block, cell: str, known: Known) -> list[Arm]:
    """The arms of a layer: of a rotating one the chosen start, of a plain one each size."""
    pools = _pools(block, cell)
    if CELLS[cell].rotating and len(pools) > 1:
        pools = [min(pools, key=lambda arms: _validation(block, arms[0], known))]
    return [arm for arms in pools if (arm := arm_of(block, arms, known)) is not None]


def starts_of_cell(block: Block, cell: str, known: Known) -> list[Arm]:
    """The arms of a layer whose angles have a start, one per start."""
    found = [arm_of(block, arms, known) for arms in _pools(block, cell) if "start" in arms[0]]
    return [arm for arm in found if arm is not None]
