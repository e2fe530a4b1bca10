"""The study in one table: a row per task and size, a column per cell."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rotcell.lab.cells import CELLS
from rotcell.lab.judged import Measure
from rotcell.lab.report.arms import Arm, arms_of_cell, cells_of, size_of
from rotcell.lab.report.statistics import Moments, mean_interval, wilson
from rotcell.lab.sweep.queue import Queue
from rotcell.lab.tasks import find

HEAD: Final = """\
{labels}

Intervals are 95 % intervals: of the share of seeds that solve a task (Wilson), or of the mean over
seeds. The best of a row is bold: most solved seeds, then fewest steps, or the best mean. Plain
layers have at least as many weights as the rotating layer next to them, if not noted otherwise.
Rows marked * are under way."""

#: The layers of the first table: the paper's.
MAIN: Final = ("lstm", "rotlstm", "gru", "classicgru", "rotgru")


@dataclass
class Row:
    """All cells on one task at one size."""

    task: str
    title: str  # such as "groups: mod5, 8 units"
    size: int
    arms: dict[str, Arm] = field(default_factory=dict)  # by cell

    @property
    def is_whole(self) -> bool:
        """Whether no run is missing of the cells that have any."""
        return all(arm.is_whole for arm in self.arms.values())


def rows_of(queue: Queue) -> list[Row]:
    """A row per task, dataset and size with final runs; blocks of other cells share it."""
    found: dict[str, Row] = {}
    for block in queue.blocks:
        known = queue.known(block)
        for cell in cells_of(block):
            arms = arms_of_cell(block, cell, known)
            if arms:
                largest = max(arms, key=lambda arm: arm.size)  # of a plain cell, the matched size
                size = min(map(size_of, block.arms))
                row = found.setdefault(block.title, Row(block.task, block.title, size))
                row.arms[cell] = largest
    return list(found.values())


def overview(queue: Queue) -> str:
    """Markdown: the paper's layers, then all others, then what they cost."""
    rows = rows_of(queue)
    if not rows:
        return "No final run has ended yet."
    shown = dict.fromkeys(row.task for row in rows)
    labels = "\n".join(f"- `{task}`: {find(task).measure.label}" for task in shown)
    parts = [HEAD.format(labels=labels)]
    mine = [row for row in rows if not _others(row)]
    others = [row for row in rows if _others(row)]
    parts += [_results(main_rows(mine + others))] if mine or others else []
    if others:
        parts += ["### Other rotating cells and layer norm", _results(others)]
    cells = _columns(rows)
    costs = list(_costs(rows, cells))
    if costs:
        about = (
            "Processor time per training step and number of weights, divided by those of the LSTM\n"
            "of the same row; without weights, time per run. The machine was in use by others."
        )
        head = _head(cells)
        parts += ["### What it costs", about, _table([*head, *costs])]
    return "\n\n".join(parts)


def _others(row: Row) -> set[str]:
    return set(row.arms) - set(MAIN)


def main_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows with the paper's layers alone; without those that are about other layers."""
    found = [replace(r, arms={c: a for c, a in r.arms.items() if c in MAIN}) for r in rows]
    return [row for row in found if any(CELLS[cell].rotating for cell in row.arms)]


def _columns(rows: Sequence[Row]) -> list[str]:
    return [cell for cell in CELLS if any(cell in row.arms for row in rows)]


def _head(cells: Sequence[str]) -> list[list[str]]:
    head = ["task", *(CELLS[cell].title for cell in cells)]
    return [head, ["---"] * len(head)]


def _results(rows: Sequence[Row]) -> str:
    cells = _columns(rows)
    lines = _head(cells)
    for row in rows:
        shown = _shown(row)
        title = row.title + ("" if row.is_whole else " *")
        lines.append([title, *(shown.get(cell, "") for cell in cells)])
    return _table(lines)


def _table(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(row: Row) -> dict[str, str]:
    entries, ranks = {}, {}
    for cell, arm in row.arms.items():
        entries[cell], ranks[cell] = _entry(find(row.task).measure, arm)
    best = max(ranks.values())
    return {cell: f"**{e}**" if ranks[cell] == best else e for cell, e in entries.items()}


def _entry(measure: Measure, arm: Arm) -> tuple[str, tuple[float, ...]]:
    """What the table shows, and what makes it the best of its row."""
    return (_counted if measure.counted else _measured)(measure, arm)


def _counted(measure: Measure, arm: Arm) -> tuple[str, tuple[float, ...]]:
    solved = arm.values(measure.name)
    number = sum(solved.values())
    steps = arm.steps_to_target()
    median = statistics.median(steps) if steps else None
    text = share(number, len(solved)) + ("" if median is None else f", {median:,.0f}")
    return text, (number / len(solved), 0.0 if median is None else -median)


def share(successes: float, number: int) -> str:
    """Such as 9/10 [0.60, 0.98]."""
    low, high = wilson(successes, number)
    return f"{successes:.0f}/{number} [{low:.2f}, {high:.2f}]"


def seed_means(arm: Arm, name: str) -> list[float]:
    """The mean of a measure for every seed; over the parts of a task, if none is missing."""
    by_seed: dict[int, list[float]] = {}
    for key, value in sorted(arm.values(name).items()):
        by_seed.setdefault(key[0], []).append(value)
    most = max(map(len, by_seed.values()))
    return [statistics.fmean(values) for values in by_seed.values() if len(values) == most]


def _measured(measure: Measure, arm: Arm) -> tuple[str, tuple[float, ...]]:
    means = [measure.scale * mean for mean in seed_means(arm, measure.name)]
    found, mean = Moments.of(means), statistics.fmean(means)
    digits = 1 if measure.scale > 1 else 3
    text = f"{mean:.{digits}f}"
    if found is not None:
        low, high = mean_interval(found)
        text += f" [{low:.{digits}f}, {high:.{digits}f}]"
    return text, (measure.is_better * mean,)


def _costs(rows: Sequence[Row], cells: Sequence[str]) -> Iterator[list[str]]:
    for row in rows:
        if "lstm" not in row.arms or len(row.arms) < 2:
            continue
        time, weights = _cost(row.arms["lstm"])
        shown = []
        for cell in cells:
            if cell not in row.arms:
                shown.append("")
                continue
            own_time, own_weights = _cost(row.arms[cell])
            text = f"{own_time / time:.2f}"
            if weights and own_weights:
                text += f", {own_weights / weights:.2f}"
            shown.append(text)
        yield [row.title, *shown]


def _cost(arm: Arm) -> tuple[float, int | None]:
    records = list(arm.records.values())
    steps = sum(record["outcome"].get("steps", 1) for record in records)
    weights = records[0]["outcome"].get("parameters")
    return sum(record["cpu_seconds"] for record in records) / steps, weights
