"""Replays people who walk, take, drop and hand over things: tasks 1, 2, 3, 5, 6, 7 and 8."""

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
from rotcell.lab.tasks.babi.data.check.spots import Spots

_WALK = rf"(\w+) {WALKED} (\w+)\."
_TAKE = r"(\w+) (?:got|grabbed|picked up|took) the (\w+)(?: there)?\."
_DROP = r"(\w+) (?:discarded|dropped|left|put down) the (\w+)(?: there)?\."
_GIVE = r"(\w+) (?:gave|handed|passed) the (\w+) to (\w+)\."
_GIFT_QUESTIONS = (
    r"What did (?P<giver>\w+) give to (?P<receiver>\w+)\?",
    r"Who did (?P<giver>\w+) give the (?P<thing>\w+) to\?",
    r"Who gave the (?P<thing>\w+) to (?P<receiver>\w+)\?",
    r"(?P<who_gave>Who) gave the (?P<thing>\w+)\?",
    r"Who received the (?P<thing>\w+)\?",
)
_NUMBERS = ("none", "one", "two", "three")


@dataclass(frozen=True)
class _Arrival:
    place: str
    fact: int


@dataclass(frozen=True)
class _Gift:
    giver: str
    thing: str
    receiver: str
    fact: int


class HandlingReplay(Replay):
    """Walks, things in hand, and the ways of both."""

    def __init__(self) -> None:
        self._spots = Spots()
        self._walked: dict[str, _Arrival] = {}
        self._holder: dict[str, str] = {}
        self._handled: dict[str, int] = {}  # thing -> the last statement about a hand on it
        self._way: dict[str, list[_Arrival]] = {}  # thing -> places it came to
        self._changes: dict[str, list[int]] = {}  # person -> statements that changed their things
        self._ever_held: dict[str, list[str]] = {}  # person -> things, in the order first held
        self._gifts: list[_Gift] = []

    def tell(self, fact: int, text: str) -> None:
        if match := read(_WALK, text):
            self._walk(fact, match[1], match[2])
        elif match := read(_TAKE, text):
            self._take(fact, match[1], match[2])
        elif match := read(_DROP, text):
            self._release(fact, match[1], match[2])
            self._spots.put(match[2], match[1])
        elif match := read(_GIVE, text):
            self._give(fact, match[1], match[2], match[3])
        else:
            raise UnknownFormError(text)

    def _walk(self, fact: int, person: str, place: str) -> None:
        if self._spots.name(person) == place:
            raise ContradictionError(f"{person} is already in the {place}")
        self._spots.move(person, place)
        self._walked[person] = arrival = _Arrival(place, fact)
        for thing, holder in self._holder.items():
            if holder == person:
                self._way[thing].append(arrival)

    def _take(self, fact: int, person: str, thing: str) -> None:
        if thing in self._holder:
            raise ContradictionError(f"{self._holder[thing]} already holds the {thing}")
        self._spots.meet(person, thing)
        self._gain(fact, person, thing)
        way = self._way.setdefault(thing, [])
        here = self._walked.get(person)
        if here is None:
            return
        if way and way[-1].place == here.place:
            way.pop()  # it is still there; now the walk of the one who holds it proves that
        way.append(here)

    def _give(self, fact: int, giver: str, thing: str, receiver: str) -> None:
        if giver == receiver:
            raise ContradictionError(f"{giver} gives something to themselves")
        self._release(fact, giver, thing)
        self._spots.meet(giver, receiver)
        self._gain(fact, receiver, thing)
        self._gifts.append(_Gift(giver, thing, receiver, fact))

    def _release(self, fact: int, person: str, thing: str) -> None:
        if self._holder.get(thing) != person:
            raise ContradictionError(f"{person} does not hold the {thing}")
        del self._holder[thing]
        self._handled[thing] = fact
        self._changes[person].append(fact)

    def _gain(self, fact: int, person: str, thing: str) -> None:
        self._holder[thing] = person
        self._handled[thing] = fact
        self._changes.setdefault(person, []).append(fact)
        ever = self._ever_held.setdefault(person, [])
        if thing not in ever:
            ever.append(thing)

    def solve(self, text: str) -> Solution:
        if match := read(r"Where is the (\w+)\?", text):
            return self._thing_place(match[1])
        if match := read(r"Where was the (\w+) before the (\w+)\?", text):
            return self._thing_before(match[1], match[2])
        if match := read(r"Where is (\w+)\?", text):
            arrival = self._last_walk(match[1])
            return proven_by(arrival.place, [arrival.fact])
        if match := read(r"Is (\w+) in the (\w+)\?", text):
            arrival = self._last_walk(match[1])
            return proven_by("yes" if arrival.place == match[2] else "no", [arrival.fact])
        if match := read(r"How many objects is (\w+) carrying\?", text):
            return proven_by(_NUMBERS[len(self._things(match[1]))], self._changed(match[1]))
        if match := read(r"What is (\w+) carrying\?", text):
            answer = ",".join(self._things(match[1])) or "nothing"
            return proven_by(answer, self._changed(match[1]))
        return self._gift(text)

    def _last_walk(self, person: str) -> _Arrival:
        if person not in self._walked:
            raise UndeterminedError(f"nobody said where {person} is")
        return self._walked[person]

    def _thing_place(self, thing: str) -> Solution:
        way = self._way.get(thing)
        if not way:
            raise UndeterminedError(f"nobody said where the {thing} is")
        return proven_by(way[-1].place, [self._handled[thing], way[-1].fact])

    def _thing_before(self, thing: str, place: str) -> Solution:
        way = self._way.get(thing, [])
        visits = [number for number, arrival in enumerate(way) if arrival.place == place]
        if not visits or visits[-1] == 0:
            raise UndeterminedError(f"nothing says where the {thing} was before the {place}")
        before, there = way[visits[-1] - 1], way[visits[-1]]
        return proven_by(before.place, [self._handled[thing], there.fact, before.fact])

    def _things(self, person: str) -> list[str]:
        return [
            thing for thing in self._ever_held.get(person, []) if self._holder.get(thing) == person
        ]

    def _changed(self, person: str) -> list[int]:
        if person not in self._changes:
            raise UndeterminedError(f"nothing says what {person} carries")
        return self._changes[person]

    def _gift(self, text: str) -> Solution:
        for pattern in _GIFT_QUESTIONS:
            if match := read(pattern, text):
                given = match.groupdict()
                break
        else:
            raise UnknownFormError(text)
        wanted = {key: value for key, value in given.items() if key != "who_gave"}
        asked = "giver" if "who_gave" in given or "receiver" in given else "receiver"
        if "thing" not in given:
            asked = "thing"
        fitting = [
            gift
            for gift in self._gifts
            if all(getattr(gift, key) == value for key, value in wanted.items())
        ]
        if not fitting:
            raise UndeterminedError("nobody gave such a thing")
        return proven_by(getattr(fitting[-1], asked), [fitting[-1].fact])
