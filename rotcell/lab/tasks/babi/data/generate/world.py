"""A small world: people who walk between rooms and take, drop and hand over things.

People and things have places from the start, but a reader learns them only from what happens.
What happens next is drawn as in the real stories: a person and a kind of act at random, drawn
again as long as that person cannot do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from rotcell.lab.tasks.babi.data.generate.narration import (
    DROP_VERBS,
    GET_VERBS,
    GIVE_VERBS,
    ROOMS,
    THINGS,
    went_to,
)

Act = Literal["go", "get", "drop", "give"]
# Measured on the real stories: someone who could do any of them hands a thing over about four times
# as often as they walk, take or drop one.
ACT_WEIGHTS: Final[dict[Act, float]] = {"go": 1.0, "get": 1.0, "drop": 1.0, "give": 4.0}
CHANCE_OF_THERE: Final = 0.2


@dataclass(frozen=True)
class Event:
    """Something a person did; the fields an act does not need are empty."""

    act: Act
    person: str
    place: str = ""
    thing: str = ""
    receiver: str = ""


class World:
    """Who is where and who holds what."""

    def __init__(self, rng: Random, people: Sequence[str], acts: Sequence[Act]) -> None:
        self._rng = rng
        self._people = people
        self._acts = acts
        self._weights = [ACT_WEIGHTS[act] for act in acts]
        self._place = {person: rng.choice(ROOMS) for person in people}
        self._lies = {thing: rng.choice(ROOMS) for thing in THINGS}
        self._holder: dict[str, str] = {}
        self._met: set[str] = set()  # people who have taken part in something

    def step(self) -> Event:
        """Let something happen."""
        while True:
            person = self._rng.choice(self._people)
            (act,) = self._rng.choices(self._acts, self._weights)
            event = self._attempt(act, person)
            if event is not None:
                self._met.update({person, event.receiver})
                return event

    def _attempt(self, act: Act, person: str) -> Event | None:
        if act == "go":
            return self._go(person)
        if act == "get":
            return self._get(person)
        held = [thing for thing in THINGS if self._holder.get(thing) == person]
        if not held:
            return None
        thing = self._rng.choice(held)
        if act == "drop":
            del self._holder[thing]
            self._lies[thing] = self._place[person]
            return Event("drop", person, thing=thing)
        return self._give(person, thing)

    def _go(self, person: str) -> Event | None:
        place = self._rng.choice(ROOMS)
        # Nobody knows yet where a person is who was not met, so any room makes sense for them.
        if person in self._met and place == self._place[person]:
            return None
        self._place[person] = place
        return Event("go", person, place=place)

    def _get(self, person: str) -> Event | None:
        here = [thing for thing in THINGS if self._lies.get(thing) == self._place[person]]
        if not here:
            return None
        thing = self._rng.choice(here)
        del self._lies[thing]
        self._holder[thing] = person
        return Event("get", person, thing=thing)

    def _give(self, person: str, thing: str) -> Event | None:
        here = self._place[person]
        near = [other for other in self._people if other != person and self._place[other] == here]
        if not near:
            return None
        receiver = self._rng.choice(near)
        self._holder[thing] = receiver
        return Event("give", person, thing=thing, receiver=receiver)


def sentence(rng: Random, event: Event, *, get_there: float = 1.0) -> str:
    """The event in words; `get_there` is how often `there` follows a thing taken."""
    if event.act == "go":
        return f"{went_to(rng, event.person, event.place)}."
    if event.act == "give":
        verb = rng.choice(GIVE_VERBS)
        return f"{event.person} {verb} the {event.thing} to {event.receiver}."
    verbs, chance = (GET_VERBS, get_there) if event.act == "get" else (DROP_VERBS, CHANCE_OF_THERE)
    there = " there" if rng.random() < chance else ""
    return f"{event.person} {rng.choice(verbs)} the {event.thing}{there}."
