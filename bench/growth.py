"""How the time of a call grows with the number of steps T, the batch B and the hidden size H.

One of them is varied at a time, next to torch's layers; all its values are timed in turns.
The exponent of each is fitted to the medians: 1 is linear. Results go into a JSON file, and a chart
is drawn from it, as PNG and SVG.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import chart
import contestants
import machine
import results
import torch
from contestants import COMPARED, Limits, Task
from timing import Effort, measure
from work import PASSES, ROTATING, Work

KIND = "growth"
DEFAULT_OUT = Path(__file__).resolve().parent / "out" / "growth.json"
CENTER = {"T": 64, "B": 32, "H": 128}
AXES = {"T": [16, 32, 64, 128, 256], "B": [8, 16, 32, 64, 128], "H": [32, 64, 128, 256, 512]}
TINY_AXES = {"T": [2, 4], "B": [1, 2], "H": [4, 8]}


def make_parser() -> argparse.ArgumentParser:
    """Define the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pass", dest="passes", choices=PASSES, default="train")
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="CPU threads (default: %(default)s)"
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help="seconds per size and cell (default: %(default)s)",
    )
    parser.add_argument("--tiny", action="store_true", help="a few tiny sizes, to try the script")
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="FILE",
        help="where the JSON goes, with the chart next to it (default: bench/out/growth.json)",
    )
    parser.add_argument(
        "--draw", type=Path, metavar="FILE", help="measure nothing: draw the chart of a JSON"
    )
    machine.add_options(parser)
    return parser


def fitted_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Fit seconds = a * size ** exponent by least squares of the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in seconds]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - x_mean) ** 2 for a in x)


def _work(axis: str, value: int, center: dict[str, int]) -> Work:
    sizes = {**center, axis: value}
    return Work(f"{axis}={value}", sizes["B"], sizes["T"], sizes["H"], sizes["H"])


def run(options: argparse.Namespace, described: dict[str, Any]) -> dict[str, Any]:
    """Measure all points and fit the exponents."""
    device, dtype = torch.device(options.device), getattr(torch, options.dtype)
    torch.set_num_threads(options.threads)
    axes = TINY_AXES if options.tiny else AXES
    center = {axis: values[0] for axis, values in axes.items()} if options.tiny else CENTER
    found: dict[str, Any] = {
        "kind": KIND,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": described,
        "settings": {
            "device": options.device,
            "dtype": options.dtype,
            "threads": options.threads,
            "pass": options.passes,
            "point_seconds": options.seconds,
        },
        "axes": axes,
        "fixed": {
            axis: ", ".join(f"{name} {value}" for name, value in center.items() if name != axis)
            for axis in axes
        },
        "points": [],
        "exponents": {},
    }
    results.save(options.out, found)
    for axis, values in axes.items():
        works = {value: _work(axis, value, center) for value in values}
        for cell in ROTATING:
            tasks = {
                value: Task(work, cell, options.passes, options.threads, device, dtype)
                for value, work in works.items()
            }
            for value, timings in _measure_together(tasks, options.seconds, device).items():
                found["points"].append(
                    {"axis": axis, "value": value, "cell": cell, "timings": timings}
                )
                shown = [f"{name} {1e3 * timings[name]['median_s']:9.3f} ms" for name in COMPARED]
                print(f"{works[value].label():26}  {cell:7}  {'  '.join(shown)}", flush=True)
        found["exponents"][axis] = _exponents(found["points"], axis)
        results.save(options.out, found)
    return found


def _measure_together(
    tasks: dict[int, Task], seconds: float, device: torch.device
) -> dict[int, dict[str, Any]]:
    """Time all sizes in turns, so that a change of the machine's pace does not look like growth."""
    functions = {
        f"{name} {value}": function
        for value, task in tasks.items()
        for name, function in contestants.build(task, (), Limits(0, 0)).items()
        if name in COMPARED
    }
    effort = Effort(seconds=seconds * len(tasks), least_samples=5)
    timings = measure(functions, list(functions), effort, device)
    for name, timing in timings.items():
        if timing.error is not None:
            raise RuntimeError(f"{name} failed: {timing.error}")
    return {
        value: {name: timings[f"{name} {value}"].to_json() for name in COMPARED} for value in tasks
    }


def _exponents(points: Sequence[dict[str, Any]], axis: str) -> dict[str, dict[str, float]]:
    exponents: dict[str, dict[str, float]] = {}
    for cell in ROTATING:
        chosen = [point for point in points if point["axis"] == axis and point["cell"] == cell]
        exponents[cell] = {
            name: fitted_exponent(
                [point["value"] for point in chosen],
                [point["timings"][name]["median_s"] for point in chosen],
            )
            for name in COMPARED
        }
    return exponents


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.threads < 1 or options.seconds <= 0:
        parser.error("--threads and --seconds must be positive")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU")
    try:
        if options.draw is None:
            results.check_writable(options.out)
            device = torch.device(options.device)
            found = run(options, machine.describe_or_refuse(parser, options, device))
        else:
            found = results.load(options.draw, KIND)
    except ValueError as error:
        parser.error(str(error))
    for axis, by_cell in found["exponents"].items():
        for cell, by_name in by_cell.items():
            fits = ", ".join(f"{name} {axis}^{value:.2f}" for name, value in by_name.items())
            print(f"{cell}, {found['fixed'][axis]}: time of {fits}")
    if chart.missing():
        print(f"No chart: {chart.missing()}.", file=sys.stderr)
        return 1 if options.draw else 0
    for file in chart.draw_growth(found, options.draw or options.out):
        print(f"Wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
