"""How fast every path is, compared with torch's layer, and which one the plan takes."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from rotcell import _libraries, layers
from rotcell.cuda.paths import chosen_path, fits
from rotcell.reference import CELLS

from .machine import Gpu

#: Batch, steps and hidden size, most informative first; the input size is the hidden size.
SIZES = (
    (32, 100, 50),
    (64, 100, 256),
    (64, 100, 512),
    (32, 100, 112),
    (32, 50, 1024),
    (1, 100, 256),
    (16, 50, 768),
    (256, 50, 128),
    (128, 50, 256),
    (16, 100, 160),
)
TYPES = ("float32", "float16")
PATHS, PASSES = _libraries.CUDA_PATHS, _libraries.CUDA_PASSES
#: The layer of each cell, by the name of the cell.
LAYERS: dict[str, Any] = {
    layer._cell.name: layer
    for layer in (layers.RotLSTM, layers.RotGRU, layers.LSTM, layers.ClassicGRU)
}
#: torch's nearest layer, which on a GPU runs cuDNN.
TORCH = "torch"
#: Calls shorter than this are timed several at once.
SHORTEST_SAMPLE = 2e-3
MOST_SAMPLES = 30


def interleaved(
    machine: Gpu, functions: Mapping[str, Callable[[], object]], seconds: float
) -> dict[str, float]:
    """Seconds per call: the median of samples taken in turns."""
    calls = {}
    for name, function in functions.items():
        machine.seconds(function, 1)
        once = min(machine.seconds(function, 1) for _ in range(2))
        calls[name] = max(1, math.ceil(SHORTEST_SAMPLE / max(once, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in functions}
    end = time.perf_counter() + seconds
    for turn in range(MOST_SAMPLES):
        if turn >= 3 and time.perf_counter() > end:
            break
        for name, function in functions.items():
            samples[name].append(machine.seconds(function, calls[name]))
    return {name: statistics.median(found) for name, found in samples.items()}


@dataclass(frozen=True)
class Row:
    """One size of one cell, in one type."""

    cell: str
    dtype_name: str
    batch: int
    steps: int
    hidden: int

    def __str__(self) -> str:
        return (
            f"timing, {self.cell}, {self.dtype_name}, B {self.batch} T {self.steps} H {self.hidden}"
        )

    @property
    def dtype(self) -> torch.dtype:
        """The torch.dtype of this row."""
        found: torch.dtype = getattr(torch, self.dtype_name)
        return found

    def measure(self, machine: Gpu, seconds: float) -> dict[str, Any]:
        """Microseconds per step of every path that runs the row: forward (training), backward."""
        size = (self.hidden, self.batch, self.steps, self.dtype, machine.properties())
        fitting = {
            pass_name: [p for p in PATHS if fits(p, self.cell, pass_name, *size)]
            for pass_name in PASSES
        }
        found = interleaved(machine, self._functions(machine, fitting), seconds)
        before = {**dict.fromkeys(PATHS, found["stepwise forward"]), TORCH: found["torch forward"]}
        times: dict[str, dict[str, float]] = {pass_name: {} for pass_name in PASSES}
        per_step = 1e6 / self.steps
        for name in (*fitting["forward"], TORCH):
            times["forward"][name] = found[f"{name} forward"] * per_step
        for name in (*fitting["backward"], TORCH):
            times["backward"][name] = max(found[f"{name} both"] - before[name], 0.0) * per_step
        return {
            "ok": True,
            "row": asdict(self),
            "microseconds_per_step": times,
            "chosen": {p: chosen_path(self.cell, p, *size) for p in PASSES},
        }

    def _functions(
        self, machine: Gpu, fitting: dict[str, list[str]]
    ) -> dict[str, Callable[[], object]]:
        """Forward on every path; backward on every path, after a stepwise forward."""
        own = LAYERS[self.cell]
        plain = nn.LSTM if "c" in CELLS[self.cell].states else nn.GRU
        options: dict[str, Any] = {"device": machine.device, "dtype": self.dtype}
        shape = (self.steps, self.batch, self.hidden)
        x = torch.randn(shape, **options, requires_grad=True)
        grad = torch.randn(shape, **options)

        def forward(layer: Any, path: str | None) -> Any:
            machine.force_path(path)
            return layer(x)[0]

        def both(layer: Any, path: str | None) -> Any:
            out = forward(layer, None if path is None else "stepwise")
            machine.force_path(path)
            return torch.autograd.grad(out, [x, *layer.parameters()], grad)

        layer, peer = (kind(self.hidden, self.hidden, **options) for kind in (own, plain))
        functions: dict[str, Callable[[], object]] = {
            f"{TORCH} forward": partial(forward, peer, None),
            f"{TORCH} both": partial(both, peer, None),
        }
        for path in fitting["forward"]:
            functions[f"{path} forward"] = partial(forward, layer, path)
        for path in fitting["backward"]:
            functions[f"{path} both"] = partial(both, layer, path)
        return functions


ROWS = [
    Row(cell, dtype, *size)
    for cells in (("rot_lstm", "rot_gru"), ("lstm", "classic_gru"))
    for size, dtype, cell in itertools.product(SIZES, TYPES, cells)
]


def choices(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each row and pass what the plan chose, and which of our paths was fastest."""
    found = []
    for result in measured:
        for pass_name, times in result["microseconds_per_step"].items():
            own = {path: value for path, value in times.items() if path != TORCH}
            chosen, fastest = result["chosen"][pass_name], min(own, key=lambda path: own[path])
            found.append({
                **result["row"], "pass": pass_name, "chosen": chosen, "fastest": fastest,
                "chosen_over_fastest": own[chosen] / own[fastest] if own[fastest] else None,
                "fastest_over_torch": own[fastest] / times[TORCH] if times[TORCH] else None,
                "microseconds_per_step": times,
            })  # fmt: skip
    return found
