"""State tracking: the running product of random elements of a group, predicted at every step.

Trained on short sequences, tested on longer ones. Everything is generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from rotcell.lab.cells import CELLS
from rotcell.lab.judged import Headline, Measure, Picture
from rotcell.lab.task import DataFile, LabTask
from rotcell.lab.training.loop import Budget, Problem
from rotcell.lab.training.settings import LabSettings, seed_of
from rotcell.lab.training.tagging import Examples, Tagger, Tagging, generated

DATASETS: Final = ("parity", "mod5", "mod7", "s3", "a5", "s5")
#: The groups of additions, by name; the others are of permutations.
CYCLIC: Final = {"parity": 2, "mod5": 5, "mod7": 7}
SOLVED: Final = 0.999  # accuracy over all steps at `solve_length`


@lru_cache
def multiplication(dataset: str) -> Tensor:
    """[n, n]: the product of the elements i and j, both numbered from 0, the identity."""
    if dataset in CYCLIC:
        order = CYCLIC[dataset]
        numbers = torch.arange(order)
        return (numbers[:, None] + numbers) % order
    degree = int(dataset[1])
    elements = [each for each in permutations(range(degree)) if dataset[0] == "s" or _is_even(each)]
    number = {each: index for index, each in enumerate(elements)}
    return torch.tensor([[number[tuple(a[i] for i in b)] for b in elements] for a in elements])


def _is_even(permutation: tuple[int, ...]) -> bool:
    pairs = ((i, j) for j in range(len(permutation)) for i in range(j))
    return sum(permutation[i] > permutation[j] for i, j in pairs) % 2 == 0


def sequences(dataset: str, length: int, number: int, seed: int) -> Examples:
    """Random elements and their running products."""
    table = multiplication(dataset)
    generator = torch.Generator().manual_seed(seed)
    elements = torch.randint(len(table), (length, number), generator=generator)
    products = elements.clone()
    for step in range(1, length):
        products[step] = table[products[step - 1], elements[step]]
    return Examples(elements, products)


class _Tracking(Tagging):
    def __init__(self, task: Groups, settings: LabSettings) -> None:
        self._task, self._dataset = task, settings.dataset
        order = len(multiplication(settings.dataset))
        super().__init__(
            settings,
            task.budget,
            (order, order),
            lambda number, seed: sequences(settings.dataset, task.train_length, number, seed),
            task.batch,
            task.epoch_steps,
            self._fixed("validation", task.solve_length, task.validation_rows),
        )

    def _fixed(self, part: str, length: int, rows: int) -> Examples:
        """Sequences that are the same for every run."""
        return sequences(self._dataset, length, rows, seed_of(part, length))

    def test(self) -> dict[str, float]:
        found = {}
        for length in self._task.test_lengths:
            right = self.right(self._fixed("test", length, self._task.test_rows))
            found[f"accuracy_{length}"] = float(right.mean())
            found[f"last_{length}"] = float(right[-1].mean())
        found["solved"] = float(found[f"accuracy_{self._task.solve_length}"] >= SOLVED)
        return found


BUDGET: Final = Budget(100, "linear", target=0.001, target_epochs=5, cooldown=15, clip=1.0)


@dataclass(frozen=True)
class Groups(LabTask):
    """The task; tests make smaller ones."""

    name: str = "groups"
    about: str = "state tracking: the running product of elements of a group"
    datasets: tuple[str, ...] = DATASETS
    batch: int = 64
    epoch_steps: int = 100
    train_length: int = 32
    solve_length: int = 128
    test_lengths: tuple[int, ...] = (32, 128, 512)
    validation_rows: int = 128
    test_rows: int = 512
    budget: Budget = BUDGET
    expected_epochs: int = 60

    measure = Measure(
        "solved", "seeds that solve the task, and median training steps to it", 0, 1, counted=True
    )
    shown = ("solved", "accuracy_128", "accuracy_512")
    headline = Headline(("mod5", "mod7", "s3"), (4, 8), least_gain=0.2)
    picture = Picture(
        "solved",
        "state-tracking",
        "State tracking: share of {seeds} seeds with an accuracy of at least 0.999 on sequences "
        "four times as long as in training, and the median number of steps to a validation error "
        "of 0.001, where more than half of the seeds reach it. Plain layers have at least as many "
        "weights as the rotating ones.",
    )

    def item(self, settings: Mapping[str, Any]) -> str:
        """Groups whose elements do not commute are judged apart."""
        return "cyclic" if settings["dataset"] in CYCLIC else "not commutative"

    def problem(self, settings: LabSettings, data: Path | None) -> tuple[Problem, DataFile]:
        """Generated for the run's seed; `data` is not used."""
        order = len(multiplication(settings.dataset))
        shown = sequences(settings.dataset, self.train_length, self.batch, seed=0)
        return _Tracking(self, settings), generated(f"{order} elements", shown)

    def has_look(self, settings: LabSettings) -> bool:
        """For layers that rotate pairs, on groups of additions."""
        return settings.cell in ("rotlstm", "rotgru") and settings.dataset in CYCLIC

    def look(self, settings: LabSettings, problem: Problem) -> tuple[str, bytes]:
        """How far each pair of units turns for each element."""
        from rotcell.lab.turns import draw_turns, turns_by_element  # which imports this file

        assert isinstance(problem.model, Tagger)
        turns = turns_by_element(problem.model, settings.dataset)
        rules = (f"pair {pair}: {turns.rule(pair)}" for pair in range(turns.mean.shape[1]))
        title = f"{CELLS[settings.cell].title}, {settings.dataset}, seed {settings.seed}"
        return "; ".join(rules), draw_turns(turns, title)

    def protocol(self) -> dict[str, Any]:
        """Everything fixed but the budget."""
        return {
            "model": "one-hot, layer, linear; cross entropy at every step",
            "batch": self.batch,
            "epoch_steps": self.epoch_steps,
            "train_length": self.train_length,
            "validation": f"error at T {self.solve_length}, {self.validation_rows} sequences",
            "test": f"T {self.test_lengths}, {self.test_rows} sequences",
        }


TASK: Final = Groups()
