"""The arms of a study with their final runs, and the measure that decides on each task."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rotcell.lab.cells import CELLS
from rotcell.lab.sweep.study import FIRST_TUNING_SEED, Block, Known, Plain, full_key
from rotcell.lab.task import Record
from rotcell.lab.tasks import find


@dataclass(frozen=True)
class Measure:
    """What decides a comparison on a task."""

    name: str  # in a record's test results
    label: str
    margin: float  # a smaller difference is a tie
    is_better: int  # 1 if more is better, -1 if less is
    scale: float = 1.0  # of the numbers shown


#: By task. State tracking is judged by the share of seeds that solve it.
MEASURES: Final[Mapping[str, Measure]] = {
    "babi": Measure("accuracy", "accuracy in %, mean over tasks", 0.01, 1, 100),
    "music": Measure("nll", "nats per step", 0.05, -1),
    "text": Measure("bits_per_character", "bits per character", 0.01, -1),
    "ptb_words": Measure("perplexity", "perplexity", 1.0, -1),
    "ptb_characters": Measure("bits_per_character", "bits per character", 0.01, -1),
    "pixels": Measure("accuracy", "accuracy in %", 0.003, 1, 100),
    "copying": Measure("accuracy", "accuracy in %", 0.01, 1, 100),
    "recall": Measure("accuracy", "accuracy in %", 0.01, 1, 100),
}


@dataclass(frozen=True)
class Arm:
    """The final runs of a layer in a block, by seed (bAbI: by seed and task)."""

    settings: Plain
    records: Mapping[tuple[int, ...], Record]
    is_whole: bool

    @property
    def title(self) -> str:
        """Layer, size, and where the angles start."""
        words = self.settings["cell"], self.size, self.settings.get("start", "")
        return " ".join(str(word) for word in words if word)

    @property
    def size(self) -> int:
        """Hidden units."""
        return int(str(self.settings.get("size", self.settings.get("state_size"))))

    def values(self, name: str) -> dict[tuple[int, ...], float]:
        """One of the test results of every run."""
        tests = {key: record["outcome"]["test"] for key, record in self.records.items()}
        return {key: t[name] if isinstance(t, dict) else t for key, t in tests.items()}


def arm_of(block: Block, arms: Sequence[Plain], known: Known) -> Arm | None:
    """The final runs of one arm, or of several that differ in their task; None without any."""
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
    return Arm(dict(arms[0]), records, is_whole) if records else None


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


def arms_of_cell(block: Block, cell: str, known: Known) -> list[Arm]:
    """The arms of a layer: of a rotating one the chosen start, of a plain one each size."""
    arms = [arm for arm in block.arms if arm["cell"] == cell]
    if block.task == "babi":
        found = [arm_of(block, arms, known)] if arms else []
    elif arms and CELLS[cell].rotating:
        found = [arm_of(block, [min(arms, key=lambda arm: _validation(block, arm, known))], known)]
    else:
        found = [arm_of(block, [arm], known) for arm in arms]
    return [arm for arm in found if arm is not None]


def starts_of_cell(block: Block, cell: str, known: Known) -> list[Arm]:
    """The arms of a rotating layer, one per start of the angles; none for a plain layer or bAbI."""
    if not CELLS[cell].rotating or block.task == "babi":
        return []
    found = [arm_of(block, [arm], known) for arm in block.arms if arm["cell"] == cell]
    return [arm for arm in found if arm is not None]
