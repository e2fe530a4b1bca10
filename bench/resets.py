"""A training step of recurrent PPO's shape, where episodes end inside the sequences.

rotcell's layers take the ends as `resets`. With nn.LSTM there are two ways: a loop over the steps
that masks the state before each, and one call for each run of steps in which no row is reset.
nn.LSTM in one call, which ignores the ends, shows what they cost. All run in turns. Results go into
a JSON file.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import row_file
import torch
from ratios import Row, median, ratio
from torch import Tensor, nn

import rotcell

KIND = "resets"
#: What all others are measured against.
LOOP = "nn.LSTM, a loop over the steps"
PIECES = "nn.LSTM, a call for each run of steps"
IGNORED = "nn.LSTM, ends ignored"
LAYERS = ("RotLSTM", "RotGRU", "LSTM", "ClassicGRU")


def with_resets(layer: str) -> str:
    """Name a contestant."""
    return f"{layer}, resets"


@dataclass(frozen=True)
class Rollout:
    """Sizes, and how often an episode begins."""

    batch: int
    steps: int
    inputs: int
    hidden: int
    begins: float

    def label(self) -> str:
        """Say it in one line."""
        return (
            f"B {self.batch}, T {self.steps}, in {self.inputs}, H {self.hidden}, an episode begins "
            f"at a step with probability {self.begins}"
        )


ROLLOUT = Rollout(128, 128, 64, 256, 0.01)
TINY = Rollout(3, 5, 4, 6, 0.3)


def step_by_step(lstm: nn.LSTM, x: Tensor, resets: Tensor) -> Tensor:
    """The usual loop."""
    keep = (~resets).to(x.dtype)[None, :, :, None]  # [1, T, B, 1]
    h = c = x.new_zeros(1, x.shape[1], lstm.hidden_size)
    outputs = []
    for t in range(len(x)):
        out, (h, c) = lstm(x[t : t + 1], (keep[:, t] * h, keep[:, t] * c))
        outputs.append(out)
    return torch.cat(outputs)


def piece_by_piece(lstm: nn.LSTM, x: Tensor, resets: Tensor) -> Tensor:
    """Fewer and longer calls, where there are steps at which no row is reset."""
    keep = (~resets).to(x.dtype)[None, :, :, None]
    h = c = x.new_zeros(1, x.shape[1], lstm.hidden_size)
    begins = [0, *(t for t in resets.any(1).nonzero().flatten().tolist() if t > 0), len(x)]
    outputs = []
    for first, end in itertools.pairwise(begins):
        out, (h, c) = lstm(x[first:end], (keep[:, first] * h, keep[:, first] * c))
        outputs.append(out)
    return torch.cat(outputs)


def contestants(rollout: Rollout) -> dict[str, Callable[[], Any]]:
    """Forward and backward of each, on the same input and, for LSTMs of torch, the same weights."""
    torch.manual_seed(0)
    x = torch.randn(rollout.steps, rollout.batch, rollout.inputs)
    resets = torch.rand(rollout.steps, rollout.batch) < rollout.begins
    lstm = nn.LSTM(rollout.inputs, rollout.hidden)

    def training(module: nn.Module, run: Callable[[], Tensor]) -> Callable[[], None]:
        def step() -> None:
            module.zero_grad(set_to_none=True)
            run().square().mean().backward()

        return step

    functions = {
        LOOP: training(lstm, lambda: step_by_step(lstm, x, resets)),
        PIECES: training(lstm, lambda: piece_by_piece(lstm, x, resets)),
        IGNORED: training(lstm, lambda: lstm(x)[0]),
    }
    for name in LAYERS:
        layer = getattr(rotcell, name)(rollout.inputs, rollout.hidden)
        functions[with_resets(name)] = training(
            layer, lambda layer=layer: layer(x, resets=resets)[0]
        )
        functions[name] = training(layer, lambda layer=layer: layer(x)[0])
    return functions


def line(row: Row, name: str) -> str:
    """Give the line of one contestant."""
    shown = [ratio(row, name, other) for other in (LOOP, IGNORED)]
    return f"{name:40}{1e3 * (median(row, name) or 0):9.1f} ms  " + "  ".join(map(str, shown))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = row_file.make_parser(KIND, __doc__, seconds=60.0)
    parser.set_defaults(threads=torch.get_num_threads())
    parser.add_argument("--tiny", action="store_true", help="a tiny size, to try the script")
    options = parser.parse_args(arguments)
    rollout = TINY if options.tiny else ROLLOUT
    file = row_file.RowFile(KIND, parser, options)
    print(rollout.label())
    print(f"Ratios: medians (95 % confidence interval), of {LOOP!r} and of {IGNORED!r}.\n")
    row = {"rollout": asdict(rollout), **row_file.timings(contestants(rollout), options)}
    file.add(row)
    for name in row["timings"]:
        print(line(row, name))
    file.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
