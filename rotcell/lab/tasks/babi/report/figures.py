"""The paper's figures, drawn from a summary."""

from __future__ import annotations

import io
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from rotcell.lab.errors import NotInstalledError
from rotcell.lab.report.palette import color_of
from rotcell.lab.report.pictures import png
from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.data.catalog import TASK_NAMES
from rotcell.lab.tasks.babi.report.constant import constant_accuracy
from rotcell.lab.tasks.babi.report.paper import PRINTED
from rotcell.lab.tasks.babi.report.summary import Summary
from rotcell.lab.tasks.babi.sweep.results import Result

# The bAbI GRU is the classic one (reset before the matmul).
_PALETTE_NAMES: Final = {"gru": "classicgru", "gru-torch": "gru", "lstm-torch": "nn.LSTM"}
_CONSTANT: Final = "#555555"
_MOST_COLUMNS: Final = 4
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
    """Accuracy over epochs, one panel per task."""
    with _panels(summary) as (figure, panels):
        last = max((r.history.epochs for r in summary.results if r.history is not None), default=40)
        for task, axes in panels:
            _draw_constant(axes, summary, task)
            for place, cell in enumerate(summary.cells):
                results = summary.of(task, cell)
                if results:
                    shift = 1.2 * (place - (len(summary.cells) - 1) / 2)
                    _draw_epochs(axes, results, CELLS[cell].title, _color(cell), shift)
                if cell in PRINTED:
                    _draw_paper(axes, task, cell, 1.11 * last + 1.6 * place)
            axes.set_xlim(-0.5, 1.11 * last + 1.6 * len(summary.cells))
            axes.set_xticks(range(0, last + 1, 10) if last >= 10 else range(0, last + 1))
        figure.supxlabel("epoch", fontsize=9)
        return _picture(
            figure,
            panels,
            f"{summary.title.replace(', ', '-')}-convergence",
            "Accuracy over epochs. Lines: means over seeds in training (dotted) and validation "
            "(dashed). Dots: test, every ten epochs, mean ± one standard deviation. Open diamonds "
            "at the right: the paper's test accuracy and its standard deviation. Gray: always the "
            f"most frequent answer of the training questions. {_made_of(summary)}",
        )


def _color(cell: str) -> str:
    return color_of(_PALETTE_NAMES.get(cell, cell))


def _made_of(summary: Summary) -> str:
    """How many runs, and where they were computed."""
    runs = Counter(
        (r.settings.task, r.settings.cell, r.settings.state_size) for r in summary.results
    )
    counts = sorted(set(runs.values()))
    seeds = " or ".join(str(count) for count in counts)
    machines = sorted({str(result.environment.get("machine")) for result in summary.results})
    return f"n = {seeds} per cell and task. {', '.join(machines)}."


def _draw_constant(axes: Any, summary: Summary, task: int) -> None:
    constant = constant_accuracy(summary.data, task)
    if constant is not None:
        axes.axhline(constant, color=_CONSTANT, linewidth=0.8, label="constant answer")


def _draw_paper(axes: Any, task: int, cell: str, x: float) -> None:
    number, color = PRINTED[cell][task], _color(cell)
    style = {"markerfacecolor": "white", "markersize": 3.6, "linewidth": 0.9}
    axes.errorbar(
        x, number.mean, yerr=number.deviation, fmt="D", color=color, **style,
        label=f"{CELLS[cell].title} paper",
    )  # fmt: skip


def _draw_epochs(axes: Any, results: Sequence[Result], name: str, color: str, shift: float) -> None:
    histories = [result.history for result in results if result.history is not None]
    epochs = range(1, histories[0].epochs + 1)
    tested = sorted(histories[0].test)
    train = _curve(epochs, [history.train for history in histories])
    validation = _curve(epochs, [history.validation for history in histories])
    test = _curve(tested, [[history.test[epoch] for epoch in tested] for history in histories])
    _plot(axes, train, color, f"{name} train", band=0.10, linestyle=":", linewidth=1.1)
    _plot(axes, validation, color, f"{name} validation", band=0.0, linestyle="--", linewidth=0.7)
    axes.errorbar(
        [epoch + shift for epoch in test.x], test.mean, yerr=_within(test), fmt="o", color=color,
        markersize=3.2, linewidth=1.1, label=f"{name} test",
    )  # fmt: skip


