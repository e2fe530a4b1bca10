"""Inference with int8 weights: RotLSTM and LSTM next to nn.LSTM, each quantized dynamically.

nn.LSTM is quantized by torch.ao.quantization.quantize_dynamic (fbgemm). All contestants of a row
run in turns, and the float32 RotLSTM with them. Results go into a JSON file.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import machine
import results
import torch
from ratios import Row, median, ratio
from timing import Effort, measure
from torch import nn
from work import Work, parse

import rotcell

KIND = "int8"
DEFAULT_OUT = Path(__file__).resolve().parent / "out" / "int8.json"
TORCH = "nn.LSTM"
#: Layers with int8 weights, each measured against nn.LSTM with int8 weights.
LAYERS = ("RotLSTM", "LSTM")
FLOAT = "RotLSTM in float32"
WORKS = "1x100x256x256,1x50x1024x1024,8x50x512x512,64x50x512x512"


def contestants(work: Work) -> dict[str, Callable[[], Any]]:
    """A forward call of each layer on the same input."""
    torch.manual_seed(0)
    x = torch.rand(work.steps, work.batch, work.input_size) * 2 - 1
    sizes = work.input_size, work.hidden_size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its function deprecated
        torchs = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(*sizes)), {nn.LSTM})
    layers: dict[str, nn.Module] = {TORCH: torchs[0]}
    layers |= {n: rotcell.quantize_dynamic(getattr(rotcell, n)(*sizes).eval()) for n in LAYERS}
    layers[FLOAT] = rotcell.RotLSTM(*sizes).eval()

    def call(layer: nn.Module) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                layer(x)

        return run

    return {name: call(layer) for name, layer in layers.items()}


def run(work: Work, threads: int, seconds: float) -> dict[str, Any]:
    """Measure all, as one row of a result file."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        functions = contestants(work)
        timings = measure(functions, list(functions), Effort(seconds, 5), torch.device("cpu"))
    finally:
        torch.set_num_threads(before)
    return {
        "work": asdict(work),
        "threads": threads,
        "timings": {name: timing.to_json() for name, timing in timings.items()},
    }


def line(row: Row, name: str) -> str:
    """Give the line of one layer."""
    return f"{name:20}{1e3 * (median(row, name) or 0):9.3f} ms  {ratio(row, name, TORCH)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="seconds per row (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument(
        "--shapes",
        default=WORKS,
        metavar="LIST",
        help="comma-separated BATCHxSTEPSxINPUTxHIDDEN (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="FILE",
        help="where the JSON goes (default: bench/out/int8.json)",
    )
    machine.add_options(parser)
    options = parser.parse_args(arguments)
    try:
        results.check_writable(options.out)
        works = [parse(shape) for shape in options.shapes.split(",")]
    except ValueError as error:
        parser.error(str(error))
    found: dict[str, Any] = {
        "kind": KIND,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.describe_or_refuse(parser, options, torch.device("cpu")),
    }
    for fault in machine.faults(found["machine"]):
        print(f"Measured {fault}.")
    print(f"{machine.summary(found['machine'])}; {options.threads} threads")
    print(f"Time per call, and over that of a quantized {TORCH} (95 % confidence interval).")
    rows = []
    for work in works:
        row = run(work, options.threads, options.seconds)
        rows.append(row)
        print(f"\n{work.label()}")
        for name in row["timings"]:
            print(line(row, name))
    results.save(options.out, found | {"rows": rows})
    print(f"\nWrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
