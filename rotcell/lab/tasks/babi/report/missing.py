"""Which runs of a sweep are missing, in words that stay short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.report.summary import Summary


def what_is_missing(summary: Summary) -> str:
    """Such as: Missing: 12 runs. LSTM: task 1 (2 runs), tasks 3-5, 9 (3 runs each)."""
    missing = summary.missing
    cells = []
    for cell in summary.cells:
        counts = Counter(run.task for run in missing if run.cell == cell)
        if counts:
            cells.append(f"{CELLS[cell].title}: {_tasks_by_count(counts)}")
    text = f"Missing: {_runs(len(missing))}. {'; '.join(cells)}."
    unseen = {run.task for run in summary.planned} - set(summary.tasks)
    if unseen and summary.tasks:
        text += f" Not in the table and the figure: {_tasks(unseen)}, without any result."
    return text


def _tasks_by_count(counts: Counter[int]) -> str:
    parts = []
    for count in sorted(set(counts.values())):
        tasks = [task for task in counts if counts[task] == count]
        parts.append(f"{_tasks(tasks)} ({_runs(count)}{' each' if len(tasks) > 1 else ''})")
    return ", ".join(parts)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _tasks(tasks: Iterable[int]) -> str:
    """Task numbers with runs of them drawn together: tasks 1, 3-5."""
    ranges: list[list[int]] = []
    for task in sorted(tasks):
        if ranges and ranges[-1][-1] == task - 1:
            ranges[-1].append(task)
        else:
            ranges.append([task])
    parts = [str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in ranges]
    several = len(ranges) > 1 or len(ranges[0]) > 1
    return f"{'tasks' if several else 'task'} {', '.join(parts)}"
