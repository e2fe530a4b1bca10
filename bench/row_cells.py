"""RUM, GORU and EURNN next to their plain PyTorch; layer norm next to our LSTM and a scripted loop.

Forward, and forward with backward, on a CPU; all contestants of a row take turns. Results go into a
JSON file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import machine
import results
import torch
import torch.nn.functional as F
from ratios import median, ratio
from timing import Effort, measure
from torch import Tensor, nn

import rotcell

KIND = "row_cells"
DEFAULT_OUT = Path(__file__).resolve().parent / "out" / "row_cells.json"

#: Layers, each measured against its equations in plain PyTorch.
LAYERS = ("RUM", "GORU", "EURNN")
LSTM, NORMALIZED, SCRIPTED = "LSTM", "LSTM with layer norm", "layer norm in a scripted loop"


@dataclass(frozen=True)
class Shape:
    """Sizes of a call."""

    batch: int
    steps: int
    inputs: int
    hidden: int

    def label(self) -> str:
        """Say it in one line."""
        return f"B {self.batch}, T {self.steps}, in {self.inputs}, H {self.hidden}"


SHAPES = (Shape(32, 68, 100, 50), Shape(32, 100, 128, 128), Shape(32, 100, 256, 256))
TINY = (Shape(3, 4, 5, 6),)

Weights = list[Tensor]


@torch.jit.script
def scripted_loop(x: Tensor, h: Tensor, c: Tensor, weights: Weights) -> Tensor:
    """Layer norm as users of torch.jit write it; the matmul with x is one for all steps."""
    w_ih, w_hh, b_ih, b_hh, gain_ih, gain_hh, gain_c, bias_c = weights
    rows, hidden = w_ih.shape[0], c.shape[-1]
    from_x = F.layer_norm(F.linear(x, w_ih), [rows], gain_ih, b_ih, 1e-5)
    outputs: list[Tensor] = []
    for t in range(x.shape[0]):
        a = from_x[t] + F.layer_norm(F.linear(h, w_hh), [rows], gain_hh, b_hh, 1e-5)
        i, f, g, o = a.chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(F.layer_norm(c, [hidden], gain_c, bias_c, 1e-5))
        outputs.append(h)
    return torch.stack(outputs)


def contestants(shape: Shape, train: bool) -> dict[str, Callable[[], Any]]:
    """One function for each, on the same input."""
    torch.manual_seed(0)
    x = torch.randn(shape.steps, shape.batch, shape.inputs)

    def over(module: nn.Module, run: Callable[[], Tensor]) -> Callable[[], None]:
        def infer() -> None:
            with torch.no_grad():
                run()

        def step() -> None:
            module.zero_grad(set_to_none=True)
            run().square().mean().backward()

        return step if train else infer

    def by_reference(layer: nn.Module) -> Tensor:
        with rotcell.use_reference():
            out: Tensor = layer(x)[0]
        return out

    functions = {}
    for name in LAYERS:
        layer = getattr(rotcell, name)(shape.inputs, shape.hidden)
        functions[name] = over(layer, lambda layer=layer: layer(x)[0])
        functions[plain(name)] = over(layer, lambda layer=layer: by_reference(layer))
    lstm = rotcell.LSTM(shape.inputs, shape.hidden)
    normalized = rotcell.LSTM(shape.inputs, shape.hidden, layer_norm=True)
    zeros = torch.zeros(shape.batch, shape.hidden)
    weights = list(normalized.parameters())
    functions[LSTM] = over(lstm, lambda: lstm(x)[0])
    functions[NORMALIZED] = over(normalized, lambda: normalized(x)[0])
    functions[SCRIPTED] = over(normalized, lambda: scripted_loop(x, zeros, zeros, weights))
    return functions


def plain(name: str) -> str:
    """Name a layer's reference."""
    return f"{name} in plain PyTorch"


def run(shape: Shape, train: bool, threads: int, seconds: float) -> dict[str, Any]:
    """Measure all, as one row of a result file."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        functions = contestants(shape, train)
        timings = measure(functions, list(functions), Effort(seconds, 5), torch.device("cpu"))
    finally:
        torch.set_num_threads(before)
    return {
        "shape": asdict(shape),
        "train": train,
        "threads": threads,
        "timings": {name: timing.to_json() for name, timing in timings.items()},
    }


def lines(row: dict[str, Any]) -> list[str]:
    """Give the lines of a row."""
    compared = [(plain(name), name) for name in LAYERS]
    compared += [(NORMALIZED, LSTM), (SCRIPTED, NORMALIZED)]
    return [
        f"  {name:32}{1e3 * (median(row, name) or 0):9.2f} ms, {ratio(row, name, other)} of {other}"
        for name, other in compared
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="seconds per row (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tiny", action="store_true", help="a tiny size, to try the script")
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="FILE",
        help="where the JSON goes (default: bench/out/row_cells.json)",
    )
    machine.add_options(parser)
    options = parser.parse_args(arguments)
    try:
        results.check_writable(options.out)
    except ValueError as error:
        parser.error(str(error))
    found: dict[str, Any] = {
        "kind": KIND,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.describe_or_refuse(parser, options, torch.device("cpu")),
        "rows": [],
    }
    for fault in machine.faults(found["machine"]):
        print(f"Measured {fault}.")
    print(f"{machine.summary(found['machine'])}; {options.threads} threads")
    print("Ratios: medians (95 % confidence interval).")
    for shape in TINY if options.tiny else SHAPES:
        for train in (False, True):
            print(f"{shape.label()}, {'training' if train else 'inference'}")
            found["rows"].append(run(shape, train, options.threads, options.seconds))
            print("\n".join(lines(found["rows"][-1])), flush=True)
            results.save(options.out, found)
    print(f"\nWrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
