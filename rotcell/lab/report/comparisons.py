"""The planned comparisons of results/PROTOCOL.md: rotating against plain layers, and starts.

A comparison is primary if the plain layer is the largest of its block, which has at least as many
weights as the rotating one where the study has such a layer. The p-values of primary comparisons
are corrected by Holm's method within a numbered item of the protocol and a family of layers.
Verdicts are by the corrected values.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rotcell.lab.cells import CELLS
from rotcell.lab.judged import Measure
from rotcell.lab.report.arms import Arm, arms_of_cell, cells_of, starts_of_cell
from rotcell.lab.report.statistics import Difference, compare_pairs, holm, sign_test
from rotcell.lab.sweep.queue import Queue
from rotcell.lab.sweep.study import Block
from rotcell.lab.task import Record
from rotcell.lab.tasks import find

#: The rotating layer and the plain one that it is compared with.
PAIRS: Final = (
    *((name, cell.plain) for name, cell in CELLS.items() if cell.rotating and cell.plain),
    ("rotgru", "gru"),
)
LEVEL: Final = 0.05
UNFINISHED: Final = "under way"
UNDECIDED: Final = "undecided"
TIE: Final = "tie"


@dataclass(frozen=True)
class Evidence:
    """One number with its p-value, and what it would say if that is small enough."""

    shown: str
    p: float | None = None
    better: str = ""  # the verdict, if p stays below the level when corrected
    otherwise: str = UNDECIDED  # the verdict if it does not

    def verdict(self, p: float | None) -> str:
        """By the corrected p."""
        if p is None:
            return ""
        return self.better if p < LEVEL else self.otherwise


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
        return self.block.title

    @property
    def is_whole(self) -> bool:
        return self.one.is_whole and self.other.is_whole

    def family(self, kind: str) -> tuple[str, ...]:
        """The comparisons whose p-values are corrected together."""
        layers = "gru" if "gru" in self.one.cell else "lstm"
        if self.one.cell == self.other.cell:
            return kind, layers, "starts"
        return kind, layers, find(self.block.task).item(self.one.settings)


def comparisons(queue: Queue) -> list[Comparison]:
    """Every rotating layer against its plain ones, at the same size and with as many weights."""
    found: dict[tuple[str, str, str], Comparison] = {}
    for block in queue.blocks:
        known = queue.known(block)
        for rotating, plain in PAIRS:
            others = arms_of_cell(block, plain, known)
            for one in arms_of_cell(block, rotating, known):
                for other in others:
                    is_primary = CELLS[rotating].plain == plain
                    is_primary &= other is max(others, key=lambda arm: arm.size)
                    each = _compare(block, one, other, is_primary)
                    found.setdefault((each.title, one.title, other.title), each)
    return list(found.values())


def comparisons_of_starts(queue: Queue) -> list[Comparison]:
    """Item 7: the other starts of the angles against pi."""
    found: dict[tuple[str, str], Comparison] = {}
    for block in queue.blocks:
        known = queue.known(block)
        for cell in cells_of(block):
            arms = {str(a.settings["start"]): a for a in starts_of_cell(block, cell, known)}
            for arm in arms.values():
                if "pi" in arms and arm is not arms["pi"]:
                    each = _compare(block, arm, arms["pi"], is_primary=True)
                    found.setdefault((each.title, arm.title), each)
    return list(found.values())


def _compare(block: Block, one: Arm, other: Arm, is_primary: bool) -> Comparison:
    judge = _counted if find(block.task).measure.counted else _measured
    return Comparison(block, one, other, is_primary, *judge(block, one, other))


def _counted(block: Block, one: Arm, other: Arm) -> tuple[tuple[str, str], Evidence, Evidence]:
    """Share of solved seeds with McNemar's exact test, and the ratio of the steps to the target."""
    name = find(block.task).measure.name
    mine, yours = one.values(name), other.values(name)
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
    measure = find(block.task).measure
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
    margin = measure.margin * measure.scale
    # Not seeing a difference is not a tie: the interval must exclude one as large as the margin.
    otherwise = TIE if -margin < found.low and found.high < margin else UNDECIDED
    return results, Evidence(shown, found.p, _better(measure, found), otherwise), NOTHING


def _better(measure: Measure, found: Difference) -> str:
    if abs(found.mean) < measure.margin * measure.scale:
        return TIE
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
    "task", "rotating", "plain", "rotating: result", "plain: result", "difference", "p (corrected)",
    "verdict", "steps", "p of steps (corrected)", "verdict on steps",
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
            shown = "" if p is None else f"{_p(test.p)} ({_p(p)})"
            row += [test.shown, shown, "" if test.p is None else verdict]
        rows.append(tuple(row))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _p(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def headlines(found: Sequence[Comparison]) -> Iterator[str]:
    """What blocks say together: a sentence per rotating layer whose blocks have all ended."""
    together: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for each in found:
        headline = find(each.block.task).headline
        if headline is not None and each.is_primary:
            dataset = each.one.settings["dataset"]
            if dataset in headline.datasets and each.one.size in headline.sizes:
                together[each.block.task, each.one.cell].append(each)
    for (name, cell), some in together.items():
        task = find(name)
        headline = task.headline
        assert headline is not None
        blocks = len(headline.datasets) * len(headline.sizes)
        if len(some) < blocks or not all(each.is_whole for each in some):
            continue
        solved = task.measure.name
        counts = [solved_by_one(e.one.values(solved), e.other.values(solved)) for e in some]
        more, less = (sum(column) for column in zip(*counts, strict=True))
        seeds = sum(len(each.one.records) for each in some)
        p, gain = sign_test(more, less), (more - less) / seeds
        verdict = "helps" if p < LEVEL and gain >= headline.least_gain else "is not shown to help"
        yield (
            f"{CELLS[cell].title} with {_listed(headline.sizes)} units on "
            f"{_listed(headline.datasets)} together: of {seeds} "
            f"seeds, {more} are solved by it alone and {less} by the plain layer alone "
            f"({100 * gain:+.0f} points, p = {p:.2g}, McNemar). Rotation {verdict}: the protocol "
            f"asks for p < {LEVEL} and {100 * headline.least_gain:.0f} points."
        )


def _listed(values: Sequence[object]) -> str:
    *some, last = map(str, values)
    return f"{', '.join(some)} and {last}" if some else last