def state_size(summary: Summary) -> Picture:
    """Test accuracy over the state size, one panel per task."""
    with _panels(summary) as (figure, panels):
        for task, axes in panels:
            _draw_constant(axes, summary, task)
            for place, cell in enumerate(summary.cells):
                values = {size: summary.values(task, cell, size) for size in summary.sizes}
                there = {size: found for size, found in values.items() if found}
                curve = _Curve(
                    list(there),
                    [statistics.fmean(found) for found in there.values()],
                    [statistics.stdev(v) if len(v) > 1 else 0.0 for v in there.values()],
                )
                style = {"marker": "o", "markersize": 2.6}
                _plot(axes, curve, _color(cell), CELLS[cell].title, band=0.2, **style)
                if cell in PRINTED:
                    _draw_paper(axes, task, cell, 54 + 1.8 * place)
            axes.set_xlim(0, 54 + 1.8 * len(summary.cells))
            axes.set_xticks(range(0, 51, 10))
        figure.supxlabel("state size", fontsize=9)
        return _picture(
            figure,
            panels,
            f"{summary.title.replace(', ', '-')}",
            "Test accuracy over the size of the state, at the epoch with the best validation "
            "accuracy: mean over seeds, band one standard deviation. Open diamonds at the right: "
            "the paper's test accuracy with 50 units and its standard deviation. Gray: always the "
            f"most frequent answer of the training questions. {_made_of(summary)}",
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
    if band and any(curve.deviation):
        below, above = _within(curve)
        low = [m - d for m, d in zip(curve.mean, below, strict=True)]
        high = [m + d for m, d in zip(curve.mean, above, strict=True)]
        axes.fill_between(curve.x, low, high, color=color, alpha=band, linewidth=0)


def _within(curve: _Curve) -> tuple[list[float], list[float]]:
    """One standard deviation down and up, no further than 0 and 100 %."""
    pairs = list(zip(curve.mean, curve.deviation, strict=True))
    return [min(d, m) for m, d in pairs], [min(d, 100 - m) for m, d in pairs]


@contextmanager
def _panels(summary: Summary) -> Iterator[tuple[Any, _Panels]]:
    """A figure with a panel per task that has results."""
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
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
        for unused in grid[len(tasks) :]:
            unused.remove()
        panels = list(zip(tasks, grid, strict=False))
        for task, axes in panels:
            axes.set_title(f"{task} {TASK_NAMES[task]}")
            axes.set_ylim(0, 102)
        figure.supylabel("accuracy, %", fontsize=9)
        yield figure, panels


def _picture(figure: Any, panels: _Panels, name: str, caption: str) -> Picture:
    _legend(figure, panels)
    svg = io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None})
    columns = panels[0][1].get_gridspec().ncols
    return Picture(name, caption, columns, png(figure), svg.getvalue())


def _legend(figure: Any, panels: _Panels) -> None:
    """One legend for all panels, which need not all have all lines; a row per cell."""
    found: dict[str, Any] = {}
    for _, axes in panels:
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, line)
    rows: dict[str, list[str]] = {}
    for label in found:
        rows.setdefault(label.split()[0], []).append(label)
    # A legend fills up column by column; a short row leaves its last places empty.
    widest = max(map(len, rows.values()))
    filled = [row + [""] * (widest - len(row)) for row in rows.values()]
    labels = [label for column in zip(*filled, strict=True) for label in column]
    nothing = _empty_handle()
    lines = [found.get(label, nothing) for label in labels]
    figure.legend(lines, labels, loc="outside upper center", ncols=widest)


def _empty_handle() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none")
