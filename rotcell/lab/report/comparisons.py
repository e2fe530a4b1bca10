"""The planned comparisons of results/PROTOCOL.md: rotating against plain layers, and starts.

A comparison is primary if the plain layer has at least as many weights as the rotating one (bAbI:
if it is its plain layer). The p-values of primary comparisons are corrected by Holm's method within
a numbered item of the protocol and a family of layers. Verdicts are by the corrected values.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rotcell.lab.cells import CELLS
from rotcell.lab.report.arms import MEASURES, Arm, arms_of_cell, starts_of_cell
from rotcell.lab.report.statistics import Difference, compare_pairs, holm, sign_test
from rotcell.lab.sweep.queue import Queue
from rotcell.lab.sweep.study import Block
from rotcell.lab.task import Record
from rotcell.lab.tasks.groups import CYCLIC

#: The rotating layer and the plain one that it is compared with.
PAIRS: Final = (
    *((name, cell.plain) for name, cell in CELLS.items() if cell.rotating and cell.plain),
    ("rotgru", "gru"),
)
LEVEL: Final = 0.05
UNFINISHED: Final = "under way"
UNDECIDED: Final = "undecided"
#: Item 1: the blocks that decide together, and by how much rotation must solve more.
SMALL_STATES: Final = frozenset(
    f"{name}, {size}" for name in ("mod5", "mod7", "s3") for size in (4, 8)
)
LEAST_GAIN: Final = 0.2


@dataclass(frozen=True)
class Evidence:
    """One number with its p-value, and what it would say if that is small enough."""

    shown: str
    p: float | None = None
    better: str = ""  # the verdict, if p stays below the level when corrected

    def verdict(self, p: float | None) -> str:
        """By the corrected p."""
        if p is None:
            return ""
        return self.better if p < LEVEL else UNDECIDED


NOTHING: Final = Evidence("-")


@dataclass(frozen=True)
class Comparison:
    """A rotating and a plain layer of a block, or two starts of the angles."""

    block: Block
    one: Arm
    other: Arm
    is_primary: bool
    results: tuple[str, str]
    final: Evidence
    speed: Evidence

    @property
    def title(self) -> str:
        """Such as "groups: mod5, 8 units"."""
        title, _, _ = self.block.about.partition(" units")
        return f"{self.block.task}: {title} units"

    @property
    def is_whole(self) -> bool:
        return self.one.is_whole and self.other.is_whole

    def family(self, kind: str) -> tuple[str, ...]:
        """The comparisons whose p-values are corrected together."""
        dataset = str(self.one.settings.get("dataset", ""))
        item = {"groups": "cyclic" if dataset in CYCLIC else "not commutative"}
        item |= dict.fromkeys(("copying", "recall"), "memory")
        item |= dict.fromkeys(("music", "text", "ptb_words", "ptb_characters"), "real data")
        layers = "gru" if "gru" in self.one.settings["cell"] else "lstm"
        return kind, layers, item.get(self.block.task, self.block.task)


def comparisons(queue: Queue) -> list[Comparison]:
    """Every rotating layer against its plain ones, at the same size and with as many weights."""
    found: dict[tuple[str, str, str], Comparison] = {}
    for block in queue.blocks:
        known = queue.known(block)
        for rotating, plain in PAIRS:
            others = arms_of_cell(block, plain, known)
            for one in arms_of_cell(block, rotating, known):
                for other in others:
                    is_primary = CELLS[rotating].plain == plain or block.task == "babi"
                    is_primary &= other is max(others, key=lambda arm: arm.size)
                    each = _compare(block, one, other, is_primary)
                    found.setdefault((each.title, one.title, other.title), each)
    return list(found.values())


def comparisons_of_starts(queue: Queue) -> list[Comparison]:
    """Item 7: the other starts of the angles against pi."""
    found: dict[tuple[str, str], Comparison] = {}
    for block in queue.blocks:
        known = queue.known(block)
        for cell in dict.fromkeys(arm["cell"] for arm in block.arms):
            arms = {str(a.settings["start"]): a for a in starts_of_cell(block, cell, known)}
            for arm in arms.values():
                if "pi" in arms and arm is not arms["pi"]:
                    each = _compare(block, arm, arms["pi"], is_primary=True)
                    found.setdefault((each.title, arm.title), each)
    return list(found.values())


def _compare(block: Block, one: Arm, other: Arm, is_primary: bool) -> Comparison:
    judge = _tracking if block.task == "groups" else _measured
    return Comparison(block, one, other, is_primary, *judge(block, one, other))


def _tracking(block: Block, one: Arm, other: Arm) -> tuple[tuple[str, str], Evidence, Evidence]:
    """Share of solved seeds with McNemar's exact test, and the ratio of the steps to the target."""
    mine, yours = one.values("solved"), other.values("solved")
    both = sorted(mine.keys() & yours.keys())
    more, less = solved_by_one(mine, yours)
    logs = [
        math.log(_steps(one.records[key]) / _steps(other.records[key]))
        for key in both
        if mine[key] and yours[key]
    ]
    results = tuple(f"{sum(v[key] for key in both):.0f} of {len(both)}" for v in (mine, yours))
    final = Evidence(
        f"{more - less:+d}", sign_test(more, less), "solves more" if more > less else "solves fewer"
    )
    return (results[0], results[1]), final, _ratio(logs)


