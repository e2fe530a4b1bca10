"""What decides the outcome of a run, beyond what its task fixes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rotcell.lab.cells import check_cell
from rotcell.lab.errors import SettingsError


@dataclass(frozen=True)
class LabSettings:
    """A run of any task but bAbI, which has its own. Equal settings and data give equal bits."""

    task: str
    dataset: str
    cell: str
    size: int
    lr: float
    seed: int
    start: str = ""  # of the angles; empty for layers without
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_cell(self.cell, self.start)
        if self.size < 1:
            raise SettingsError(f"size must be at least 1, got {self.size}")
        if not 0 < self.lr < float("inf"):
            raise SettingsError(f"lr must be positive, got {self.lr}")
        if not 0 <= self.dropout < 1:
            raise SettingsError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if self.seed < 0:
            raise SettingsError(f"seed must not be negative, got {self.seed}")

    @property
    def name(self) -> str:
        """A name for logs and locks."""
        start = f"-{self.start}" if self.start else ""
        dropout = f"-dropout{self.dropout:g}" if self.dropout else ""
        return (
            f"{self.task}-{self.dataset}-{self.cell}{start}-size{self.size}-lr{self.lr:g}"
            f"{dropout}-seed{self.seed}"
        )

    def plain(self) -> dict[str, Any]:
        """As a dictionary of numbers and strings."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> LabSettings:
        """The inverse of `plain`; SettingsError says what is wrong."""
        try:
            return cls(**plain)
        except TypeError as error:
            raise SettingsError(f"not the settings of a run: {error}") from None


def seed_of(*purpose: object) -> int:
    """A seed for one purpose, independent of the seeds for other purposes."""
    digest = hashlib.sha256(repr(purpose).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
