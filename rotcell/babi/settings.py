"""What decides the outcome of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from rotcell.babi.catalog import known_task

CELLS: Final = ("lstm", "rotlstm", "gru", "rotgru")


class SettingsError(ValueError):
    """Settings that make no sense, or that are not those of a file."""


@dataclass(frozen=True)
class RunSettings:
    """A run; the defaults are the paper's. Equal settings and data give equal bits."""

    task: int
    cell: str
    state_size: int = 50
    seed: int = 0
    epochs: int = 40
    lr: float = 1e-3
    batch: int = 32
    embedding: int = 50
    dropout: float = 0.3
    packed: bool = False
    amp: bool = False

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
        """A name for files; runs of one sweep differ in nothing else."""
        packed = "-packed" if self.packed else ""
        return f"task{self.task}-{self.cell}-size{self.state_size}-seed{self.seed}{packed}"

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

    def difference(self, other: RunSettings) -> str:
        """What differs, in words; empty when nothing does."""
        mine, yours = self.plain(), other.plain()
        return ", ".join(f"{k} {mine[k]} and not {yours[k]}" for k in mine if mine[k] != yours[k])
