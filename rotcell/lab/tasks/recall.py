"""Associative recall: pairs of a letter and a digit, then a letter; its digit is to be named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from rotcell.lab.judged import Measure
from rotcell.lab.task import DataFile, LabTask
from rotcell.lab.training.loop import Budget, Problem
from rotcell.lab.training.settings import LabSettings, seed_of
from rotcell.lab.training.tagging import IGNORED, Examples, Tagging, generated

LETTERS: Final = 26
DIGITS: Final = 10
QUESTION: Final = LETTERS + DIGITS
SOLVED: Final = 0.999
LENGTHS: Final = {"t30": 30}


def sequences(length: int, number: int, seed: int) -> Examples:
    """[length + 3, N]: pairs with different letters, "??" and one of the letters."""
    generator = torch.Generator().manual_seed(seed)
    pairs = length // 2
    letters = torch.rand(LETTERS, number, generator=generator).argsort(dim=0)[:pairs]
    digits = torch.randint(DIGITS, (pairs, number), generator=generator)
    asked = torch.randint(pairs, (1, number), generator=generator)
    symbols = torch.full((length + 3, number), QUESTION)
    symbols[0:length:2] = letters
    symbols[1:length:2] = digits + LETTERS
    symbols[-1] = letters.gather(0, asked)[0]
    targets = torch.full_like(symbols, IGNORED)
    targets[-1] = digits.gather(0, asked)[0]
    return Examples(symbols, targets)


class _Recall(Tagging):
    def __init__(self, task: Recall, settings: LabSettings) -> None:
        length = LENGTHS[settings.dataset]
        self._test = sequences(length, task.test_rows, seed_of("test", length))
        super().__init__(
            settings,
            task.budget,
            (LETTERS + DIGITS + 1, DIGITS),
            lambda number, seed: sequences(length, number, seed),
            task.batch,
            task.epoch_steps,
            sequences(length, task.validation_rows, seed_of("validation", length)),
            slice(-1, None),
        )

    def test(self) -> dict[str, float]:
        accuracy = float(self.right(self._test).mean())
        return {"accuracy": accuracy, "solved": float(accuracy >= SOLVED)}


BUDGET: Final = Budget(200, "linear", target=0.001, target_epochs=5, cooldown=15, clip=1.0)


@dataclass(frozen=True)
class Recall(LabTask):
    """The task; tests make smaller ones."""

    name: str = "recall"
    about: str = "associative recall: name the digit that followed a letter"
    datasets: tuple[str, ...] = tuple(LENGTHS)
    batch: int = 64
    epoch_steps: int = 100
    validation_rows: int = 1024
    test_rows: int = 8192
    budget: Budget = BUDGET
    expected_epochs: int = 180

    measure = Measure("accuracy", "accuracy in %", 0.01, 1, 100)

    def item(self, settings: Mapping[str, Any]) -> str:
        """Copying and recall are one item."""
        return "memory"

    def problem(self, settings: LabSettings, data: Path | None) -> tuple[Problem, DataFile]:
        """Generated for the run's seed; `data` is not used."""
        length = LENGTHS[settings.dataset]
        sample = sequences(length, self.batch, seed=0)
        return _Recall(self, settings), generated(f"{length // 2} pairs", sample)

    def protocol(self) -> dict[str, Any]:
        """Everything fixed but the budget."""
        return {
            "model": "one-hot, layer, linear; cross entropy at the last step",
            "batch": self.batch,
            "epoch_steps": self.epoch_steps,
            "validation": f"error at the last step, {self.validation_rows} sequences",
            "test": f"{self.test_rows} sequences",
        }


TASK: Final = Recall()
