"""Anchors: printed results that must be reached before other numbers are believed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from rotcell.lab import lines, tasks
from rotcell.lab.cells import CELLS
from rotcell.lab.judged import Anchor, Measure
from rotcell.lab.report.statistics import Moments, mean_interval
from rotcell.lab.sweep.store import Store
from rotcell.lab.sweep.study import FIRST_TUNING_SEED, key_of
from rotcell.lab.task import Record, Task

HEAD = ("task", "layer", "printed", "accepted", "here: mean over seeds", "seeds", "")
NOT_RUN = "not run"


def anchors(folder: Path) -> str:
    """Markdown: a row per anchor and layer, from all records of the task in the folder."""
    rows = [HEAD, ("---",) * len(HEAD)]
    notes = []
    for name in tasks.names():
        task = tasks.find(name)
        records = _final(folder / name / "runs") if task.anchors else []
        for anchor in task.anchors:
            rows += _rows(task, anchor, records)
            notes.append(f"- {_title(task, anchor)}: {anchor.source}.")
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\nSources of the printed results:\n\n" + "\n".join(notes)


def _title(task: Task, anchor: Anchor) -> str:
    return f"{task.name}: {anchor.dataset}"


def _final(runs: Path) -> list[Record]:
    """The final runs in all files of a task."""
    stems = sorted({lines.stem(path) for path in runs.glob("*") if lines.is_lines(path)})
    found = {
        key_of(record["settings"]): record
        for stem in stems
        for record in Store(runs / f"{stem}{lines.PLAIN}").records
    }
    return [each for each in found.values() if each["settings"]["seed"] < FIRST_TUNING_SEED]


def _rows(task: Task, anchor: Anchor, records: list[Record]) -> Iterator[tuple[str, ...]]:
    measure = task.measure
    accepted = f"{anchor.low:g} to {anchor.high:g}"
    first = _title(task, anchor), CELLS[anchor.cell].title
    arms: dict[str, list[Record]] = {}
    for record in records:
        settings = record["settings"]
        if (task.cell(settings), settings.get("dataset")) == (anchor.cell, anchor.dataset):
            own = {name: value for name, value in settings.items() if name != "seed"}
            arms.setdefault(key_of(own), []).append(record)
    if not arms:
        yield *first, anchor.printed, accepted, NOT_RUN, "", ""
    for same in sorted(arms.values(), key=lambda some: int(some[0]["settings"]["size"])):
        values = [measure.scale * record["outcome"]["test"][measure.name] for record in same]
        settings = same[0]["settings"]
        layer = f"{first[1]}, {settings['size']} units"
        entries = layer, anchor.printed, accepted, _mean(values), str(len(values))
        yield first[0], *entries, _verdict(measure, anchor, statistics.fmean(values))


def _mean(values: list[float]) -> str:
    found = Moments.of(values)
    if found is None:
        return f"{values[0]:.3f}"
    low, high = mean_interval(found)
    return f"{found.mean:.3f} [{low:.3f}, {high:.3f}]"


def _verdict(measure: Measure, anchor: Anchor, mean: float) -> str:
    if anchor.low <= mean <= anchor.high:
        return "reached"
    is_better = mean > anchor.high if measure.is_better > 0 else mean < anchor.low
    return "better than printed" if is_better else "not reached"
