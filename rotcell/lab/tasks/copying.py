"""Copying: ten symbols, a long pause, a signal; then the ten symbols are to be repeated.

A model without memory has a loss of 10 ln 8 / (T + 20), averaged over all steps.
"""

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
from rotcell.lab.training.tagging import Examples, Tagging, generated

SYMBOLS: Final = 8
COPIED: Final = 10
BLANK: Final = SYMBOLS
SIGNAL: Final = SYMBOLS + 1
SOLVED: Final = 0.999
PAUSES: Final = {"t200": 200}


def sequences(pause: int, number: int, seed: int) -> Examples:
    """[pause + 20, N]: the targets are blank but for the last ten steps."""
    generator = torch.Generator().manual_seed(seed)
    copied = torch.randint(SYMBOLS, (COPIED, number), generator=generator)
    symbols = torch.full((pause + 2 * COPIED, number), BLANK)
    targets = symbols.clone()
    symbols[:COPIED] = copied
    symbols[COPIED + pause - 1] = SIGNAL
    targets[-COPIED:] = copied
    return Examples(symbols, targets)


class _Copying(Tagging):
    def __init__(self, task: Copying, settings: LabSettings) -> None:
        pause = PAUSES[settings.dataset]
        self._test = sequences(pause, task.test_rows, seed_of("test", pause))
        super().__init__(
            settings,
            task.budget,
            (SYMBOLS + 2, SYMBOLS + 1),
            lambda number, seed: sequences(pause, number, seed),
            task.batch,
            task.epoch_steps,
            sequences(pause, task.validation_rows, seed_of("validation", pause)),
            slice(-COPIED, None),
        )

    def test(self) -> dict[str, float]:
        accuracy = float(self.right(self._test).mean())
        return {
            "accuracy": accuracy,
            "loss": float(self.loss(self._test)),
            "solved": float(accuracy >= SOLVED),
        }


BUDGET: Final = Budget(100, "linear", target=0.001, target_epochs=5, cooldown=10, clip=1.0)


@dataclass(frozen=True)
class Copying(LabTask):
    """The task; tests make smaller ones."""

    name: str = "copying"
    about: str = "copying: repeat ten symbols after a long pause"
    datasets: tuple[str, ...] = tuple(PAUSES)
    batch: int = 64
    epoch_steps: int = 100
    validation_rows: int = 128
    test_rows: int = 512
    budget: Budget = BUDGET
    expected_epochs: int = 80

    measure = Measure("accuracy", "accuracy in %", 0.01, 1, 100)

    def item(self, settings: Mapping[str, Any]) -> str:
        """Copying and recall are one item."""
        return "memory"

    def problem(self, settings: LabSettings, data: Path | None) -> tuple[Problem, DataFile]:
        """Generated for the run's seed; `data` is not used."""
        sample = sequences(PAUSES[settings.dataset], self.batch, seed=0)
        return _Copying(self, settings), generated(f"pause {PAUSES[settings.dataset]}", sample)

    def protocol(self) -> dict[str, Any]:
        """Everything fixed but the budget."""
        return {
            "model": "one-hot, layer, linear; cross entropy at every step",
            "batch": self.batch,
            "epoch_steps": self.epoch_steps,
            "validation": f"error over the ten copied steps, {self.validation_rows} sequences",
            "test": f"{self.test_rows} sequences",
        }


TASK: Final = Copying()
