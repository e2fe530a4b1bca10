"""Replays what is said about where people are: tasks 9 to 14."""

from __future__ import annotations

from dataclasses import dataclass

from rotcell.lab.tasks.babi.data.check.replay import (
    WALKED,
    ContradictionError,
    Replay,
    Solution,
    UndeterminedError,
    UnknownFormError,
    proven_by,
    read,
)

_WALK = rf"(\w+) {WALKED} (\w+)\."
_IS_IN = r"(\w+) is in the (\w+)\."
_IS_NOT_IN = r"(\w+) is (?:not|no longer) in the (\w+)\."
_EITHER = r"(\w+) is either in the (\w+) or the (\w+)\."
_ALONE_OR_TOGETHER = rf"(\w+)(?: and (\w+))? {WALKED} (\w+)\."
_THEN = rf"(?:After that|Afterwards|Following that|Then) (he|she|they) {WALKED} (\w+)\."
_WHO_MAY_BE = {"he": {"Daniel", "John"}, "she": {"Mary", "Sandra"}}
_TIMED = (
    rf"(?P<time>Yesterday|This \w+) (?P<who>\w+) {WALKED} (?P<place>\w+)\.",
    rf"(?P<who>\w+) {WALKED} (?P<place>\w+) (?P<time>yesterday|this \w+)\.",
)
_TIMES = ("yesterday", "this morning", "this afternoon", "this evening")


@dataclass(frozen=True)
class _Report:
    """The last thing said about somebody: possible places, or the one place ruled out."""

    fact: int
    possible: tuple[str, ...] = ()
    excluded: str = ""


class ReportReplay(Replay):
    """Tasks 9 and 10: statements, denials and alternatives."""

    def __init__(self) -> None:
        self._last: dict[str, _Report] = {}

    def tell(self, fact: int, text: str) -> None:
        if match := read(_WALK, text):
            known = self._last.get(match[1])
            if known is not None and known.possible == (match[2],):
                raise ContradictionError(f"{match[1]} is already in the {match[2]}")
            self._last[match[1]] = _Report(fact, (match[2],))
        elif match := read(_IS_IN, text):
            self._last[match[1]] = _Report(fact, (match[2],))
        elif match := read(_IS_NOT_IN, text):
            self._last[match[1]] = _Report(fact, excluded=match[2])
        elif match := read(_EITHER, text):
            self._last[match[1]] = _Report(fact, (match[2], match[3]))
        else:
            raise UnknownFormError(text)

    def solve(self, text: str) -> Solution:
        match = read(r"Is (\w+) in the (\w+)\?", text)
        if match is None:
            raise UnknownFormError(text)
        report = self._last.get(match[1])
        if report is None:
            raise UndeterminedError(f"nobody said where {match[1]} is")
        if report.excluded:
            if report.excluded != match[2]:
                raise UndeterminedError(f"{match[1]} may be in the {match[2]} or not")
            return proven_by("no", [report.fact])
        if match[2] not in report.possible:
            return proven_by("no", [report.fact])
        if len(report.possible) == 1:
            return proven_by("yes", [report.fact])
        twice = len(set(report.possible)) == 1
        remark = "the two places of the alternative are the same" if twice else ""
        return Solution("maybe", (frozenset([report.fact]),), remark)


class CompanyReplay(Replay):
    """Tasks 11, 12 and 13: people alone or in pairs, and pronouns that mean the last ones."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._subjects: tuple[str, ...] = ()

    def tell(self, fact: int, text: str) -> None:
        if match := read(_THEN, text):
            self._check_pronoun(match[1])
            earlier = self._last[self._subjects[0]][1]
            self._arrive(self._subjects, match[2], (*earlier, fact))
            self._subjects = ()
        elif match := read(_ALONE_OR_TOGETHER, text):
            self._subjects = tuple(name for name in (match[1], match[2]) if name)
            if len(set(self._subjects)) != len(self._subjects):
                raise ContradictionError(f"{match[1]} goes together with themselves")
            self._arrive(self._subjects, match[3], (fact,))
        else:
            raise UnknownFormError(text)

    def _check_pronoun(self, pronoun: str) -> None:
        if not self._subjects:
            raise ContradictionError(f"nobody was named whom {pronoun!r} could mean")
        named = " and ".join(self._subjects)
        if pronoun == "they":
            fits = len(self._subjects) == 2
        else:
            fits = len(self._subjects) == 1 and self._subjects[0] in _WHO_MAY_BE[pronoun]
        if not fits:
            raise ContradictionError(f"{pronoun!r} does not fit {named}")

    def _arrive(self, people: tuple[str, ...], place: str, facts: tuple[int, ...]) -> None:
        for person in people:
            if person in self._last and self._last[person][0] == place:
                raise ContradictionError(f"{person} is already in the {place}")
            self._last[person] = place, facts

    def solve(self, text: str) -> Solution:
        match = read(r"Where is (\w+)\?", text)
        if match is None:
            raise UnknownFormError(text)
        if match[1] not in self._last:
            raise UndeterminedError(f"nobody said where {match[1]} is")
        place, facts = self._last[match[1]]
        return proven_by(place, facts)


class DayReplay(Replay):
    """Task 14: who was where at which time of the day, told in any order."""

    def __init__(self) -> None:
        self._day: dict[str, dict[int, tuple[str, int]]] = {}

    def tell(self, fact: int, text: str) -> None:
        match = read(_TIMED[0], text) or read(_TIMED[1], text)
        if match is None or match["time"].lower() not in _TIMES:
            raise UnknownFormError(text)
        who, place, time = match["who"], match["place"], _TIMES.index(match["time"].lower())
        day = self._day.setdefault(who, {})
        if time in day:
            raise ContradictionError(f"{who} went to two places {_TIMES[time]}")
        for near in (time - 1, time + 1):
            if near in day and day[near][0] == place:
                raise ContradictionError(f"{who} went to the {place} twice in a row")
        day[time] = place, fact

    def solve(self, text: str) -> Solution:
        match = read(r"Where was (\w+) before the (\w+)\?", text)
        if match is None:
            raise UnknownFormError(text)
        day = self._day.get(match[1], {})
        times = [time for time, (place, _) in day.items() if place == match[2]]
        if not times:
            raise UndeterminedError(f"{match[1]} was not in the {match[2]}")
        if max(times) - 1 not in day:
            raise UndeterminedError(f"nothing says where {match[1]} was before")
        before, there = day[max(times) - 1], day[max(times)]
        return proven_by(before[0], [before[1], there[1]])