def solved_by_one(
    mine: Mapping[tuple[int, ...], float], yours: Mapping[tuple[int, ...], float]
) -> tuple[int, int]:
    """How many seeds only the first solves, and how many only the second."""
    both = mine.keys() & yours.keys()
    return sum(mine[k] > yours[k] for k in both), sum(mine[k] < yours[k] for k in both)


def _steps(record: Record) -> float:
    outcome = record["outcome"]
    return float(outcome.get("steps_to_target") or outcome["steps"])


def _ratio(logs: Sequence[float]) -> Evidence:
    """The geometric mean of ratios, with its 95 % interval."""
    found = compare_pairs(logs, [0.0] * len(logs))
    if found is None:
        return NOTHING
    mean, low, high = (math.exp(x) for x in (found.mean, found.low, found.high))
    shown = f"{mean:.2f} [{low:.2f}, {high:.2f}], n = {len(logs)}"
    return Evidence(shown, found.p, "faster" if mean < 1 else "slower")


def _measured(block: Block, one: Arm, other: Arm) -> tuple[tuple[str, str], Evidence, Evidence]:
    """Means, and the paired difference with its interval; seeds are the pairs."""
    measure = MEASURES[block.task]
    mine, yours = one.values(measure.name), other.values(measure.name)
    both = sorted(mine.keys() & yours.keys())
    seeds = sorted({key[0] for key in both})
    if not seeds:
        return ("-", "-"), NOTHING, NOTHING

    def by_seed(values: Mapping[tuple[int, ...], float]) -> list[float]:
        means = (statistics.fmean(values[k] for k in both if k[0] == seed) for seed in seeds)
        return [measure.scale * mean for mean in means]

    one_means, other_means = by_seed(mine), by_seed(yours)
    results = f"{statistics.fmean(one_means):.3f}", f"{statistics.fmean(other_means):.3f}"
    found = compare_pairs(one_means, other_means)
    if found is None:
        return results, NOTHING, NOTHING
    shown = f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}], n = {len(seeds)}"
    return results, Evidence(shown, found.p, _better(block.task, found)), NOTHING


def _better(task: str, found: Difference) -> str:
    measure = MEASURES[task]
    if abs(found.mean) < measure.margin * measure.scale:
        return "tie"
    return "helps" if found.mean * measure.is_better > 0 else "hurts"


def corrected(found: Sequence[Comparison], kind: str) -> dict[int, float]:
    """The p-values of finished primary comparisons ("final" or "speed"), by their place."""
    families: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, each in enumerate(found):
        if each.is_primary and each.is_whole and getattr(each, kind).p is not None:
            families[each.family(kind)].append(place)
    values: dict[int, float] = {}
    for places in families.values():
        ps = holm([getattr(found[place], kind).p for place in places])
        values |= {place: p for place, p in zip(places, ps, strict=True) if p is not None}
    return values


HEAD: Final = (
    "task", "rotating", "plain", "rotating: result", "plain: result", "difference", "p", "verdict",
    "steps", "p of steps", "verdict on steps",
)  # fmt: skip


def table(found: Sequence[Comparison], head: Sequence[str] = HEAD) -> str:
    """Markdown, a row per comparison."""
    final, speed = corrected(found, "final"), corrected(found, "speed")
    rows = [head, ("---",) * len(head)]
    for place, each in enumerate(found):
        row = [each.title, each.one.title, each.other.title, *each.results]
        for test, ps in ((each.final, final), (each.speed, speed)):
            p = ps.get(place)
            verdict = test.verdict(p) if each.is_whole else UNFINISHED
            row += [test.shown, _p(p), "" if test.p is None else verdict]
        rows.append(tuple(row))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _p(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def small_states(found: Sequence[Comparison]) -> Iterator[str]:
    """Item 1's headline, a sentence per rotating layer whose blocks have all ended."""
    by_cell: dict[str, list[Comparison]] = defaultdict(list)
    for each in found:
        name = each.block.about.partition(" units")[0]
        if each.block.task == "groups" and each.is_primary and name in SMALL_STATES:
            by_cell[str(each.one.settings["cell"])].append(each)
    for cell, some in by_cell.items():
        if len(some) < len(SMALL_STATES) or not all(each.is_whole for each in some):
            continue
        counts = [
            solved_by_one(each.one.values("solved"), each.other.values("solved")) for each in some
        ]
        more, less = (sum(column) for column in zip(*counts, strict=True))
        seeds = sum(len(each.one.records) for each in some)
        p, gain = sign_test(more, less), (more - less) / seeds
        verdict = "helps" if p < LEVEL and gain >= LEAST_GAIN else "is not shown to help"
        yield (
            f"{CELLS[cell].title} with 4 and 8 units on mod5, mod7 and S3 together: of {seeds} "
            f"seeds, {more} are solved by it alone and {less} by the plain layer alone "
            f"({100 * gain:+.0f} points, p = {p:.2g}, McNemar). Rotation {verdict}: the protocol "
            f"asks for p < {LEVEL} and {100 * LEAST_GAIN:.0f} points."
        )
