"""Inference with int8 weights: RotLSTM and LSTM next to nn.LSTM, each quantized dynamically.

nn.LSTM is quantized by torch.ao.quantization.quantize_dynamic (fbgemm). All contestants of a row
run in turns, and the float32 RotLSTM with them. Results go into a JSON file.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import row_file
import torch
from ratios import Row, median, ratio
from torch import nn
from work import Work

import rotcell

KIND = "int8"
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


def line(row: Row, name: str) -> str:
    """Give the line of one layer."""
    return f"{name:20}{1e3 * (median(row, name) or 0):9.3f} ms  {ratio(row, name, TORCH)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = row_file.make_parser(KIND, __doc__, seconds=6.0)
    row_file.add_shapes(parser, WORKS)
    options = parser.parse_args(arguments)
    file = row_file.RowFile(KIND, parser, options)
    print(f"Time per call, and over that of a quantized {TORCH} (95 % confidence interval).")
    for work in options.shapes:
        row = {"work": work.to_json(), **row_file.timings(contestants(work), options)}
        file.add(row)
        print(f"\n{work.label()}")
        for name in row["timings"]:
            print(line(row, name))
    file.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
