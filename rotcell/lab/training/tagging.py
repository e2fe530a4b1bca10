"""Symbols in, a symbol out at every step: the model and the training of generated tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rotcell.lab.cells import make_layer
from rotcell.lab.task import DataFile
from rotcell.lab.training.loop import Budget, Problem
from rotcell.lab.training.settings import LabSettings, seed_of

IGNORED = -100  # a step whose output does not matter


class Examples(NamedTuple):
    """Sequences of symbols and what should come out."""

    symbols: Tensor  # [T, N]
    targets: Tensor  # [T, N]

    def batches(self, rows: int) -> Iterator[Examples]:
        """So many sequences at a time."""
        parts = (tensor.split(rows, dim=1) for tensor in self)
        return map(Examples._make, zip(*parts, strict=True))


Draw = Callable[[int, int], Examples]  # number of sequences, seed


class Tagger(nn.Module):
    """One-hot symbols, a recurrent layer, a linear layer that scores the outputs."""

    def __init__(self, settings: LabSettings, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.rnn = make_layer(settings.cell, settings.start, inputs, settings.size)
        self.linear = nn.Linear(settings.size, outputs)

    def forward(self, symbols: Tensor) -> Tensor:
        """Scores [T, N, outputs] from symbols [T, N]."""
        scores: Tensor = self.linear(self.rnn(F.one_hot(symbols, self.inputs).float())[0])
        return scores


class Tagging(Problem):
    """Training on fresh sequences in every epoch; the run's seed decides which."""

    def __init__(
        self,
        settings: LabSettings,
        budget: Budget,
        model_size: tuple[int, int],  # inputs, outputs
        draw: Draw,
        batch: int,
        epoch_steps: int,
        validation: Examples,
        measured_steps: slice = slice(None),  # those that accuracies are about
    ) -> None:
        self.budget = budget
        self._seed, self._draw = settings.seed, draw
        self._batch, self._epoch_steps = batch, epoch_steps
        self._validation, self._measured = validation, measured_steps
        torch.manual_seed(seed_of(settings.seed, "weights"))
        self.model = Tagger(settings, *model_size)

    def batches(self, epoch: int) -> Iterator[Examples]:
        """New sequences, the same for every cell."""
        seed = seed_of(self._seed, "data", epoch)
        return self._draw(self._batch * self._epoch_steps, seed).batches(self._batch)

    def loss(self, batch: Examples) -> Tensor:
        """Cross entropy, mean over the steps that matter."""
        scores: Tensor = self.model(batch.symbols)
        targets = batch.targets.flatten()
        return F.cross_entropy(scores.flatten(0, 1), targets, ignore_index=IGNORED)

    def validate(self) -> float:
        """One minus the accuracy."""
        return 1 - float(self.right(self._validation).mean())

    def right(self, examples: Examples) -> Tensor:
        """[T, N] of the measured steps: 1 where the output is right, else 0."""
        scores: Tensor = self.model(examples.symbols)
        found = scores.argmax(-1) == examples.targets
        return found[self._measured].double()


def generated(name: str, examples: Examples) -> DataFile:
    """A name for data that a generator makes, by a sample of it."""
    content = b"".join(tensor.numpy().tobytes() for tensor in examples)
    return DataFile(f"generated, {name}", hashlib.md5(content, usedforsecurity=False).hexdigest())
