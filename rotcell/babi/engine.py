"""What a sweep and that which computes its runs say to each other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from rotcell.babi.results import Result
from rotcell.babi.settings import RunSettings
from rotcell.babi.source import Source


@dataclass(frozen=True)
class Advanced:
    """A run has come so many epochs far."""

    run: RunSettings
    epoch: int


@dataclass(frozen=True)
class Ended:
    """A run is over, well or not."""

    result: Result


Event = Advanced | Ended

#: Computes runs on the data of a source and tells how they get on, in whatever order.
#: Closing the generator stops whatever is under way.
Engine = Callable[[Sequence[RunSettings], Source], Generator[Event, None, None]]

#: How often a run is started that takes its worker down with it.
ATTEMPTS = 3
