"""The page of a study: rotating layers against plain ones, as results/PROTOCOL.md plans it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rotcell.lab.cells import CELLS
from rotcell.lab.report.statistics import Difference, compare_pairs, sign_test
from rotcell.lab.report.study_table import study_table
from rotcell.lab.sweep.queue import Queue
from rotcell.lab.sweep.study import FIRST_TUNING_SEED, Block, Known, Plain, Study, full_key
from rotcell.lab.task import Record
from rotcell.lab.tasks import find, names


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
    "copying": Measure("accuracy", "accuracy in %", 0.01, 1, 100),
    "recall": Measure("accuracy", "accuracy in %", 0.01, 1, 100),
}
#: The rotating layer and the plain one that it is compared with.
PAIRS: Final = (("rotlstm", "lstm"), ("rotgru", "classicgru"), ("rotgru", "gru"))
UNFINISHED: Final = "under way"
PAGE: Final = """# What is rotation for?

Study `{study}`: {about}. {done} runs are finished and {left} are to come.
[The protocol](PROTOCOL.md) was written before the first of them. This page is made by
`rotcell-lab report results --study {study} --out results`.

## Rotating and plain layers

Of two plain layers, the larger one has at least as many weights as the rotating layer; it is the
primary comparison. A rotating layer has the start of the angles that was best on validation.

- State tracking (`groups`): how many seeds solve the task, with McNemar's exact test, not corrected
  for the number of tests. Steps: the ratio of the steps to the target over the seeds where both
  layers solve it, with its 95 % interval. Below 1 the rotating layer is faster.
- Other tasks: the paired difference with its 95 % interval.

{comparisons}

## All layers

Mean ± standard deviation over the final seeds.

{tables}
"""


@dataclass(frozen=True)
class Arm:
    """The final runs of a layer in a block, by seed (bAbI: by seed and task)."""

    settings: Plain
    records: Mapping[tuple[int, ...], Record]
    is_whole: bool

    @property
    def title(self) -> str:
        """Layer, size, and where the angles start."""
        size = self.settings.get("size", self.settings.get("state_size"))
        return " ".join(
            str(w) for w in (self.settings["cell"], size, self.settings.get("start", "")) if w
        )

    def values(self, name: str) -> dict[tuple[int, ...], float]:
        """One of the test results of every run."""
        tests = {key: record["outcome"]["test"] for key, record in self.records.items()}
        return {key: t[name] if isinstance(t, dict) else t for key, t in tests.items()}


def _arm(block: Block, arms: Sequence[Plain], known: Known) -> Arm | None:
    """The runs of one arm; on bAbI of one for each task."""
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


def _of_cell(block: Block, cell: str, known: Known) -> list[Arm]:
    """The arms of a layer: of a rotating one the chosen start, of a plain one each size."""
    arms = [arm for arm in block.arms if arm["cell"] == cell]
    if block.task == "babi":
        found = [_arm(block, arms, known)] if arms else []
    elif arms and CELLS[cell].rotating:
        found = [_arm(block, [min(arms, key=lambda arm: _validation(block, arm, known))], known)]
    else:
        found = [_arm(block, [arm], known) for arm in arms]
    return [arm for arm in found if arm is not None]


def _rows(block: Block, known: Known) -> Iterator[tuple[str, ...]]:
    for rotating, plain in PAIRS:
        for turned in _of_cell(block, rotating, known):
            for other in _of_cell(block, plain, known):
                judge = _tracking if block.task == "groups" else _final
                title, _, _ = block.about.partition(" units")
                yield (
                    f"{block.task}: {title} units",
                    turned.title,
                    other.title,
                    *judge(block, turned, other),
                )


def _tracking(block: Block, one: Arm, other: Arm) -> tuple[str, ...]:
    """Share of solved seeds with McNemar's exact test, and the ratio of the steps to the target."""
    mine, yours = one.values("solved"), other.values("solved")
    both = sorted(mine.keys() & yours.keys())
    more = sum(mine[key] > yours[key] for key in both)
    less = sum(mine[key] < yours[key] for key in both)
    p = sign_test(more, less)
    logs = [
        math.log(_steps(one.records[key]) / _steps(other.records[key]))
        for key in both
        if mine[key] and yours[key]
    ]
    shown = tuple(f"{sum(v[key] for key in both):.0f} of {len(both)}" for v in (mine, yours))
    verdict = f"solved: p = {p:.3f}" if one.is_whole and other.is_whole else UNFINISHED
    return (*shown, verdict, _ratio(logs))


def _steps(record: Record) -> float:
    outcome = record["outcome"]
    return float(outcome.get("steps_to_target") or outcome["steps"])


def _ratio(logs: Sequence[float]) -> str:
    """The geometric mean of ratios, with its 95 % interval."""
    found = compare_pairs(logs, [0.0] * len(logs))
    if found is None:
        return "-"
    mean, low, high = (math.exp(x) for x in (found.mean, found.low, found.high))
    return f"{mean:.2f} [{low:.2f}, {high:.2f}], n = {len(logs)}"


def _final(block: Block, one: Arm, other: Arm) -> tuple[str, ...]:
    """Means, and the paired difference with its interval; seeds are the pairs."""
    measure = MEASURES[block.task]
    mine, yours = one.values(measure.name), other.values(measure.name)
    both = sorted(mine.keys() & yours.keys())
    seeds = sorted({key[0] for key in both})

    def by_seed(values: Mapping[tuple[int, ...], float]) -> list[float]:
        means = (statistics.fmean(values[k] for k in both if k[0] == seed) for seed in seeds)
        return [measure.scale * mean for mean in means]

    one_means, other_means = by_seed(mine), by_seed(yours)
    shown = tuple(f"{statistics.fmean(means):.3f}" for means in (one_means, other_means))
    difference = compare_pairs(one_means, other_means)
    if difference is None or not (one.is_whole and other.is_whole):
        return (*shown, UNFINISHED, "-")
    text = f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
    return (*shown, f"{_verdict(measure, difference)}: {text}, n = {len(seeds)}", "-")


def _verdict(measure: Measure, found: Difference) -> str:
    if found.low <= 0 <= found.high:
        return "undecided"
    if abs(found.mean) < measure.margin * measure.scale:
        return "tie"
    return "helps" if found.mean * measure.is_better > 0 else "hurts"


def study_page(study: Study, folder: Path) -> str:
    """Markdown: the comparisons that were planned, then every arm."""
    queue = Queue(study, folder, dict.fromkeys(names(), folder))
    head = ("task", "rotating", "plain", "rotating: result", "plain: result", "verdict", "steps")
    rows = [row for block in queue.blocks for row in _rows(block, queue.known(block))]
    files = {(block.task, block.file): block for block in queue.blocks}
    done = sum(len(queue.known(block)) for block in files.values())
    left = sum(len(queue.pending(block)) for block in queue.blocks)
    lines = [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
    return PAGE.format(
        study=study.name,
        about=study.about,
        done=done,
        left=left,
        comparisons="\n".join(lines),
        tables=study_table(study, folder),
    )
