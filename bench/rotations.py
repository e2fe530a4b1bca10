"""What each layer costs next to nn.LSTM of the same size.

RotLSTM with groups of 2, 3, 4 and 8 units, LinearRotLSTM, layer norm and all other layers, in
training and in inference. All run interleaved. The FLOPs of each layer's matmuls are shown over
those of nn.LSTM. Results go into a JSON file.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import row_file
import torch
from ratios import Row, median, ratio
from torch import nn
from work import PASSES, Work

import rotcell

KIND = "rotations"
#: What all others are measured against.
TORCH = "nn.LSTM"
LAYERS: dict[str, tuple[Any, dict[str, Any]]] = {
    TORCH: (nn.LSTM, {}),
    "LSTM": (rotcell.LSTM, {}),
    **{f"RotLSTM, k = {k}": (rotcell.RotLSTM, {"rotation_size": k}) for k in (2, 3, 4, 8)},
    "LinearRotLSTM": (rotcell.LinearRotLSTM, {}),
    "LinearRotLSTM, k = 4": (rotcell.LinearRotLSTM, {"rotation_size": 4}),
    "LSTM, layer norm": (rotcell.LSTM, {"layer_norm": True}),
    "RotLSTM, layer norm": (rotcell.RotLSTM, {"layer_norm": True}),
    **{name: (getattr(rotcell, name), {}) for name in ("GRU", "RotGRU", "RUM", "GORU", "EURNN")},
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
    """The FLOPs of the matmuls of one token."""
    kind, options = LAYERS[name]
    layer = kind(work.input_size, work.hidden_size, device="meta", **options)
    return sum(2 * w.numel() for n, w in layer.named_parameters() if n.startswith("weight"))


def line(row: Row, name: str) -> str:
    """Give the line of one layer."""
    counts = row["flops_per_token"]
    return (
        f"{name:24}{1e3 * (median(row, name) or 0):9.2f} ms"
        f"{counts[name] / counts[TORCH]:9.2f}  {ratio(row, name, TORCH)}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = row_file.make_parser(KIND, __doc__, seconds=6.0)
    row_file.add_shapes(parser, WORKS)
    parser.add_argument(
        "--layers",
        default=";".join(LAYERS),
        metavar="LIST",
        help="semicolon-separated, in addition to nn.LSTM (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys([TORCH, *options.layers.split(";")]))
    if unknown := [name for name in names if name not in LAYERS]:
        parser.error(f"unknown layer {unknown[0]!r}: choose from {'; '.join(LAYERS)}")
    file = row_file.RowFile(KIND, parser, options)
    print(f"Time per call; FLOPs and time (95 % confidence interval) over those of {TORCH}.")
    for work, passes in itertools.product(options.shapes, PASSES):
        row = {
            "work": work.to_json(),
            "pass": passes,
            "flops_per_token": {name: flops(work, name) for name in names},
            **row_file.timings(contestants(work, passes == "train", names), options),
        }
        file.add(row)
        print(f"\n{work.label()}, {passes}")
        for name in names:
            print(line(row, name))
    file.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
