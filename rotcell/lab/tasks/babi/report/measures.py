"""What the paper's text reports next to accuracy: how soon, how small, how overfitted."""

from __future__ import annotations

import math
import statistics
from typing import Final

from rotcell.lab.tasks.babi.experiments import PAPER_SIZE
from rotcell.lab.tasks.babi.report.summary import Summary

#: Runs of each cell to judge a task by.
FEWEST: Final = 3
#: "Top performance" is taken to be reached at this share of the best.
TOP: Final = 0.95


def top_validation(summary: Summary, task: int) -> float | None:
    """The best validation accuracy of a run, its mean over seeds, for the cell that has more."""
    means = []
    for cell in summary.cells:
        best = [max(r.history.validation) for r in summary.of(task, cell) if r.history]
        means += [statistics.fmean(best)] if best else []
    return max(means, default=None)


def epochs_to_top(summary: Summary, task: int, cell: str) -> list[float]:
    """For each run the first epoch with a validation accuracy of 95 % of the task's top.

    The top is the same for all cells of a task, so that a cell that learns nothing does not reach
    it at once; a run that never does counts as infinite.
    """
    top = top_validation(summary, task)
    found = []
    for result in summary.of(task, cell):
        assert result.history is not None
        assert top is not None
        curve = enumerate(result.history.validation, start=1)
        found.append(next((float(epoch) for epoch, a in curve if a >= TOP * top), math.inf))
    return found


def median_epochs(summary: Summary, task: int, cell: str) -> float | None:
    """The median over seeds; None without runs."""
    epochs = epochs_to_top(summary, task, cell)
    return statistics.median_high(epochs) if epochs else None


def mean_test(summary: Summary, task: int, cell: str, size: int = PAPER_SIZE) -> float | None:
    """Mean test accuracy in %; None without runs."""
    values = summary.values(task, cell, size)
    return statistics.fmean(values) if values else None


def sufficient_size(summary: Summary, task: int, cell: str) -> int | None:
    """The smallest state size whose mean accuracy is 95 % of the task's best; None if none has it.

    The best is that of all sizes and cells of the task.
    """
    means = {
        (each, size): mean_test(summary, task, each, size)
        for each in summary.cells
        for size in summary.sizes
    }
    best = max((mean for mean in means.values() if mean is not None), default=None)
    if best is None:
        return None
    enough = (
        size
        for size in summary.sizes
        if (mean := means[cell, size]) is not None and mean >= TOP * best
    )
    return next(enough, None)


def gaps(summary: Summary, task: int, cell: str) -> list[float]:
    """For each run the accuracy on training questions minus that on test ones, in points, at the
    last epoch: how much it has overfitted."""
    found = []
    for result in summary.of(task, cell):
        assert result.history is not None
        last = max(result.history.test)
        found.append(100 * (result.history.train[last - 1] - result.history.test[last]))
    return found
