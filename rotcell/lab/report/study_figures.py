"""Figures of a study: solved seeds over the state size, accuracy over it, learning curves."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rotcell.lab.cells import CELLS
from rotcell.lab.errors import NotInstalledError
from rotcell.lab.report.arms import MEASURES, Arm
from rotcell.lab.report.overview import Row, main_rows, seed_means
from rotcell.lab.report.palette import color_of
from rotcell.lab.report.pictures import png
from rotcell.lab.report.statistics import Moments, mean_interval

_STYLE = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}
#: How far cells are moved apart so that none hides another, as a factor of the size.
_APART = 1.03


class Figure(NamedTuple):
    """A picture and what it shows."""

    name: str
    caption: str
    png: bytes


def study_figures(rows: Sequence[Row]) -> Iterator[Figure]:
    """One per family of tasks that has finished rows, with the paper's layers."""
    for figure, shown in _figures(rows):
        yield figure._replace(caption=f"{figure.caption} {_made_on(shown)}")


def _made_on(rows: Sequence[Row]) -> str:
    """The processors and versions of torch of all runs that a figure shows."""
    records = [r for row in rows for arm in row.arms.values() for r in arm.records.values()]
    found = {
        name: sorted({str(record["environment"][name]) for record in records})
        for name in ("machine", "torch")
    }
    return f"{', '.join(found['machine'])}; torch {', '.join(found['torch'])}."


def _figures(rows: Sequence[Row]) -> Iterator[tuple[Figure, Sequence[Row]]]:
    whole = [row for row in main_rows(rows) if row.is_whole and len(row.arms) > 1]
    tracking = [row for row in whole if row.task == "groups"]
    if tracking:
        yield _tracking(tracking), tracking
    babi = [row for row in whole if row.task == "babi"]
    if babi:
        yield _babi(babi), babi
    for row in whole:
        if row.task in ("music", "text"):
            yield _curves(row), [row]


@contextmanager
def _panels(count: int, height: int = 1) -> Iterator[tuple[Any, Any]]:
    try:
        import matplotlib
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise NotInstalledError("figures need matplotlib: pip install 'rotcell[lab]'") from error
    with matplotlib.rc_context(_STYLE):
        size = (max(2.3 * count, 4.2) + 0.5, 2.1 * height + 0.8)
        figure = Canvas(figsize=size, layout="constrained")
        yield figure, figure.subplots(height, count, squeeze=False, sharex="col", sharey="row")


