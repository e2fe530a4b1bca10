"""Replays things that fit inside each other: task 18."""

from __future__ import annotations

from rotcell.lab.tasks.babi.data.check.replay import (
    ContradictionError,
    Replay,
    Solution,
    UndeterminedError,
    UnknownFormError,
    read,
)

_SIZED = "(box of chocolates|box|chest|chocolate|container|suitcase)"


class SizeReplay(Replay):
    """Task 18: smaller things fit inside larger ones, over any number of steps."""

    def __init__(self) -> None:
        self._facts: list[tuple[str, str, int]] = []  # (smaller, larger, statement)

    def tell(self, fact: int, text: str) -> None:
        if match := read(rf"The {_SIZED} fits inside the {_SIZED}\.", text):
            smaller, larger = match[1], match[2]
        elif match := read(rf"The {_SIZED} is bigger than the {_SIZED}\.", text):
            smaller, larger = match[2], match[1]
        else:
            raise UnknownFormError(text)
        if smaller in self._larger_than(larger) | {larger}:
            raise ContradictionError(f"the {smaller} was said not to be smaller than the {larger}")
        self._facts.append((smaller, larger, fact))

    def _larger_than(self, thing: str) -> set[str]:
        found: set[str] = set()
        waiting = [thing]
        while waiting:
            current = waiting.pop()
            for smaller, larger, _ in self._facts:
                if smaller == current and larger not in found:
                    found.add(larger)
                    waiting.append(larger)
        return found

    def solve(self, text: str) -> Solution:
        if match := read(rf"Does the {_SIZED} fit in the {_SIZED}\?", text):
            inner, outer = match[1], match[2]
        elif match := read(rf"Is the {_SIZED} bigger than the {_SIZED}\?", text):
            inner, outer = match[2], match[1]
        else:
            raise UnknownFormError(text)
        if outer in self._larger_than(inner):
            return Solution("yes", self._chains(inner, outer))
        if inner in self._larger_than(outer):
            return Solution("no", self._chains(outer, inner))
        raise UndeterminedError(f"nothing compares the {inner} and the {outer}")

    def _chains(self, small: str, large: str) -> tuple[frozenset[int], ...]:
        return tuple(
            frozenset({first, second})
            for smaller, between, first in self._facts
            for same, larger, second in self._facts
            if smaller == small and between == same and larger == large
        )
