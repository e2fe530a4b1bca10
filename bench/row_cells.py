"""RUM, GORU and EURNN next to their plain PyTorch; layer norm next to our LSTM and loops of users.

The loops are scripted by torch.jit, and compiled by torch.compile, which unrolls the steps and
takes minutes per row. Forward, and forward with backward, on a
CPU; all contestants of a row take turns. Results go into a JSON file.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import row_file
import torch
import torch.nn.functional as F
from ratios import Row, median, ratio
from torch import Tensor, nn
from work import PASSES, Work

import rotcell

KIND = "row_cells"

#: Layers, each measured against its equations in plain PyTorch.
LAYERS = ("RUM", "GORU", "EURNN")
LSTM, NORMALIZED, SCRIPTED = "LSTM", "LSTM with layer norm", "layer norm in a scripted loop"
COMPILED = "layer norm in a compiled loop"
WORKS = "32x68x100x50,32x100x128x128,1x200x128x128,32x100x256x256"

Weights = list[Tensor]


def plain_loop(x: Tensor, h: Tensor, c: Tensor, weights: Weights) -> Tensor:
    """Layer norm as users write it; the matmul with x is one for all steps."""
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


scripted_loop = torch.jit.script(plain_loop)


def compiled_loop() -> Callable[[Tensor, Tensor, Tensor, Weights], Tensor]:
    """Compile it for the sizes of the first call."""
    torch._dynamo.reset()
    compiled: Callable[[Tensor, Tensor, Tensor, Weights], Tensor] = torch.compile(
        plain_loop, fullgraph=True, dynamic=False
    )
    return compiled


def contestants(work: Work, train: bool) -> dict[str, Callable[[], Any]]:
    """One function for each, on the same input."""
    torch.manual_seed(0)
    x = torch.randn(work.steps, work.batch, work.input_size)

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
        layer = getattr(rotcell, name)(work.input_size, work.hidden_size)
        functions[name] = over(layer, lambda layer=layer: layer(x)[0])
        functions[plain(name)] = over(layer, lambda layer=layer: by_reference(layer))
    lstm = rotcell.LSTM(work.input_size, work.hidden_size)
    normalized = rotcell.LSTM(work.input_size, work.hidden_size, layer_norm=True)
    zeros = torch.zeros(work.batch, work.hidden_size)
    weights = list(normalized.parameters())
    compiled = compiled_loop()
    functions[LSTM] = over(lstm, lambda: lstm(x)[0])
    functions[NORMALIZED] = over(normalized, lambda: normalized(x)[0])
    functions[SCRIPTED] = over(normalized, lambda: scripted_loop(x, zeros, zeros, weights))
    functions[COMPILED] = over(normalized, lambda: compiled(x, zeros, zeros, weights))
    return functions


def plain(name: str) -> str:
    """Name a layer's reference."""
    return f"{name} in plain PyTorch"


#: Pairs of contestants: the time of the first over that of the second.
COMPARED = (
    *((plain(name), name) for name in LAYERS),
    (NORMALIZED, LSTM),
    (SCRIPTED, NORMALIZED),
    (COMPILED, NORMALIZED),
)


def lines(row: Row) -> list[str]:
    """Give the lines of a row."""
    return [
        f"  {name:33}{1e3 * (median(row, name) or 0):9.2f} ms, {ratio(row, name, other)} of {other}"
        for name, other in COMPARED
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = row_file.make_parser(KIND, __doc__, seconds=20.0)
    row_file.add_shapes(parser, WORKS)
    options = parser.parse_args(arguments)
    file = row_file.RowFile(KIND, parser, options)
    print("Ratios: medians (95 % confidence interval).")
    for work, passes in itertools.product(options.shapes, PASSES):
        functions = contestants(work, passes == "train")
        row = {"work": work.to_json(), "pass": passes, **row_file.timings(functions, options)}
        file.add(row)
        print(f"\n{work.label()}, {passes}")
        print("\n".join(lines(row)), flush=True)
    file.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
