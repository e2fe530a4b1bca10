"""What is measured: the sizes of a sequence, and in which form it comes."""

from __future__ import annotations

import random
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence


class Cell(NamedTuple):
    """What goes with a layer of rotcell."""

    #: Its name in rotcell.reference.CELLS.
    reference: str
    #: The layer of torch.nn that it is compared with.
    torch: str
    rotates: bool


#: The layers of rotcell that are measured.
CELLS = {
    "RotLSTM": Cell("rot_lstm", "LSTM", rotates=True),
    "LSTM": Cell("lstm", "LSTM", rotates=False),
    "RotGRU": Cell("rot_gru", "GRU", rotates=True),
    "ClassicGRU": Cell("classic_gru", "GRU", rotates=False),
    "GRU": Cell("gru", "GRU", rotates=False),
}
ROTATING = [name for name, cell in CELLS.items() if cell.rotates]
#: Training is forward and backward, with gradients of the input and the weights.
PASSES = ("train", "infer")

SEED = 0


@dataclass(frozen=True)
class Work:
    """A sequence to run through a layer, or a single step to run through a cell."""

    name: str
    batch: int
    steps: int
    input_size: int
    hidden_size: int
    #: "padded": all rows have all steps; "packed": lengths uniform in 1..steps; "cell": one step
    #: of RotLSTMCell, nn.LSTMCell and so on.
    form: str = "padded"
    layers: int = 1
    directions: int = 1

    def label(self) -> str:
        """Describe the sizes in a few words."""
        if self.form == "cell":
            return f"cell, B {self.batch}, H {self.hidden_size}"
        sizes = f"B {self.batch}, T {self.steps}, "
        if self.input_size == self.hidden_size:
            sizes += f"H {self.hidden_size}"
        else:
            sizes += f"in {self.input_size}, H {self.hidden_size}"
        kinds = ["packed"] * (self.form == "packed")
        kinds += [f"{self.layers} layers"] * (self.layers > 1)
        kinds += ["bidirectional"] * (self.directions > 1)
        return ", ".join([*kinds, sizes])

    @property
    def is_simple(self) -> bool:
        """Whether it is one layer in one direction over rows of the same length."""
        return self.form == "padded" and self.layers == self.directions == 1

    def packed(self) -> Work:
        """Give the same sizes with packed input."""
        if self.form == "cell":
            raise ValueError(f"{self.name} is a single step, which cannot be packed")
        name = self.name if self.form == "packed" else f"packed-{self.name}"
        return replace(self, name=name, form="packed")

    def lengths(self) -> Tensor:
        """Give the length of each row, the same ones every time."""
        if self.form != "packed":
            return torch.full((self.batch,), self.steps)
        generator = torch.Generator().manual_seed(SEED)
        return torch.randint(1, self.steps + 1, (self.batch,), generator=generator)

    def tokens(self) -> int:
        """Count the steps of all rows."""
        return int(self.lengths().sum())

    def flops(self, rows: int, passes: str) -> int:
        """Count the operations in the matmuls; a backward pass has twice a forward's.

        Args:
            rows: of each weight.
            passes: "train" or "infer".
        """
        columns = self.input_size + self.hidden_size
        columns += (self.layers - 1) * (self.directions + 1) * self.hidden_size
        forward = 2 * self.tokens() * self.directions * rows * columns
        return forward * (3 if passes == "train" else 1)

    def make_input(
        self, device: torch.device, dtype: torch.dtype, requires_grad: bool
    ) -> Tensor | PackedSequence:
        """Draw the input: ``[T, B, input]``, packed, or ``[B, input]`` for a cell."""
        generator = torch.Generator().manual_seed(SEED)
        x = torch.randn(self.steps, self.batch, self.input_size, generator=generator)
        x = x.to(device, dtype)
        if self.form == "cell":
            return x[0].clone().requires_grad_(requires_grad)
        if self.form == "padded":
            return x.requires_grad_(requires_grad)
        tokens, *layout = pack_padded_sequence(x, self.lengths(), enforce_sorted=False)
        return PackedSequence(tokens.requires_grad_(requires_grad), *layout)

    def to_json(self) -> dict[str, Any]:
        """Give the fields as a dict that the constructor takes back."""
        return asdict(self)


_PAPER = Work("paper", 32, 68, 100, 50)
_MIDDLE = Work("h256", 64, 100, 256, 256)

TABLE = {
    work.name: work
    for work in (
        _PAPER,
        Work("long", 32, 200, 50, 50),
        Work("h128", 32, 100, 128, 128),
        _MIDDLE,
        Work("h512", 64, 50, 512, 512),
        Work("h1024", 32, 25, 1024, 1024),
        Work("latency-50", 1, 200, 50, 50),
        Work("latency-256", 1, 100, 256, 256),
        _PAPER.packed(),
        _MIDDLE.packed(),
        replace(_PAPER, name="bidirectional-paper", directions=2),
        replace(_MIDDLE, name="bidirectional-h256", directions=2),
        replace(_PAPER, name="two-layers-paper", layers=2),
        replace(_MIDDLE, name="two-layers-h256", layers=2),
        Work("short-256", 4, 8, 256, 256),
        Work("cell-50", 1, 1, 50, 50, form="cell"),
        Work("cell-256", 32, 1, 256, 256, form="cell"),
    )
}
QUICK = ("paper", "h256", "latency-50", "packed-paper", "cell-50")


#: From where to where random shapes are drawn, each size log-uniformly.
RANDOM_BATCH, RANDOM_STEPS, RANDOM_INPUTS, RANDOM_HIDDEN = (1, 180), (8, 128), (8, 512), (16, 512)


def random_works(count: int, seed: int) -> list[Work]:
    """Draw padded sequences; the first ones do not depend on how many are drawn."""
    draws = random.Random(seed)

    def draw(least: int, most: int) -> int:
        return int(least * ((most + 1) / least) ** draws.random())

    works = []
    for _ in range(count):
        ranges = (RANDOM_BATCH, RANDOM_STEPS, RANDOM_INPUTS, RANDOM_HIDDEN)
        sizes = [draw(*bounds) for bounds in ranges]
        works.append(Work("x".join(map(str, sizes)), *sizes))
    return works


def parse(text: str) -> Work:
    """Read a name of the table, or sizes as in ``32x68x100x50`` (batch, steps, input, hidden)."""
    if text in TABLE:
        return TABLE[text]
    if re.fullmatch(r"\d+x\d+x\d+x\d+", text):
        sizes = [int(size) for size in text.split("x")]
        if min(sizes) > 0:
            batch, steps, input_size, hidden_size = sizes
            return Work(text, batch, steps, input_size, hidden_size)
    raise ValueError(
        f"unknown shape {text!r}: give BATCHxSTEPSxINPUTxHIDDEN (32x68x100x50), all at least 1, "
        f"or one of {', '.join(TABLE)}"
    )