def _saved(figure: Any, axes: Any, name: str, caption: str) -> Figure:
    handles = {
        label: line
        for each in axes.flatten()
        for line, label in zip(*each.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside upper center",
        ncols=min(len(handles), 2 + 2 * axes.shape[1]),
    )
    return Figure(name, caption, png(figure))


def _by_cell(rows: Sequence[Row]) -> Iterator[tuple[str, float, list[tuple[int, Arm]]]]:
    """Every cell with its factor for the x-axis and its arms by size."""
    cells = [cell for cell in CELLS if any(cell in row.arms for row in rows)]
    for place, cell in enumerate(cells):
        shift = _APART ** (place - (len(cells) - 1) / 2)
        arms = [(row.size, row.arms[cell]) for row in rows if cell in row.arms]
        yield cell, shift, sorted(arms, key=lambda pair: pair[0])


def _sizes(axes: Any, rows: Sequence[Row]) -> None:
    axes.set_xscale("log", base=2)
    sizes = sorted({row.size for row in rows})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlim(sizes[0] / 1.4, sizes[-1] * 1.4)


def _tracking(rows: Sequence[Row]) -> Figure:
    datasets = list(dict.fromkeys(row.title.partition(",")[0] for row in rows))
    with _panels(len(datasets), 2) as (figure, axes):
        for (solved, steps), dataset in zip(axes.T, datasets, strict=True):
            some = [row for row in rows if row.title.partition(",")[0] == dataset]
            solved.set_title(dataset)
            for cell, shift, arms in _by_cell(some):
                style = {"color": color_of(cell), "label": CELLS[cell].title, "linewidth": 1.4}
                x = [size * shift for size, _ in arms]
                shares = [100 * statistics.fmean(arm.values("solved").values()) for _, arm in arms]
                solved.plot(x, shares, marker="o", markersize=4, **style)
                medians = [_median_steps(arm) for _, arm in arms]
                steps.plot(x, medians, marker="o", markersize=4, **style)
            _sizes(steps, some)
            steps.set_yscale("log", subs=())
            steps.yaxis.get_major_locator().set_params(subs=(1, 2, 5))
            steps.yaxis.set_major_formatter("{x:,.0f}")
            steps.set_xlabel("hidden size")
        axes[0, 0].set_ylim(-5, 105)
        axes[0, 0].set_ylabel("seeds that solve it, %")
        axes[1, 0].set_ylabel("training steps (median)")
        number = len(next(iter(rows[0].arms.values())).records)
        caption = (
            f"State tracking: share of {number} seeds with an accuracy of at least 0.999 on "
            "sequences four times as long as in training, and the median number of steps to a "
            "validation error of 0.001, where more than half of the seeds reach it. Plain layers "
            "have at least as many weights as the rotating ones."
        )
        return _saved(figure, axes, "state-tracking", caption)


def _median_steps(arm: Arm) -> float:
    steps = [r["outcome"]["steps_to_target"] for r in arm.records.values()]
    reached = [step for step in steps if step is not None]
    return statistics.median(reached) if 2 * len(reached) > len(steps) else float("nan")


def _babi(rows: Sequence[Row]) -> Figure:
    kinds = list(dict.fromkeys(row.title.rpartition(",")[0] for row in rows))
    with _panels(len(kinds)) as (figure, axes):
        for panel, kind in zip(axes[0], kinds, strict=True):
            some = [row for row in rows if row.title.rpartition(",")[0] == kind]
            panel.set_title(kind)
            for cell, shift, arms in _by_cell(some):
                found = [
                    Moments.of([100 * m for m in seed_means(arm, "accuracy")]) for _, arm in arms
                ]
                points = [(s * shift, f) for (s, _), f in zip(arms, found, strict=True) if f]
                error = [f.mean - mean_interval(f)[0] for _, f in points]
                panel.errorbar(
                    [x for x, _ in points], [f.mean for _, f in points], error, marker="o",
                    markersize=4, linewidth=1.4, capsize=2, color=color_of(cell),
                    label=CELLS[cell].title,
                )  # fmt: skip
            _sizes(panel, some)
            panel.set_xlabel("hidden size")
        axes[0, 0].set_ylabel("test accuracy, %")
        number = len(seed_means(next(iter(rows[0].arms.values())), "accuracy"))
        caption = (
            f"bAbI without padding: mean test accuracy over the tasks, {number} seeds, with 95 % "
            "intervals of the mean."
        )
        return _saved(figure, axes, "babi-packed", caption)


def _curves(row: Row) -> Figure:
    with _panels(1) as (figure, axes):
        panel = axes[0, 0]
        panel.set_title(row.title)
        lowest = min(
            min(record["history"]["validation"])
            for arm in row.arms.values()
            for record in arm.records.values()
        )
        for cell, arm in row.arms.items():
            curves = [record["history"]["validation"] for record in arm.records.values()]
            columns = list(zip(*curves, strict=False))  # as far as every seed has come
            epochs = range(1, len(columns) + 1)
            panel.plot(
                epochs, [statistics.fmean(c) for c in columns], color=color_of(cell), linewidth=1.2,
                label=CELLS[cell].title,
            )  # fmt: skip
            panel.fill_between(
                epochs, [min(c) for c in columns], [max(c) for c in columns], color=color_of(cell),
                alpha=0.2, linewidth=0,
            )  # fmt: skip
        panel.set_ylim(lowest * 0.98, lowest * 1.25)
        panel.set_xlabel("epoch")
        panel.set_ylabel(f"validation, {MEASURES[row.task].label}")
        number = len(next(iter(row.arms.values())).records)
        caption = f"{row.title}: mean over {number} seeds; bands from the lowest to the highest."
        name = "".join(c if c.isalnum() else "-" for c in row.title.lower()).strip("-")
        return _saved(figure, axes, f"{row.task}-{name}", caption)
