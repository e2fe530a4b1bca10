"""People who walk in company or are called he, she and they: tasks 11, 12 and 13."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from rotcell.lab.tasks.babi.data.generate.narration import (
    AFTERWARDS,
    HOUSEHOLD,
    MEMORY,
    PRONOUN,
    QUESTIONS_PER_STORY,
    ROOMS,
    Notebook,
    other_than,
    went_to,
)
from rotcell.lab.tasks.babi.data.stories import Story


@dataclass(frozen=True)
class Seen:
    """Where a person was last said to be."""

    place: str
    support: tuple[int, ...]


class _Walks:
    """A story in which one or two people walk, once or twice, before each question."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._notes = Notebook()
        self._seen: dict[str, Seen] = {}
        self._mentioned: list[str] = []  # one entry per clause: `Mary and John went` is two

    def walk(self, people: list[str], *, then: str | None = None) -> None:
        """The people go somewhere together; `then` is what they are called on a second walk."""
        previous = {self._seen[person].place for person in people if person in self._seen}
        place = other_than(self._rng, ROOMS, *previous)
        support = [self._notes.tell(f"{went_to(self._rng, ' and '.join(people), place)}.")]
        self._mentioned += people
        if then is not None:
            place = other_than(self._rng, ROOMS, place)
            walk = went_to(self._rng, then, place)
            support.append(self._notes.tell(f"{self._rng.choice(AFTERWARDS)} {walk}."))
            self._mentioned += people
        for person in people:
            self._seen[person] = Seen(place, tuple(support))

    def ask(self) -> None:
        """Ask where somebody is whom one of the last few clauses is about."""
        person = self._rng.choice(self._mentioned[-MEMORY:])
        seen = self._seen[person]
        self._notes.ask(f"Where is {person}?", seen.place, seen.support)

    def story(self) -> Story:
        return self._notes.story()


def coreference_story(rng: Random) -> Story:
    """Task 11: `Mary went to the office. Then she moved to the garden.`"""
    walks = _Walks(rng)
    for _ in range(QUESTIONS_PER_STORY):
        person = rng.choice(HOUSEHOLD)
        walks.walk([person], then=PRONOUN[person])
        walks.ask()
    return walks.story()


def conjunction_story(rng: Random) -> Story:
    """Task 12: `Mary and Daniel went to the office.`"""
    walks = _Walks(rng)
    for _ in range(QUESTIONS_PER_STORY):
        walks.walk(rng.sample(HOUSEHOLD, 2))
        walks.walk(rng.sample(HOUSEHOLD, 2))
        walks.ask()
    return walks.story()


def compound_coreference_story(rng: Random) -> Story:
    """Task 13: `Mary and Daniel went to the office. Then they moved to the garden.`"""
    walks = _Walks(rng)
    for _ in range(QUESTIONS_PER_STORY):
        walks.walk(rng.sample(HOUSEHOLD, 2), then="they")
        walks.ask()
    return walks.story()
