"""What rotations of larger groups and a recurrence without a recurrent matmul cost.

RotLSTM with groups of 2, 3, 4 and 8 units, LinearRotLSTM and rotcell.LSTM, next to nn.LSTM of the
same size, in training and in inference. All run in turns. With each layer stand the FLOPs of its
matmuls, over those of nn.LSTM. Results go into a JSON file.
"""

from __future__ import annotations

import argparse
import sys
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

KIND = "rotations"
DEFAULT_OUT = Path(__file__).resolve().parent / "out" / "rotations.json"
#: What all others are measured against.
TORCH = "nn.LSTM"
LAYERS: dict[str, tuple[Any, dict[str, Any]]] = {
    TORCH: (nn.LSTM, {}),
    "LSTM": (rotcell.LSTM, {}),
    **{f"RotLSTM, k = {k}": (rotcell.RotLSTM, {"rotation_size": k}) for k in (2, 3, 4, 8)},
    "LinearRotLSTM": (rotcell.LinearRotLSTM, {}),
    "LinearRotLSTM, k = 4": (rotcell.LinearRotLSTM, {"rotation_size": 4}),
}
WORKS = "32x100x128x128,1x200x128x128,32x100x256x256"


def contestants(work: Work, train: bool, names: Sequence[str]) -> dict[str, Callable[[], Any]]:
    """A call of each layer on the same input: forward, and in training backward."""
    torch.manual_seed(0)
    x = torch.randn(work.steps, work.batch, work.input_size)

    def call(layer: nn.Module) -> Callable[[], None]:
        leaf = x.clone().requires_grad_(train)

        def run() -> None:
            if train:
                layer.zero_grad(set_to_none=True)
                layer(leaf)[0].sum().backward()
                return
            with torch.no_grad():
                layer(leaf)

        return run

    made = ((name, LAYERS[name]) for name in names)
    return {n: call(t(work.input_size, work.hidden_size, **options)) for n, (t, options) in made}


def flops(work: Work, name: str) -> int:
    """Those of the matmuls of one token."""
    kind, options = LAYERS[name]
    layer = kind(work.input_size, work.hidden_size, device="meta", **options)
    return sum(2 * w.numel() for w in layer.parameters() if w.dim() == 2)


def run(work: Work, threads: int, seconds: float, names: Sequence[str]) -> list[dict[str, Any]]:
    """Measure all, as one row of a result file per pass."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    rows = []
    try:
        for passes in ("train", "infer"):
            functions = contestants(work, passes == "train", names)
            timings = measure(functions, list(functions), Effort(seconds, 5), torch.device("cpu"))
            rows.append(
                {
                    "work": asdict(work),
                    "pass": passes,
                    "threads": threads,
                    "flops_per_token": {name: flops(work, name) for name in names},
                    "timings": {name: timing.to_json() for name, timing in timings.items()},
                }
            )
    finally:
        torch.set_num_threads(before)
    return rows


def line(row: Row, name: str) -> str:
    """Give the line of one layer."""
    counts = row["flops_per_token"]
    return (
        f"{name:24}{1e3 * (median(row, name) or 0):9.2f} ms"
        f"{counts[name] / counts[TORCH]:9.2f}  {ratio(row, name, TORCH)}"
    )


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
        "--layers",
        default=";".join(LAYERS),
        metavar="LIST",
        help="semicolon-separated, besides nn.LSTM (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="FILE",
        help="where the JSON goes (default: bench/out/rotations.json)",
    )
    machine.add_options(parser)
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys([TORCH, *options.layers.split(";")]))
    if unknown := [name for name in names if name not in LAYERS]:
        parser.error(f"unknown layer {unknown[0]!r}: choose from {'; '.join(LAYERS)}")
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
    print(f"Time per call; FLOPs and time (95 % confidence interval) over those of {TORCH}.")
    rows = []
    for work in works:
        for row in run(work, options.threads, options.seconds, names):
            rows.append(row)
            print(f"\n{work.label()}, {row['pass']}")
            for name in names:
                print(line(row, name))
    results.save(options.out, found | {"rows": rows})
    print(f"\nWrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
