"""Replays things that lie beside each other: tasks 4, 17 and 19."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rotcell.lab.tasks.babi.data.check.replay import (
    ContradictionError,
    Replay,
    Solution,
    UndeterminedError,
    UnknownFormError,
    proven_by,
    read,
)

_STEPS = {
    "north": (0, 1),
    "south": (0, -1),
    "east": (1, 0),
    "west": (-1, 0),
    "above": (0, 1),
    "below": (0, -1),
    "to the left of": (-1, 0),
    "to the right of": (1, 0),
}
_COMPASS = "(north|south|east|west)"
_RELATION = "(above|below|to the left of|to the right of)"
_SHAPE = r"((?:\w+ )?(?:rectangle|sphere|square|triangle))"
_LETTER = {(0, 1): "n", (0, -1): "s", (1, 0): "e", (-1, 0): "w"}

Offset = tuple[int, int]


@dataclass(frozen=True)
class _Link:
    """From one thing a step leads to another; `fact` says so."""

    to: str
    step: Offset
    fact: int


class LayoutReplay(Replay):
    """A map of unit steps between neighbors."""

    def __init__(self) -> None:
        self._links: dict[str, list[_Link]] = {}

    def tell(self, fact: int, text: str) -> None:
        match = read(rf"The (\w+) is {_COMPASS} of the (\w+)\.", text) or read(
            rf"The {_SHAPE} is {_RELATION} the {_SHAPE}\.", text
        )
        if match is None:
            raise UnknownFormError(text)
        subject, reference = match[1], match[3]
        across, up = _STEPS[match[2]]
        if subject == reference:
            raise ContradictionError(f"the {subject} cannot lie beside itself")
        known = self._way(reference, subject)
        if known is not None and self._offset(known) != (across, up):
            raise ContradictionError(f"the {subject} lies elsewhere, as seen from the {reference}")
        self._links.setdefault(reference, []).append(_Link(subject, (across, up), fact))
        self._links.setdefault(subject, []).append(_Link(reference, (-across, -up), fact))

    def solve(self, text: str) -> Solution:
        if match := read(rf"What is {_COMPASS} of the (\w+)\?", text):
            return self._neighbor(match[2], _STEPS[match[1]])
        if match := read(rf"What is the (\w+) {_COMPASS} of\?", text):
            across, up = _STEPS[match[2]]
            return self._neighbor(match[1], (-across, -up))
        if match := read(r"How do you go from the (\w+) to the (\w+)\?", text):
            way = self._needed_way(match[1], match[2])
            answer = ",".join(_LETTER[link.step] for link in way)
            return Solution(answer, (frozenset(link.fact for link in way),), self._overlap())
        if match := read(rf"Is the {_SHAPE} {_RELATION} the {_SHAPE}\?", text):
            way = self._needed_way(match[3], match[1])
            offset, step = self._offset(way), _STEPS[match[2]]
            further = offset[0] * step[0] + offset[1] * step[1] > 0
            return proven_by("yes" if further else "no", (link.fact for link in way))
        raise UnknownFormError(text)

    def _neighbor(self, thing: str, step: Offset) -> Solution:
        found = [link for link in self._links.get(thing, []) if link.step == step]
        if len({link.to for link in found}) != 1:
            raise UndeterminedError(f"{len(found)} things could be meant")
        return Solution(found[0].to, tuple(frozenset([link.fact]) for link in found))

    def _way(self, start: str, goal: str) -> list[_Link] | None:
        """The shortest way of stated steps."""
        waiting: deque[tuple[str, list[_Link]]] = deque([(start, [])])
        seen = {start}
        while waiting:
            here, way = waiting.popleft()
            if here == goal:
                return way
            for link in self._links.get(here, []):
                if link.to not in seen:
                    seen.add(link.to)
                    waiting.append((link.to, [*way, link]))
        return None

    def _needed_way(self, start: str, goal: str) -> list[_Link]:
        way = self._way(start, goal)
        if not way:
            raise UndeterminedError(f"nothing connects the {start} and the {goal}")
        return way

    @staticmethod
    def _offset(way: list[_Link]) -> Offset:
        return sum(link.step[0] for link in way), sum(link.step[1] for link in way)

    def _overlap(self) -> str:
        """A remark when two rooms would lie on the same spot."""
        spot: dict[Offset, str] = {}
        start = next(iter(self._links))
        for room in self._links:
            way = self._way(start, room)
            if way is None:
                continue
            other = spot.setdefault(self._offset(way), room)
            if other != room:
                return f"the {other} and the {room} would lie on the same spot"
        return ""
