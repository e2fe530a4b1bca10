"""Every layer of a study, as far as it has come: final seeds only."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rotcell.lab.cells import CELLS
from rotcell.lab.report.arms import Arm, arm_of, cells_of
from rotcell.lab.report.overview import share
from rotcell.lab.sweep.queue import Queue
from rotcell.lab.sweep.study import Block, Known, Plain
from rotcell.lab.tasks import find

HEAD: Final = ("layer", "chosen", "runs", "capped", "weights", "test", "steps to target")


def study_table(queue: Queue) -> str:
    """Markdown; blocks without a finished final run are left out."""
    tables: dict[str, list[Sequence[str]]] = {}
    for block in queue.blocks:
        make = _parts if find(block.task).pooled else _layers
        head, rows = make(block, queue.known(block))
        table = tables.setdefault(block.title, [head, ["---"] * len(head)])
        table += [row for row in rows if row not in table]
    parts = [
        f"## {title}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in table)
        for title, table in tables.items()
        if len(table) > 2
    ]
    return "\n\n".join(parts) or "No final run has ended yet."


def _layers(block: Block, known: Known) -> tuple[Sequence[str], list[Sequence[str]]]:
    """A row per layer and start of the angles."""
    rows: list[Sequence[str]] = []
    for settings in block.arms:
        arm, choice = arm_of(block, [settings], known), block.choice(settings, known)
        if arm is not None and choice is not None:
            rows.append(_row(block, arm, choice))
    return HEAD, rows


def _row(block: Block, arm: Arm, choice: Plain) -> Sequence[str]:
    outcomes = [record["outcome"] for record in arm.records.values()]
    chosen = ", ".join(f"{name} {value:g}" for name, value in choice.items())
    names = find(block.task).shown or tuple(outcomes[0]["test"])
    counted = {measure.name} if (measure := find(block.task).measure).counted else set()
    tested = ", ".join(
        f"{name} {(_solved if name in counted else _mean)([o['test'][name] for o in outcomes])}"
        for name in names
    )
    capped = sum(bool(outcome.get("capped")) for outcome in outcomes)
    weights = outcomes[0].get("parameters", "-")
    return (
        arm.title,
        chosen,
        str(len(outcomes)),
        str(capped),
        str(weights),
        tested,
        _steps(outcomes),
    )


def _steps(outcomes: Sequence[Mapping[str, Any]]) -> str:
    steps = [o["steps_to_target"] for o in outcomes if o.get("steps_to_target") is not None]
    return f"{statistics.median(steps):.0f} ({len(steps)} runs)" if steps else "-"


def _mean(values: Sequence[float], scale: float = 1, digits: int = 4) -> str:
    """Mean ± standard deviation (n - 1)."""
    values = [scale * value for value in values]
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def _solved(values: Sequence[float]) -> str:
    return share(sum(values), len(values))


def _parts(block: Block, known: Known) -> tuple[Sequence[str], list[Sequence[str]]]:
    """A row per part of the task: the measure of each layer."""
    task = find(block.task)
    measure = task.measure
    by_part: dict[str, list[str]] = {}
    for settings in block.arms:
        arm = arm_of(block, [settings], known)
        row = by_part.setdefault(", ".join(str(settings[name]) for name in task.pooled), [])
        values = [] if arm is None else list(arm.values(measure.name).values())
        row.append(_mean(values, measure.scale, 1) if values else "-")
    head = (f"{', '.join(task.pooled)}", *(CELLS[cell].title for cell in cells_of(block)))
    return head, [(part, *row) for part, row in by_part.items() if set(row) != {"-"}]


def layers_page(queue: Queue) -> Iterator[str]:
    """Markdown of the page of all layers."""
    yield "# Every layer of the study"
    yield (
        "Mean ± standard deviation over the final seeds, with the settings chosen on validation.\n"
        "[What they say](README.md)."
    )
    yield study_table(queue)
