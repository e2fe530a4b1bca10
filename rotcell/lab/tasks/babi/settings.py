"""What decides the outcome of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from rotcell.lab.errors import SettingsError
from rotcell.lab.tasks.babi.cells import CELLS, GATES
from rotcell.lab.tasks.babi.data.catalog import known_task

#: What the paper's models most likely had: it is silent, and Keras' example has this.
PAPER_BATCH: Final = 32
#: What the settings do not choose, for the record of a run.
FIXED_PROTOCOL: Final = {
    "model": "question RNN, its last output beside every story word, story RNN, dense",
    "initialisation": "Keras 2: glorot-uniform kernel and orthogonal recurrent kernel, each as a "
    "whole with the angles' rows in it; forget bias 1; one bias",
    "optimiser": "Adam, betas 0.9 and 0.999, epsilon 1e-8",
    "validation": "the last 5 % of the training questions",
    "reported": "test accuracy at the best validation among the tested epochs, earliest on a tie",
}


@dataclass(frozen=True)
class RunSettings:
    """A run; the defaults are the paper's as far as known (docs/results/babi-protocol.md).

    Equal settings and data give equal bits.
    """

    task: int
    cell: str
    state_size: int = 50
    seed: int = 0
    epochs: int = 40
    lr: float = 1e-3
    batch: int = PAPER_BATCH
    embedding: int = 50
    dropout: float = 0.3
    packed: bool = False
    amp: bool = False
    gates: str = "hard_sigmoid"
    angle: str = "sigmoid"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value).__name__ not in (field.type, "int" if field.type == "float" else ""):
                raise SettingsError(f"{field.name} is {value!r}: it must be {field.type}")
        try:
            known_task(self.task)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        if self.cell not in CELLS:
            raise SettingsError(f"there is no cell {self.cell!r}: choose from {', '.join(CELLS)}")
        for name, value in (("gates", self.gates), ("angle", self.angle)):
            if value not in GATES:
                raise SettingsError(f"{name} is {value!r}: choose from {', '.join(GATES)}")
        cell = CELLS[self.cell]
        if self.gates not in cell.gates:
            raise SettingsError(
                f"gates is {self.gates}: {cell.title} has {' or '.join(cell.gates)} gates only"
            )
        if self.angle != "sigmoid" and cell.plain is None:
            raise SettingsError(f"angle is {self.angle}: {cell.title} has no angles")
        for name in ("state_size", "epochs", "batch", "embedding"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.seed < 0:
            raise SettingsError(f"seed is {self.seed}: it must not be negative")
        if not 0 < self.lr < float("inf"):
            raise SettingsError(f"lr is {self.lr}: it must be positive")
        if not 0 <= self.dropout < 1:
            raise SettingsError(f"dropout is {self.dropout}: it must be at least 0 and below 1")

    @property
    def name(self) -> str:
        """A name for files; runs that may lie in one folder differ in nothing else."""
        further = "-sigmoid" * (self.gates == "sigmoid") + "-hardangle" * (self.angle != "sigmoid")
        further += "-packed" * self.packed
        further += f"-batch{self.batch}" * (self.batch != PAPER_BATCH)
        return f"task{self.task}-{self.cell}-size{self.state_size}-seed{self.seed}{further}"

    @property
    def test_epochs(self) -> tuple[int, ...]:
        """The epochs after which the test set is looked at: 1, 11, 21, ... and the last."""
        return tuple(sorted({*range(1, self.epochs + 1, 10), self.epochs}))

    def plain(self) -> dict[str, Any]:
        """As a dictionary of numbers and strings."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RunSettings:
        """The inverse of `plain`; SettingsError says what is wrong."""
        try:
            return cls(**plain)
        except TypeError as error:
            raise SettingsError(f"not the settings of a run: {error}") from None

    @property
    def order(self) -> tuple[Any, ...]:
        """The sort key of runs: all tasks with one seed, then with the next."""
        return (self.seed, self.task, self.state_size, self.cell, self.name)

    def difference(self, other: RunSettings) -> str:
        """What differs, in words; empty when nothing does."""
        mine, yours = self.plain(), other.plain()
        return ", ".join(f"{k} {mine[k]} and not {yours[k]}" for k in mine if mine[k] != yours[k])
