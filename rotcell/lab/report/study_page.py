"""The page of a study: rotating layers against plain ones, as results/PROTOCOL.md plans it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rotcell.lab.cells import CELLS
from rotcell.lab.files import write_atomically
from rotcell.lab.report.arms import MEASURES, Arm, Measure, arms_of_cell
from rotcell.lab.report.overview import overview, rows_of
from rotcell.lab.report.statistics import Difference, compare_pairs, sign_test
from rotcell.lab.report.study_figures import study_figures
from rotcell.lab.report.study_table import study_table
from rotcell.lab.sweep.queue import Queue
from rotcell.lab.sweep.study import Block, Known, Study
from rotcell.lab.task import Record
from rotcell.lab.tasks import names

#: The rotating layer and the plain one that it is compared with.
PAIRS: Final = (
    *((name, cell.plain) for name, cell in CELLS.items() if cell.rotating and cell.plain),
    ("rotgru", "gru"),
)
#: What was found, in words: written by hand, in the folder of the records.
ANSWER: Final = "answer.md"
UNFINISHED: Final = "under way"
PAGE: Final = """# What is rotation for?

Study `{study}`: {about}. {done} runs are finished and {left} are to come.
[The protocol](PROTOCOL.md) was written before the first of them. This page is made by
`rotcell-lab report results --study {study} --out results`.

{answer}## All tasks at a glance

{overview}

{figures}## Rotating and plain layers

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


def _rows(block: Block, known: Known) -> Iterator[tuple[str, ...]]:
    for rotating, plain in PAIRS:
        for turned in arms_of_cell(block, rotating, known):
            for other in arms_of_cell(block, plain, known):
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


def write_study(study: Study, folder: Path, out: Path) -> Path:
    """Write the page and its figures; returns where the page is."""
    queue = Queue(study, folder, dict.fromkeys(names(), folder))
    figures = list(study_figures(rows_of(queue)))
    out.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        write_atomically(out / f"{figure.name}.png", figure.png)
    shown = "".join(f"![{f.caption}]({f.name}.png)\n\n*{f.caption}*\n\n" for f in figures)
    page = out / "README.md"
    page.write_text(study_page(study, folder, shown), encoding="utf-8")
    return page


def study_page(study: Study, folder: Path, figures: str = "") -> str:
    """Markdown: all tasks at a glance, the comparisons that were planned, then every arm."""
    queue = Queue(study, folder, dict.fromkeys(names(), folder))
    head = ("task", "rotating", "plain", "rotating: result", "plain: result", "verdict", "steps")
    rows = [row for block in queue.blocks for row in _rows(block, queue.known(block))]
    files = {(block.task, block.file): block for block in queue.blocks}
    done = sum(len(queue.known(block)) for block in files.values())
    left = sum(len(queue.pending(block)) for block in queue.blocks)
    lines = [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
    answer = folder / ANSWER
    return PAGE.format(
        study=study.name,
        about=study.about,
        done=done,
        left=left,
        answer=answer.read_text(encoding="utf-8").strip() + "\n\n" if answer.is_file() else "",
        overview=overview(queue),
        figures=figures,
        comparisons="\n".join(lines),
        tables=study_table(study, folder),
    )
