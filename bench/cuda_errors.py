"""How far the CUDA kernels are from float64, by path and dtype: docs/internals/cuda-errors.md.

Every path runs in the emulator, so no GPU is needed; what a GPU's own exp, tanh and
tensor cores add does not show here. --update writes the page.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import rotcell
from rotcell import _libraries

sys.path.append(str(Path(__file__).resolve().parents[1] / "verify"))

import build_emulator

PAGE = build_emulator.ROOT / "docs/internals/cuda-errors.md"
BATCH, INPUTS, HIDDEN = 4, 8, 32
PATHS = ("stepwise", "resident", "cooperative")
HALF_PATHS = (*PATHS, "cluster")
TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
#: The type's own operations on the CPU, by torch: what one would get without kernels.
BY_TORCH = "torch"
COLUMNS = ("output", "last states", "x", "first states", "w_ih", "w_hh", "biases")
INTRODUCTION = f"""# How far the CUDA kernels are from float64

Root mean square of the error, relative to that of the true values. The true values are the
reference in float64 on the same numbers, already rounded to the dtype. Made by
`python bench/cuda_errors.py --update` in the [emulator](../../verify/emulator/README.md): the
errors of a GPU's own `exp`, `tanh`, division and tensor cores come on top. B {BATCH}, {INPUTS}
inputs, H {HIDDEN}, random weights, random gradients of outputs and last states. fp16 and bf16 use
tensor cores on the cooperative path and in clusters; only they take clusters. *torch* is the
reference in the dtype itself, with every operation rounded to it.
"""


@dataclass(frozen=True)
class Situation:
    title: str
    steps: int
    #: Added to the biases of these gates of a RotLSTM, a RotGRU.
    biases: dict[str, dict[str, float]]


SITUATIONS = (
    Situation("32 steps", 32, {}),
    Situation(
        "512 steps, hardly forgetting",
        512,
        {"RotLSTM": {"f": 7, "i": -5, "rot": -9}, "RotGRU": {"z": -7}},
    ),
)


def layer_for(kind: str, situation: Situation) -> torch.nn.Module:
    torch.manual_seed(0)
    layer = getattr(rotcell, kind)(INPUTS, HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        for gate, rows in layer.named_gates("bias_ih_l0"):
            rows.add_(situation.biases.get(kind, {}).get(gate, 0))
    return layer


def results(layer: torch.nn.Module, x: Tensor, states: list[Tensor]) -> dict[str, Tensor]:
    """Outputs and gradients, by the columns they belong to, in float64."""
    x, states = x.detach().requires_grad_(), [s.detach().requires_grad_() for s in states]
    out, last = layer(x, tuple(states) if len(states) > 1 else states[0])
    last = list(last) if isinstance(last, tuple) else [last]
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(t.shape, generator=generator).to(t) for t in (out, *last)]
    weights = [getattr(layer, n) for n in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")]
    grads = torch.autograd.grad([out, *last], [x, *states, *weights], given)
    first = grads[1 : 1 + len(states)]
    found = [out, torch.cat(last, 2), grads[0], torch.cat(first, 2), *grads[1 + len(states) :]]
    return {name: t.detach().double() for name, t in zip(COLUMNS, found, strict=True)}


def relative_error(found: Tensor, true: Tensor) -> float:
    return float((found.double() - true).norm() / true.norm())


def errors(found: dict[str, Tensor], true: dict[str, Tensor]) -> list[float]:
    return [relative_error(found[name], true[name]) for name in COLUMNS]


def load_emulator() -> Any:
    spec = importlib.util.spec_from_file_location("_emulator", build_emulator.build())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def on_path(emulator: Any, path: str) -> Iterator[None]:
    """With few multiprocessors, so that a block has several units and rows."""
    emulator.pose_as(_libraries.known_cuda_devices()["H100"] | {"multiprocessors": 2})
    emulator.force_path(path)
    emulator.install()
    try:
        yield
    finally:
        emulator.remove()
        emulator.force_path(None)


def measured(
    emulator: Any, situation: Situation, progress: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[str, torch.dtype, str, list[float]]]:
    """Kind of layer, type, path (or torch) and the errors by column."""
    for kind in ("RotLSTM", "RotGRU"):
        for dtype in TYPES:
            layer = layer_for(kind, situation).to(dtype)
            count = 2 if kind == "RotLSTM" else 1
            x = torch.randn(situation.steps, BATCH, INPUTS).to(dtype)
            states = [torch.randn(1, BATCH, HIDDEN).to(dtype) for _ in range(count)]
            with rotcell.use_reference():
                in_type = results(layer, x, states) if dtype != torch.float64 else None
                exact = layer_for(kind, situation).double()
                exact.load_state_dict({n: p.double() for n, p in layer.state_dict().items()})
                true = results(exact, x.double(), [s.double() for s in states])
            for path in HALF_PATHS if dtype.itemsize == 2 else PATHS:
                progress(f"{situation.title}: {kind} {dtype} {path}")
                with on_path(emulator, path):
                    yield kind, dtype, path, errors(results(layer, x, states), true)
            if in_type is not None:
                yield kind, dtype, BY_TORCH, errors(in_type, true)


def table(emulator: Any, situation: Situation, progress: Callable[[str], None]) -> str:
    gradients = [f"gradient of {name}" for name in COLUMNS[2:]]
    heading = ["layer", "dtype", "path", *COLUMNS[:2], *gradients]
    lines = [heading, ["---"] * 3 + ["---:"] * len(COLUMNS)]
    for kind, dtype, path, found in measured(emulator, situation, progress):
        name = str(dtype).removeprefix("torch.")
        lines.append([kind, name, path, *(f"{value:.1e}" for value in found)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(emulator: Any, progress: Callable[[str], None]) -> str:
    parts = [INTRODUCTION]
    # oneDNN's fp16 and bf16 matmuls round differently from machine to machine.
    with torch.backends.mkldnn.flags(enabled=False):
        for situation in SITUATIONS:
            title = situation.title[0].upper() + situation.title[1:]
            parts.append(f"## {title}\n\n{table(emulator, situation, progress)}\n")
    return "\n".join(parts)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write docs/internals/cuda-errors.md")
    options = parser.parse_args()
    made = page(load_emulator(), lambda text: print(text, file=sys.stderr, flush=True))
    if options.update:
        PAGE.write_text(made, encoding="utf-8")
    else:
        print(made, end="")


if __name__ == "__main__":
    main()
