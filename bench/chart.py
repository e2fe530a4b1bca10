"""Charts of result files, as PNG and SVG."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
from contestants import ROTCELL, TORCH
from ratios import ratio
from timing import CONFIDENCE
from work import CELLS, PASSES, Work

from rotcell.lab.report.pictures import png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = {"train": "#d1495b", "infer": "#00798c"}
_PLAIN: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "rotcell",
}
_TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)


def missing() -> str | None:
    """Say why no chart can be drawn, or None."""
    if importlib.util.find_spec("matplotlib") is None:
        return "matplotlib is not installed (pip install '.[bench]' in a clone)"
    return None


def draw_comparison(found: Mapping[str, Any], path: Path) -> list[Path]:
    """Draw rotcell's time over torch's, one panel per cell, one line per work; return the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in found["rows"] if ratio(row) is not None]
    works = list({row["work"]["name"]: Work(**row["work"]) for row in rows}.values())
    threads = sorted({row["threads"] for row in rows})
    cells = [cell for cell in CELLS if any(row["cell"] == cell for row in rows)]
    with pyplot.rc_context(_PLAIN):
        height = 1.6 + len(works) * (0.22 + 0.11 * len(threads))
        figure, panels = pyplot.subplots(
            1,
            len(cells),
            figsize=(2.9 + 1.9 * len(cells), max(height, 3.0)),  # readable at the width of a page
            sharey=True,
            layout="constrained",
            squeeze=False,
        )
        for axes, cell in zip(panels[0], cells, strict=True):
            own = [row for row in rows if row["cell"] == cell]
            _draw_panel(axes, own, works, threads)
            axes.set_xlim(*_limits([row for row in rows if _same_torch(row["cell"], cell)]))
            axes.set_title(_title(cell), fontsize=11, loc="left")
        panels[0][0].set_yticks(range(len(works)), [work.label() for work in works])
        panels[0][0].set_ylim(len(works) - 0.5, -0.5)
        _add_legend(figure, threads, found["settings"]["device"])
        figure.supxlabel(
            f"time divided by torch's (bars: {100 * CONFIDENCE:.0f} % confidence); "
            "left of 1 is faster\n"
            f"{machine.summary(found['machine'])}, {found['settings']['dtype']}, "
            f"{found['started'][:10]}",
            fontsize=9,
            color="#444444",
        )
        return _save(figure, path)


def _title(cell: str) -> str:
    plain, torchs = not CELLS[cell].rotates, CELLS[cell].torch
    return f"{'rotcell.' if plain else ''}{cell}\n/ nn.{torchs}"


def _same_torch(cell: str, other: str) -> bool:
    return CELLS[cell].torch == CELLS[other].torch


def _limits(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Hold all medians; an end of an interval that is far away may lie outside."""
    medians = [found.median for row in rows if (found := ratio(row)) is not None]
    return min([*medians, 0.5]) / 1.3, max([*medians, 1.2]) * 1.3


def _draw_panel(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    works: Sequence[Work],
    threads: Sequence[int],
) -> None:
    places = {work.name: place for place, work in enumerate(works)}
    lanes = [(passes, count) for passes in PASSES for count in threads]
    axes.set_xscale("log")
    axes.axvspan(1e-4, 1, color="#e9f3ea", zorder=0)
    axes.axvline(1, color="#333333", linewidth=1.4, zorder=1)
    for place in range(1, len(works)):
        axes.axhline(place - 0.5, color="#cccccc", linewidth=0.6, zorder=1)
    for row in rows:
        lane = lanes.index((row["pass"], row["threads"]))
        y = places[row["work"]["name"]] + (lane - (len(lanes) - 1) / 2) * 0.8 / len(lanes)
        color = _COLORS[row["pass"]]
        found = ratio(row)
        assert found is not None
        marker = _marker(threads.index(row["threads"]), color)
        interval = (found.low, found.high)
        axes.plot(interval, (y, y), color=color, linewidth=2.2, alpha=0.45, zorder=2)
        axes.plot(found.median, y, color=color, zorder=3, **marker)
    axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.minorticks_off()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6, zorder=0)


def _marker(index: int, color: str) -> dict[str, Any]:
    """Open circles for the first number of threads, filled shapes for the others."""
    shape = "ooDs^v"[min(index, 5)]
    fill = "white" if index == 0 else color
    return {"marker": shape, "markersize": 5.5, "markerfacecolor": fill, "linestyle": "none"}


def _add_legend(figure: Figure, threads: Sequence[int], device: str) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for passes in PASSES:
        for index, count in enumerate(threads):
            color = _COLORS[passes]
            label = passes
            if device == "cpu":
                label += f", {count} thread{'s' if count > 1 else ''}"
            handles.append(Line2D([], [], color=color, label=label, **_marker(index, color)))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9.5
    )


def draw_growth(found: Mapping[str, Any], path: Path) -> list[Path]:
    """Draw time over each size that was varied, both axes logarithmic; return the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    styles = {
        ("RotLSTM", ROTCELL): ("RotLSTM", "#d9541e", "-"),
        ("RotLSTM", TORCH): ("nn.LSTM", "#1f6fb4", ":"),
        ("RotGRU", ROTCELL): ("RotGRU", "#8064a2", "-"),
        ("RotGRU", TORCH): ("nn.GRU", "#7f7f7f", ":"),
    }
    axes_of = found["axes"]
    with pyplot.rc_context(_PLAIN):
        figure, panels = pyplot.subplots(
            1, len(axes_of), figsize=(9, 4), sharey=True, layout="constrained", squeeze=False
        )
        for panel, (axis, values) in zip(panels[0], axes_of.items(), strict=True):
            for (cell, name), (label, color, line) in styles.items():
                points = [
                    (p["value"], 1e3 * p["timings"][name]["median_s"])
                    for p in found["points"]
                    if p["axis"] == axis and p["cell"] == cell
                ]
                exponent = found["exponents"][axis][cell][name]
                panel.plot(
                    *zip(*points, strict=True),
                    color=color,
                    linestyle=line,
                    marker="o",
                    markersize=4.5,
                    label=f"{label}: {axis}$^{{{exponent:.2f}}}$",
                )
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(values, [str(value) for value in values])
            panel.minorticks_off()
            panel.grid(color="#dddddd", linewidth=0.6)
            panel.set_xlabel(f"{axis} ({found['fixed'][axis]})")
            panel.legend(fontsize=8.5, frameon=False, handlelength=2.2)
        panels[0][0].set_ylabel(f"{found['settings']['pass']}, ms per call")
        _decimal_ticks(panels[0][0])
        settings = found["settings"]
        figure.supxlabel(
            f"{machine.summary(found['machine'])}, {settings['dtype']}, "
            f"{settings['threads']} thread{'s' if settings['threads'] > 1 else ''}",
            fontsize=9,
            color="#444444",
        )
        return _save(figure, path)


def _decimal_ticks(axes: Axes) -> None:
    low, high = axes.get_ylim()
    ticks = [
        step * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in (1, 3)
        if low <= step * 10.0**power <= high
    ]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _save(figure: Figure, path: Path) -> list[Path]:
    """Write both files next to the results, the same bytes every time."""
    from matplotlib import pyplot

    files = [path.with_suffix(".png"), path.with_suffix(".svg")]
    files[0].write_bytes(png(figure))
    figure.savefig(files[1], metadata={"Date": None})
    pyplot.close(figure)
    return files
