"""Text: the next character, from all characters before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rotcell.lab.cells import make_layer
from rotcell.lab.errors import DataError
from rotcell.lab.judged import Measure, Picture
from rotcell.lab.task import DataFile, LabTask, read_checked
from rotcell.lab.training.loop import Budget, Problem
from rotcell.lab.training.settings import LabSettings, seed_of

FILES: Final = {"tinyshakespeare": "input.txt"}
_KNOWN: Final = {"6fb458f1232090904fb40fe944165e91": "Tiny Shakespeare"}
_HELD_OUT: Final = 0.05  # for validation, and as much again for the test

State = Tensor | tuple[Tensor, ...] | None


@lru_cache(maxsize=2)
def load(path: Path) -> tuple[tuple[Tensor, Tensor, Tensor], int, DataFile]:
    """Characters of the training, validation and test text, in this order in the file."""
    content, named = read_checked(path, _KNOWN)
    known = sorted(set(content))
    lookup = torch.zeros(256, dtype=torch.int64)
    lookup[known] = torch.arange(len(known))
    characters = lookup[torch.frombuffer(bytearray(content), dtype=torch.uint8).long()]
    held_out = int(len(characters) * _HELD_OUT)
    sizes = [len(characters) - 2 * held_out, held_out, held_out]
    train, validation, test = characters.split(sizes)
    return (train, validation, test), len(known), named


class Writer(nn.Module):
    """One-hot characters, a recurrent layer, dropout, a linear layer that scores the next one."""

    def __init__(self, settings: LabSettings, characters: int) -> None:
        super().__init__()
        self.characters = characters
        self.rnn = make_layer(settings.cell, settings.start, characters, settings.size)
        self.dropout = nn.Dropout(settings.dropout)
        self.linear = nn.Linear(settings.size, characters)

    def forward(self, text: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Scores [T, N, characters] after text [T, N], and the state for what follows it."""
        states, after = self.rnn(F.one_hot(text, self.characters).float(), state)
        return self.linear(self.dropout(states)), after


class _Text(Problem):
    def __init__(
        self, task: Text, settings: LabSettings, data: tuple[Tensor, ...], characters: int
    ) -> None:
        self.budget = task.budget
        self._length = task.length
        self._train, self._validation, self._test = (
            rows_of_text(part, task.batch) for part in data
        )
        self._seed = settings.seed
        self._state: State = None
        torch.manual_seed(seed_of(settings.seed, "weights"))
        self.model = Writer(settings, characters)

    def batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, bool]]:
        """Windows of all rows in order; the state goes from one to the next within an epoch."""
        generator = torch.Generator().manual_seed(seed_of(self._seed, "offset", epoch))
        offset = int(torch.randint(self._length, (), generator=generator))
        return windows(self._train[offset:], self._length)

    def loss(self, batch: tuple[Tensor, Tensor, bool]) -> Tensor:
        """Nats per character."""
        text, following, begins = batch
        scores, after = self.model(text, None if begins else self._state)
        self._state = detached(after)
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())

    def validate(self) -> float:
        return self._bits(self._validation)

    def test(self) -> dict[str, float]:
        return {"bits_per_character": self._bits(self._test)}

    def _bits(self, rows: Tensor) -> float:
        total, count = 0.0, 0
        for batch in windows(rows, self._length):
            total += float(self.loss(batch)) * batch[0].numel()
            count += batch[0].numel()
        return total / count / math.log(2)


def rows_of_text(text: Tensor, rows: int) -> Tensor:
    """[T, rows]: consecutive parts of a text; the few characters that are left over are dropped."""
    length = len(text) // rows
    if length < 2:
        raise DataError(f"a text of {len(text)} characters is too short for {rows} rows")
    return text[: length * rows].view(rows, length).t().contiguous()


def windows(rows: Tensor, length: int) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """Parts of `length` steps, what follows each step, and whether it is the first part."""
    for first in range(0, len(rows) - 1, length):
        window = rows[first : first + length + 1]
        yield window[:-1], window[1:], first == 0


def detached(state: State) -> State:
    """A state through which no gradient flows."""
    if state is None or isinstance(state, Tensor):
        return None if state is None else state.detach()
    return tuple(each.detach() for each in state)


BUDGET: Final = Budget(200, "halve", halve_after=2, patience=6, clip=1.0)


@dataclass(frozen=True)
class Text(LabTask):
    """The task; tests make smaller ones."""

    name: str = "text"
    about: str = "text: the next character"
    datasets: tuple[str, ...] = tuple(FILES)
    needs_data: bool = True
    split: str = "the last 5 % test, the 5 % before validation"
    batch: int = 32
    length: int = 128
    budget: Budget = BUDGET
    expected_epochs: int = 25

    measure = Measure("bits_per_character", "bits per character", 0.01, -1)
    picture = Picture("curves")

    def item(self, settings: Mapping[str, Any]) -> str:
        """Music and text are one item."""
        return "real data"

    def load(self, dataset: str, data: Path) -> tuple[tuple[Tensor, ...], int, DataFile]:
        """Training, validation and test text, the number of characters, and what it is."""
        return load(data / FILES[dataset])

    def problem(self, settings: LabSettings, data: Path | None) -> tuple[Problem, DataFile]:
        """Loaded from `data`, the folder of the text."""
        if data is None:
            raise DataError(f"{self.name} needs --data, the folder of the text")
        parts, characters, named = self.load(settings.dataset, data)
        return _Text(self, settings, parts, characters), named

    def protocol(self) -> dict[str, Any]:
        """Everything fixed but the budget."""
        return {
            "model": "one-hot, layer, dropout, linear; cross entropy",
            "batch": self.batch,
            "length": self.length,
            "state": "carried from window to window, gradients cut",
            "split": self.split,
        }


TASK: Final = Text()
