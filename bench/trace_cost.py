"""What `rotcell.trace` costs, over a training forward of the same layer: time and peak memory.

    python bench/trace_cost.py [--out bench/results/trace.json]

Times are taken in turns. Memory is how far the resident set grows during one call, with its results
kept, in a separate process.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import results
import torch
from timing import Effort, measure

import rotcell

#: Steps, batch, hidden units; there are as many inputs as units.
SHAPES = ((68, 32, 50), (100, 64, 256), (1000, 8, 128), (200, 1, 128))
CELLS = {"RotLSTM": rotcell.RotLSTM, "RotGRU": rotcell.RotGRU}
CALLS = ("training forward", "trace")


def calls_of(cell: str, steps: int, batch: int, hidden: int) -> dict[str, Callable[[], Any]]:
    """What is compared, on the same layer and input."""
    layer, x = CELLS[cell](hidden, hidden), torch.randn(steps, batch, hidden)
    return {"training forward": lambda: layer(x), "trace": lambda: rotcell.trace(layer, x)}


def seconds_of(cell: str, shape: tuple[int, int, int], seconds: float) -> dict[str, list[float]]:
    """Lower quartile, median and upper quartile of each call."""
    effort = Effort(seconds, least_samples=5)
    found = measure(calls_of(cell, *shape), CALLS, effort, torch.device("cpu"))
    return {
        name: [timing.to_json()[key] for key in ("q1_s", "median_s", "q3_s")]
        for name, timing in found.items()
    }


def bytes_of(cell: str, shape: tuple[int, int, int], call: str) -> int:
    """The median of three processes."""
    request = json.dumps([cell, shape, call])
    command = [sys.executable, str(Path(__file__).resolve()), "--grow", request]
    grown = [
        int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    return int(statistics.median(grown))


def growth(cell: str, shape: tuple[int, int, int], call: str) -> int:
    """How far the resident set grows during one call."""
    torch.set_num_threads(1)
    calls_of(cell, 2, 2, 4)[call]()  # loads all libraries
    function = calls_of(cell, *shape)[call]
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # restarts the high-water mark
    before = _status("VmRSS")
    kept = function()
    grown = _status("VmHWM") - before
    del kept
    return grown


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds per row (default 2)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write all of it as JSON")
    parser.add_argument("--grow", help=argparse.SUPPRESS)  # one measurement, in a new process
    machine.add_options(parser)
    options = parser.parse_args()
    if options.grow:
        print(growth(*json.loads(options.grow)))
        return
    described = None
    if options.out:
        described = machine.describe_or_refuse(parser, options, torch.device("cpu"))
    torch.set_num_threads(1)
    rows = []
    print(
        f"{'cell':9}{'shape':24}{'forward':>10}{'trace':>10}{'ratio':>7}{'MB':>8}{'MB':>8}{'ratio':>7}"
    )
    for cell in CELLS:
        for shape in SHAPES:
            times = seconds_of(cell, shape, options.seconds)
            memory = {call: bytes_of(cell, shape, call) for call in CALLS}
            rows.append({"cell": cell, "shape": shape, "seconds": times, "bytes": memory})
            (forward, trace), (held, traced) = (
                [times[call][1] for call in CALLS],
                [memory[call] for call in CALLS],
            )
            sizes = "T {} B {} H {}".format(*shape)
            print(
                f"{cell:9}{sizes:24}{forward * 1e3:8.2f}ms{trace * 1e3:8.2f}ms"
                f"{trace / forward:7.2f}{held / 1e6:8.1f}{traced / 1e6:8.1f}{traced / held:7.2f}",
                flush=True,
            )
    if options.out:
        results.save(options.out, {"threads": 1, "machine": described, "rows": rows})


if __name__ == "__main__":
    main()
