"""Tables of a study, as far as it has come: a row per arm, final seeds only."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from rotcell.lab.sweep.queue import Queue
from rotcell.lab.sweep.study import Block, Plain, Study, full_key
from rotcell.lab.task import Record
from rotcell.lab.tasks import names


def study_table(study: Study, folder: Path) -> str:
    """Markdown; blocks without a finished final run are left out."""
    queue = Queue(study, folder, dict.fromkeys(names(), folder))
    parts = []
    for block in queue.blocks:
        rows = list(_rows(block, queue.known(block)))
        if rows:
            head = "| arm | chosen | runs | capped | weights | test | steps to target |"
            lines = (head, "|" + "---|" * 7, *rows)
            parts.append(f"### {block.task}: {block.about}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) or "No final run has ended yet."


def _rows(block: Block, known: dict[str, Record]) -> Iterator[str]:
    for arm in block.arms:
        choice = block.choice(arm, known)
        if choice is None:
            continue
        keys = (full_key(block.task, {**arm, **choice, "seed": s}) for s in range(block.seeds))
        records = [known[key] for key in keys if key in known]
        if records:
            yield _row(block, arm, choice, records)


def _row(block: Block, arm: Plain, choice: Plain, records: Sequence[Record]) -> str:
    same = {name for name in arm if len({str(each.get(name)) for each in block.arms}) == 1}
    title = " ".join(str(value) for name, value in arm.items() if name not in same)
    chosen = ", ".join(f"{name} {value:g}" for name, value in choice.items())
    outcomes = [record["outcome"] for record in records]
    first = outcomes[0]["test"]
    measures = [o["test"] if isinstance(first, dict) else {"accuracy": o["test"]} for o in outcomes]
    tested = ", ".join(
        f"{name} {_mean([measure[name] for measure in measures])}" for name in measures[0]
    )
    steps = [o["steps_to_target"] for o in outcomes if o.get("steps_to_target") is not None]
    median = f"{statistics.median(steps):.0f} ({len(steps)} runs)" if steps else "-"
    capped = sum(bool(o.get("capped")) for o in outcomes)
    weights = outcomes[0].get("parameters", "-")
    return f"| {title} | {chosen} | {len(records)} | {capped} | {weights} | {tested} | {median} |"


def _mean(values: Sequence[float]) -> str:
    """Mean ± standard deviation (n - 1)."""
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{spread}"
