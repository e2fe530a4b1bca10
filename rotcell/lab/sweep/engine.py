"""What a sweep and the engine that computes its runs exchange."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Run(Protocol):
    """A run to compute; hashable, and sent to other processes."""

    @property
    def name(self) -> str:
        """A name for files and logs."""


class Work(Protocol):
    """Computes runs; sent to worker processes once, with what they need to find their data."""

    def compute(
        self, run: Any, threads: int, model: Path | None, on_epoch: Callable[[int], None]
    ) -> Any:
        """The result of a run, an error included; keeps the model at `model`, if given."""

    def lost(self, run: Any, error: str) -> Any:
        """The result of a run whose worker process died."""


@dataclass(frozen=True)
class Advanced:
    """A run has finished so many epochs."""

    run: Any
    epoch: int


@dataclass(frozen=True)
class Ended:
    """A run is over, well or not."""

    result: Any


Event = Advanced | Ended

#: Computes runs and reports their progress, in any order. Runs are taken from the iterable one by
#: one, when there is a worker for them: taking one is claiming it. An iterator may have no run now
#: and one later, when another has ended. Closing the generator stops the active runs.
Engine = Callable[[Iterable[Any], Any], Generator[Event, None, None]]

#: Attempts per run if its worker process dies.
ATTEMPTS = 3
