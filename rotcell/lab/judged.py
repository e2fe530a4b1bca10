"""How reports judge a task: its measure, what is averaged, printed results of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Measure:
    """What decides a comparison on a task."""

    name: str  # in a record's test results
    label: str
    margin: float  # a smaller difference is a tie
    is_better: int  # 1 if more is better, -1 if less is
    scale: float = 1.0  # of the numbers shown
    counted: bool = False  # 1 for a seed that solves the task, else 0; then steps count, too


@dataclass(frozen=True)
class Anchor:
    """A printed result that a layer must reach before other results of the task are believed."""

    dataset: str
    cell: str
    printed: str
    low: float
    high: float
    source: str


@dataclass(frozen=True)
class Headline:
    """Blocks that decide together whether rotation helps on a task."""

    datasets: tuple[str, ...]
    sizes: tuple[int, ...]
    least_gain: float  # in the share of seeds that solve the task


@dataclass(frozen=True)
class Picture:
    """The figure of a task."""

    kind: Literal["solved", "sizes", "curves"]
    name: str = ""  # of the file; the row's if empty, for a figure per row
    caption: str = ""  # with {seeds}
    printed: str = ""  # the label of what `Judged.printed` gives
    constant: str = ""  # the label of what `Judged.constant` gives


class Judged:
    """How reports read the records of a task."""

    name: str
    measure: Measure
    #: Settings that only tell apart parts of the task, over which results are averaged.
    pooled: tuple[str, ...] = ()
    #: The test results in the table of all layers; empty for all.
    shown: tuple[str, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    headline: Headline | None = None
    picture: Picture | None = None

    def item(self, settings: Mapping[str, Any]) -> str:
        """The item of the protocol, within which p-values are corrected together."""
        return self.name

    def printed(self, settings: Mapping[str, Any]) -> float | None:
        """The printed result of a layer with these settings, in the numbers shown."""
        return None

    def constant(self, settings: Mapping[str, Any]) -> float | None:
        """The result of the best constant answer, in the numbers shown."""
        return None

    def cell(self, settings: Mapping[str, Any]) -> str:
        """The name of the layer in `rotcell.lab.cells`."""
        return str(settings["cell"])
