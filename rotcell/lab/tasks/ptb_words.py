"""Words of Penn Treebank, as the small model of Zaremba et al. (2014) predicts them."""

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
from rotcell.lab.judged import Anchor, Measure
from rotcell.lab.task import DataFile, LabTask
from rotcell.lab.tasks.ptb_characters import read_parts
from rotcell.lab.tasks.text import State, detached, rows_of_text, windows
from rotcell.lab.training.loop import Budget, Problem
from rotcell.lab.training.settings import LabSettings, seed_of

LAYERS: Final = 2
_RANGE: Final = 0.1  # weights of embedding and softmax start in ± this
END: Final = b"<eos>"


@lru_cache(maxsize=2)
def load(folder: Path) -> tuple[tuple[Tensor, ...], int, DataFile]:
    """The words of the three parts, with an <eos> per line, numbered by the training part."""
    contents, named = read_parts(folder)
    parts = [content.replace(b"\n", b" " + END + b" ").split() for content in contents]
    number = {word: index for index, word in enumerate(sorted(set(parts[0])))}
    unknown = {word for part in parts[1:] for word in part} - number.keys()
    if unknown:
        example = sorted(unknown)[0].decode(errors="replace")
        raise DataError(f"{len(unknown)} words are not in the training text, such as {example!r}")
    numbered = (torch.tensor([number[word] for word in part]) for part in parts)
    return tuple(numbered), len(number), named


class WordModel(nn.Module):
    """Embedding, recurrent layers of the same size, a linear layer that scores the next word."""

    def __init__(self, settings: LabSettings, words: int) -> None:
        super().__init__()
        size = settings.size
        self.embedding = nn.Embedding(words, size)
        self.dropout = nn.Dropout(settings.dropout)
        self.rnn = make_layer(settings.cell, settings.start, size, size, LAYERS)
        self.linear = nn.Linear(size, words)
        nn.init.uniform_(self.embedding.weight, -_RANGE, _RANGE)
        nn.init.uniform_(self.linear.weight, -_RANGE, _RANGE)
        nn.init.zeros_(self.linear.bias)

    def forward(self, text: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Scores [T, N, words] after text [T, N], and the state for what follows it."""
        states, after = self.rnn(self.dropout(self.embedding(text)), state)
        return self.linear(self.dropout(states)), after


class _Words(Problem):
    def __init__(
        self, task: Words, settings: LabSettings, data: tuple[Tensor, ...], words: int
    ) -> None:
        self.budget, self._length = task.budget, task.length
        self._train, self._validation, self._test = (
            rows_of_text(part, task.batch) for part in data
        )
        self._state: State = None
        torch.manual_seed(seed_of(settings.seed, "weights"))
        self.model = WordModel(settings, words)

    def batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, bool]]:
        return windows(self._train, self._length)

    def loss(self, batch: tuple[Tensor, Tensor, bool]) -> Tensor:
        """Nats per sequence of a window: the sum over steps, the mean over rows."""
        text, following, begins = batch
        scores, after = self.model(text, None if begins else self._state)
        self._state = detached(after)
        return F.cross_entropy(scores.flatten(0, 1), following.flatten()) * len(text)

    def validate(self) -> float:
        return self._perplexity(self._validation)

    def test(self) -> dict[str, float]:
        return {"perplexity": self._perplexity(self._test)}

    def _perplexity(self, rows: Tensor) -> float:
        total, steps = 0.0, 0
        for batch in windows(rows, self._length):
            total += float(self.loss(batch))
            steps += len(batch[0])
        return math.exp(min(total / steps, 100.0))


BUDGET: Final = Budget(13, "decay", halve_after=4, clip=5.0, sgd=True)


@dataclass(frozen=True)
class Words(LabTask):
    """The task; tests make smaller ones."""

    name: str = "ptb_words"
    about: str = "Penn Treebank: the next word, with two layers"
    datasets: tuple[str, ...] = ("ptb",)
    needs_data: bool = True
    batch: int = 20
    length: int = 20
    budget: Budget = BUDGET
    expected_epochs: int = 13

    measure = Measure("perplexity", "perplexity", 1.0, -1)
    anchors = (
        Anchor(
            "ptb",
            "lstm",
            "115.91",
            112.9,
            118.9,
            "TensorFlow's tutorial ptb_word_lm, configuration small, after Zaremba et al. 2014",
        ),
    )

    def item(self, settings: Mapping[str, Any]) -> str:
        """Music and text are one item."""
        return "real data"

    def problem(self, settings: LabSettings, data: Path | None) -> tuple[Problem, DataFile]:
        """Loaded from `data`, the folder of the three files."""
        if data is None:
            raise DataError("ptb_words needs --data, the folder of ptb.train.txt")
        parts, words, named = load(data)
        return _Words(self, settings, parts, words), named

    def protocol(self) -> dict[str, Any]:
        """Everything fixed but the budget."""
        return {
            "model": f"embedding, dropout, {LAYERS} layers, dropout, linear; cross entropy",
            "batch": self.batch,
            "length": self.length,
            "state": "carried from window to window, gradients cut",
            "loss": "sum over the steps of a window, mean over rows",
        }


TASK: Final = Words()
