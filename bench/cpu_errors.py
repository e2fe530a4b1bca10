"""How far layers on the CPU are from float64, by dtype: docs/internals/cpu-errors.md.

rotcell's layers on the instruction set in use, and torch's own. --update writes the page.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import torch
from cuda_errors import COLUMNS, errors, results
from torch import nn

import rotcell

PAGE = Path(__file__).resolve().parents[1] / "docs/internals/cpu-errors.md"
BATCH, INPUTS, HIDDEN = 8, 100, 50
LAYERS = (rotcell.RotLSTM, rotcell.LSTM, nn.LSTM, rotcell.RotGRU, rotcell.GRU, nn.GRU)
KEEP_BIAS = 5.0
SITUATIONS = {"68 steps": (68, 0.0), "256 steps, hardly forgetting": (256, KEEP_BIAS)}
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_Prepared = tuple[nn.Module, nn.Module, torch.Tensor, list[torch.Tensor]]


def name_of(kind: type[nn.Module]) -> str:
    return f"{'nn' if kind in (nn.LSTM, nn.GRU) else 'rotcell'}.{kind.__name__}"


def prepared(
    kind: type[nn.Module], dtype: torch.dtype, steps: int, keep_bias: float, angle_bias: float
) -> _Prepared:
    """A layer of this dtype, the same in float64, an input, and first states."""
    torch.manual_seed(0)
    count = 1 if "GRU" in kind.__name__ else 2
    layer = kind(INPUTS, HIDDEN)
    with torch.no_grad():
        # The second gate of LSTMs, f, and of GRUs, z, which means the opposite in RotGRU.
        sign = -1 if kind is rotcell.RotGRU else 1
        layer.bias_ih_l0[HIDDEN : 2 * HIDDEN] += sign * keep_bias
        layer.bias_ih_l0[(3 if count == 1 else 4) * HIDDEN :] += angle_bias
    layer.to(dtype)
    exact = kind(INPUTS, HIDDEN).double()
    exact.load_state_dict({name: p.double() for name, p in layer.state_dict().items()})
    x = torch.randn(steps, BATCH, INPUTS).to(dtype)
    states = [torch.randn(1, BATCH, HIDDEN).tanh().to(dtype) for _ in range(count)]
    return layer, exact, x, states


def layer_errors(
    kind: type[nn.Module], dtype: torch.dtype, steps: int, keep_bias: float
) -> list[float]:
    """Errors by column. `keep_bias` is added to the bias of the gate that keeps the state."""
    # The angles of a layer that keeps its state are near 0; see `unstable` for others.
    layer, exact, x, states = prepared(kind, dtype, steps, keep_bias, -2 * keep_bias)
    true = results(exact, x.double(), [s.double() for s in states])
    return errors(results(layer, x, states), true)


@torch.no_grad()
def unstable(steps: int) -> list[float]:
    """Errors of a RotLSTM's output with a kept state and ordinary angles.

    In order: of the bfloat16 layer, of float64 with h rounded to bfloat16 after every step, and of
    float64 with first states that differ by 1e-6.
    """
    layer, exact, x, states = prepared(rotcell.RotLSTM, torch.bfloat16, steps, KEEP_BIAS, 0.0)
    wide = tuple(s.double() for s in states)
    true = exact(x.double(), wide)[0]
    rounded, (h, c) = [], wide
    for step in x.double().split(1):
        output, (h, c) = exact(step, (h.bfloat16().double(), c))
        rounded.append(output.bfloat16().double())
    moved = exact(x.double(), tuple(s + 1e-6 for s in wide))[0]
    outputs = (layer(x, tuple(states))[0].double(), torch.cat(rounded), moved)
    return [float((o - true).square().mean().sqrt() / true.square().mean().sqrt()) for o in outputs]


def page() -> str:
    instruction_set = rotcell.build_info()["instruction_set"]
    header = ["layer", *COLUMNS[:2], *(f"gradient of {name}" for name in COLUMNS[2:])]
    lines = [
        "# How far layers on the CPU are from float64",
        "",
        "Root mean square of the error, relative to that of the true values: the same layer in",
        "float64, given the same numbers, already rounded to the dtype. Written by",
        f"`python bench/cpu_errors.py --update` with the `{instruction_set}`",
        f"kernels and torch {torch.__version__}. B {BATCH}, {INPUTS} inputs, H {HIDDEN}, random",
        "weights, random gradients of outputs and last states. Rounding to bfloat16 alone is an",
        "error of about 1.7e-03.",
    ]
    for dtype, (title, situation) in itertools.product(DTYPES, SITUATIONS.items()):
        lines += ["", f"## {str(dtype).removeprefix('torch.')}, {title}", ""]
        lines += [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
        for kind in LAYERS:
            row = [name_of(kind), *(f"{e:.1e}" for e in layer_errors(kind, dtype, *situation))]
            lines.append(f"| {' | '.join(row)} |")
    lines += [
        "",
        "## Where the equations amplify every error",
        "",
        "A RotLSTM that hardly forgets and turns by ordinary angles (around π) has a large cell",
        "state, which small errors of the angles turn. The error of its output grows with the",
        "steps, as much in float64 with h rounded to bfloat16 after every step. In float64",
        "throughout, first states that differ by 1e-6 lead to other outputs as well. So the error",
        "comes from the equations, and not from the kernels.",
        "",
        "| steps | bfloat16 layer | float64, h rounded | float64, first states + 1e-6 |",
        "|---|---|---|---|",
    ]
    for steps in (16, 64, 128, 256):
        lines.append(f"| {steps} | {' | '.join(f'{e:.1e}' for e in unstable(steps))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help=f"write {PAGE.name} in docs")
    update = parser.parse_args().update
    torch.set_num_threads(1)
    text = page()
    if update:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
