"""What is measured: the sizes of a sequence, and in which form it comes."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

#: The recurrent cells: RotLSTM runs against nn.LSTM, RotGRU against nn.GRU.
CELLS = ("LSTM", "GRU")
#: Training is forward and backward, with gradients of the input and the weights.
PASSES = ("train", "infer")

SEED = 0
_GATES_OF_TORCH = {"LSTM": 4, "GRU": 3}


@dataclass(frozen=True)
class Work:
    """A sequence to run through one layer, or a single step to run through a cell."""

    name: str
    batch: int
    steps: int
    input_size: int
    hidden_size: int
    #: "padded": all rows have all steps; "packed": lengths uniform in 1..steps; "cell": one step
    #: of RotLSTMCell, nn.LSTMCell and so on.
    form: str = "padded"

    def label(self) -> str:
        """Describe the sizes in a few words."""
        if self.form == "cell":
            return f"cell, B {self.batch}, H {self.hidden_size}"
        sizes = f"B {self.batch}, T {self.steps}, "
        if self.input_size == self.hidden_size:
            sizes += f"H {self.hidden_size}"
        else:
            sizes += f"in {self.input_size}, H {self.hidden_size}"
        return f"packed, {sizes}" if self.form == "packed" else sizes

    def packed(self) -> Work:
        """Give the same sizes with packed input."""
        if self.form == "cell":
            raise ValueError(f"{self.name} is a single step, which cannot be packed")
        name = self.name if self.form == "packed" else f"packed-{self.name}"
        return Work(**{**self.to_json(), "name": name, "form": "packed"})

    def lengths(self) -> Tensor:
        """Give the length of each row, the same ones every time."""
        if self.form != "packed":
            return torch.full((self.batch,), self.steps)
        generator = torch.Generator().manual_seed(SEED)
        return torch.randint(1, self.steps + 1, (self.batch,), generator=generator)

    def tokens(self) -> int:
        """Count the steps of all rows."""
        return int(self.lengths().sum())

    def flops(self, cell: str, passes: str, rotating: bool) -> int:
        """Count the operations in the matrix products; a backward pass has twice a forward's."""
        rows = _GATES_OF_TORCH[cell] * self.hidden_size
        rows += self.hidden_size // 2 if rotating else 0
        forward = 2 * self.tokens() * rows * (self.input_size + self.hidden_size)
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
        Work("latency-256", 1, 200, 256, 256),
        _PAPER.packed(),
        _MIDDLE.packed(),
        Work("cell-50", 1, 1, 50, 50, form="cell"),
    )
}
QUICK = ("paper", "h256", "latency-50", "packed-paper", "cell-50")


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
