"""What a replay of a story is: it hears the statements and then answers the questions itself."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

WALKED = r"(?:journeyed|moved|travelled|went back|went) to the"


class ContradictionError(Exception):
    """A statement that cannot be true after what was told before."""


class UndeterminedError(Exception):
    """A question that the statements do not answer."""


class UnknownFormError(Exception):
    """A sentence that does not belong to the task."""


@dataclass(frozen=True)
class Solution:
    """The answer, every set of statements that proves it, and what is odd though not wrong."""

    answer: str
    supports: tuple[frozenset[int], ...]
    remark: str = ""


def proven_by(answer: str, facts: Iterable[int]) -> Solution:
    """An answer with one proof."""
    return Solution(answer, (frozenset(facts),))


class Replay(ABC):
    """Understands the sentences of some tasks; keeps its own state, one object per story."""

    @abstractmethod
    def tell(self, fact: int, text: str) -> None:
        """Hear statement number `fact`."""

    @abstractmethod
    def solve(self, text: str) -> Solution:
        """Answer a question from what was heard."""


def read(pattern: str, text: str) -> re.Match[str] | None:
    """Match a whole sentence."""
    return re.fullmatch(pattern, text)


def learn(known: dict[str, tuple[str, int]], who: str, what: str, fact: int) -> None:
    """Take note of something that holds once and for all."""
    if who in known:
        raise ContradictionError(f"{who} was {known[who][0]} and now is {what}")
    known[who] = what, fact


def recall(known: dict[str, tuple[str, int]], who: str) -> tuple[str, int]:
    """What was learned, and the statement that says it."""
    if who not in known:
        raise UndeterminedError(f"nothing was said about {who}")
    return known[who]
