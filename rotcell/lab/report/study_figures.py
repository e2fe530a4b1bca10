"""Figures of a study: solved seeds over the state size, accuracy over it, learning curves."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rotcell.lab.cells import CELLS
from rotcell.lab.errors import NotInstalledError
from rotcell.lab.judged import Picture
from rotcell.lab.report.arms import Arm
from rotcell.lab.report.overview import Row, main_rows, seed_means
from rotcell.lab.report.palette import color_of
from rotcell.lab.report.pictures import png
from rotcell.lab.report.statistics import Moments, mean_interval
from rotcell.lab.tasks import find
from rotcell.lab.training.environment import dates_of

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
GRAY = "#555555"
_PRINTED: Any = {"marker": "D", "markersize": 5, "markerfacecolor": "white", "linestyle": "none"}
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
    """The processors, versions of torch and newest commit of all runs that a figure shows."""
    records = [r for row in rows for arm in row.arms.values() for r in arm.records.values()]
    found = {
        name: sorted({str(record["environment"][name]) for record in records})
        for name in ("machine", "torch")
    }
    dates = dates_of({str(record["environment"].get("commit")) for record in records})
    commits = f" Commits up to {max(dates)}." if dates else ""
    return f"{', '.join(found['machine'])}; torch {', '.join(found['torch'])}.{commits}"


def _figures(found: Sequence[Row]) -> Iterator[tuple[Figure, Sequence[Row]]]:
    whole = [row for row in main_rows(found) if row.is_whole and len(row.arms) > 1]
    by_picture: dict[Picture, list[Row]] = {}
    for row in whole:
        if (picture := find(row.task).picture) is not None:
            by_picture.setdefault(picture, []).append(row)
    for picture, rows in by_picture.items():
        if picture.kind == "curves":
            yield from ((_curves(row), [row]) for row in rows)
        else:
            yield (_solved if picture.kind == "solved" else _sizes_of)(picture, rows), rows


@contextmanager
def _panels(count: int, height: int = 1) -> Iterator[tuple[Any, Any]]:
    try:
        import matplotlib
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise NotInstalledError("figures need matplotlib: pip install matplotlib") from error
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
    cells = {cell.title for cell in CELLS.values()}
    labels = sorted(handles, key=lambda label: label.partition(",")[0] not in cells)  # cells first
    most = 2 + 2 * axes.shape[1]  # in one line
    figure.legend(
        [handles[label] for label in labels],
        labels,
        loc="outside upper center",
        ncols=len(labels) if len(labels) <= most else math.ceil(len(labels) / 2),
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


def _kind(row: Row) -> str:
    """The title without task and size, such as "mod5"."""
    return row.title.removeprefix(f"{row.task}: ").rpartition(",")[0]


def _solved(picture: Picture, rows: Sequence[Row]) -> Figure:
    datasets = list(dict.fromkeys(map(_kind, rows)))
    name = find(rows[0].task).measure.name
    with _panels(len(datasets), 2) as (figure, axes):
        for (solved, steps), dataset in zip(axes.T, datasets, strict=True):
            some = [row for row in rows if _kind(row) == dataset]
            solved.set_title(dataset)
            for cell, shift, arms in _by_cell(some):
                style = {"color": color_of(cell), "label": CELLS[cell].title, "linewidth": 1.4}
                x = [size * shift for size, _ in arms]
                shares = [100 * statistics.fmean(arm.values(name).values()) for _, arm in arms]
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
        return _saved(figure, axes, picture.name, picture.caption.format(seeds=number))


def _median_steps(arm: Arm) -> float:
    reached = arm.steps_to_target()
    return statistics.median(reached) if 2 * len(reached) > len(arm.records) else float("nan")


def _sizes_of(picture: Picture, rows: Sequence[Row]) -> Figure:
    task = find(rows[0].task)
    measure = task.measure
    kinds = list(dict.fromkeys(map(_kind, rows)))
    with _panels(len(kinds)) as (figure, axes):
        for panel, kind in zip(axes[0], kinds, strict=True):
            some = [row for row in rows if _kind(row) == kind]
            panel.set_title(kind)
            for cell, shift, arms in _by_cell(some):
                found = [
                    Moments.of([measure.scale * m for m in seed_means(arm, measure.name)])
                    for _, arm in arms
                ]
                points = [(s * shift, f) for (s, _), f in zip(arms, found, strict=True) if f]
                error = [f.mean - mean_interval(f)[0] for _, f in points]
                panel.errorbar(
                    [x for x, _ in points], [f.mean for _, f in points], error, marker="o",
                    markersize=4, linewidth=1.4, capsize=2, color=color_of(cell),
                    label=CELLS[cell].title,
                )  # fmt: skip
                for size, arm in arms:
                    if (printed := _mean_of(task.printed, arm)) is not None:
                        panel.plot(size * shift, printed, color=color_of(cell), **_PRINTED)
                        panel.plot([], [], label=picture.printed, color=GRAY, **_PRINTED)
            constant = _mean_of(task.constant, next(iter(some[0].arms.values())))
            if constant is not None:
                panel.axhline(constant, color=GRAY, linewidth=1, label=picture.constant)
            _sizes(panel, some)
            panel.set_xlabel("hidden size")
        axes[0, 0].set_ylabel(measure.label.partition(",")[0])
        number = len(seed_means(next(iter(rows[0].arms.values())), measure.name))
        return _saved(figure, axes, picture.name, picture.caption.format(seeds=number))


def _mean_of(reference: Callable[[Mapping[str, Any]], float | None], arm: Arm) -> float | None:
    """A reference of a task, its mean over an arm's records; None if any has none."""
    found = [reference(record["settings"]) for record in arm.records.values()]
    there = [each for each in found if each is not None]
    return statistics.fmean(there) if there and len(there) == len(found) else None


def _curves(row: Row) -> Figure:
    task, title = find(row.task), row.title.removeprefix(f"{row.task}: ")
    with _panels(1) as (figure, axes):
        panel = axes[0, 0]
        panel.set_title(title)
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
                label=_label(arm),
            )  # fmt: skip
            panel.fill_between(
                epochs, [min(c) for c in columns], [max(c) for c in columns], color=color_of(cell),
                alpha=0.2, linewidth=0,
            )  # fmt: skip
        printed = [
            anchor
            for anchor in task.anchors
            if anchor.cell in row.arms
            and anchor.dataset == row.arms[anchor.cell].settings["dataset"]
        ]
        for anchor in printed:
            panel.axhline(
                (anchor.low + anchor.high) / 2, color=color_of(anchor.cell), linewidth=0.8,
                linestyle=":", label=f"{CELLS[anchor.cell].title}, test result of others",
            )  # fmt: skip
        panel.set_ylim(lowest * 0.98, lowest * 1.25)
        panel.set_xlabel("epoch")
        panel.set_ylabel(f"validation, {task.measure.label}")
        number = len(next(iter(row.arms.values())).records)
        caption = (
            f"{title}: mean over {number} seeds; bands from the lowest to the highest. A plain "
            "layer has at least as many weights as the rotating one."
        )
        name = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
        return _saved(figure, axes, f"{row.task}-{name}", caption)


def _label(arm: Arm) -> str:
    """Such as "LSTM, 214 units", or "RotLSTM, 200 units, spread"."""
    start = arm.settings.get("start")
    return f"{CELLS[arm.cell].title}, {arm.size} units{f', {start}' if start else ''}"
