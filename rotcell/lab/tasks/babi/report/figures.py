"""The paper's figures, drawn from a summary."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from rotcell.lab.errors import NotInstalledError
from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.data.catalog import TASK_NAMES
from rotcell.lab.tasks.babi.report.summary import Summary
from rotcell.lab.tasks.babi.sweep.results import Result

# The plain cell, the rotating one, and further ones.
_COLORS: Final = ("#1f6fb4", "#d9541e", "#3a923a", "#8064a2", "#7f7f7f", "#b8860b")
_MOST_COLUMNS: Final = 5
_STYLE: Final = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "rotcell",  # the same figure, the same bytes
}


_Panels = list[tuple[int, Any]]  # task, axes


class Picture(NamedTuple):
    """A figure in both formats."""

    name: str
    caption: str
    columns: int  # of panels
    png: bytes
    svg: bytes


class _Curve(NamedTuple):
    x: Sequence[float]
    mean: list[float]
    deviation: list[float]


def convergence(summary: Summary) -> Picture:
    """Accuracy over epochs, a panel a task."""
    with _panels(summary) as (figure, panels):
        for task, axes in panels:
            for cell, color in zip(summary.cells, _COLORS, strict=False):
                results = summary.of(task, cell)
                if results:
                    _draw_epochs(axes, results, CELLS[cell].title, color)
            axes.set_xlim(0, None)
        figure.supxlabel("epoch", fontsize=9)
        return _picture(
            figure,
            panels,
            f"{summary.title.replace(', ', '-')}-convergence",
            "Accuracy over epochs: training (dotted), validation (dashed) and test (dots; looked "
            "at every ten epochs). Lines are means over seeds, bands one standard deviation.",
        )


def _draw_epochs(axes: Any, results: Sequence[Result], name: str, color: str) -> None:
    histories = [result.history for result in results if result.history is not None]
    epochs = range(1, histories[0].epochs + 1)
    tested = sorted(histories[0].test)
    train = _curve(epochs, [history.train for history in histories])
    validation = _curve(epochs, [history.validation for history in histories])
    test = _curve(tested, [[history.test[epoch] for epoch in tested] for history in histories])
    _plot(axes, train, color, f"{name} train", band=0.10, linestyle=":", linewidth=1.1)
    _plot(axes, validation, color, f"{name} val", band=0.08, linestyle="--", linewidth=0.8)
    _plot(axes, test, color, f"{name} test", band=0.22, linewidth=1.6, marker="o", markersize=3.2)


def state_size(summary: Summary) -> Picture:
    """Test accuracy over the state size, a panel a task."""
    with _panels(summary) as (figure, panels):
        for task, axes in panels:
            for cell, color in zip(summary.cells, _COLORS, strict=False):
                values = {size: summary.values(task, cell, size) for size in summary.sizes}
                there = {size: found for size, found in values.items() if found}
                curve = _Curve(
                    list(there),
                    [statistics.fmean(found) for found in there.values()],
                    [statistics.stdev(v) if len(v) > 1 else 0.0 for v in there.values()],
                )
                _plot(axes, curve, color, CELLS[cell].title, band=0.2, marker="o", markersize=2.6)
        figure.supxlabel("state size", fontsize=9)
        return _picture(
            figure,
            panels,
            f"{summary.title.replace(', ', '-')}",
            "Test accuracy over the size of the state, at the epoch with the best validation "
            "accuracy. Lines are means over seeds, bands one standard deviation.",
        )


def _curve(x: Sequence[float], rows: Sequence[Sequence[float]]) -> _Curve:
    columns = [[100 * value for value in column] for column in zip(*rows, strict=True)]
    return _Curve(
        x,
        [statistics.fmean(column) for column in columns],
        [statistics.stdev(column) if len(column) > 1 else 0.0 for column in columns],
    )


def _plot(axes: Any, curve: _Curve, color: str, label: str, band: float, **style: Any) -> None:
    axes.plot(curve.x, curve.mean, color=color, label=label, **style)
    if any(curve.deviation):
        pairs = list(zip(curve.mean, curve.deviation, strict=True))
        low, high = [max(m - d, 0) for m, d in pairs], [min(m + d, 100) for m, d in pairs]
        axes.fill_between(curve.x, low, high, color=color, alpha=band, linewidth=0)


@contextmanager
def _panels(summary: Summary) -> Iterator[tuple[Any, _Panels]]:
    """A figure with a panel for every task that has results."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NotInstalledError("figures need matplotlib: pip install matplotlib") from error
    tasks = summary.tasks
    rows = math.ceil(len(tasks) / _MOST_COLUMNS)
    columns = math.ceil(len(tasks) / rows)  # no last row with a single panel if it can be helped
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(max(2.3 * columns, 4.6), 1.75 * rows + 1.0), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for unused in grid[len(tasks) :]:
            unused.remove()
        panels = list(zip(tasks, grid, strict=False))
        for task, axes in panels:
            axes.set_title(f"{task} {TASK_NAMES[task]}")
        figure.supylabel("accuracy, %", fontsize=9)
        yield figure, panels


def _picture(figure: Any, panels: _Panels, name: str, caption: str) -> Picture:
    _legend(figure, panels)
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=150)
    figure.savefig(svg, format="svg", metadata={"Date": None})
    columns = panels[0][1].get_gridspec().ncols
    return Picture(name, caption, columns, png.getvalue(), svg.getvalue())


def _legend(figure: Any, panels: _Panels) -> None:
    """One legend for all panels, which need not all have all lines; a row for each cell."""
    found: dict[str, Any] = {}
    for _, axes in panels:
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, line)
    rows: dict[str, list[str]] = {}
    for label in found:
        rows.setdefault(label.split()[0], []).append(label)
    # A legend fills up column by column.
    labels = [label for column in zip(*rows.values(), strict=True) for label in column]
    columns = len(labels) // len(rows) if len(labels) > len(rows) else len(labels)
    lines = [found[label] for label in labels]
    figure.legend(lines, labels, loc="outside upper center", ncols=columns)
