"""Who gave what to whom and who carries what: tasks 5, 7 and 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final

from rotcell.lab.tasks.babi.data.generate.narration import FRIENDS
from rotcell.lab.tasks.babi.data.generate.rounds import Candidate, RoundStory
from rotcell.lab.tasks.babi.data.generate.world import Act, Event

COUNTS: Final = ("none", "one", "two", "three")
# The real files ask about somebody who was handed a thing a third as often as about who did it.
ACTING_WEIGHT: Final = 3
RECEIVING_WEIGHT: Final = 1


@dataclass(frozen=True)
class Gift:
    """One thing that went from one hand to another."""

    giver: str
    thing: str
    receiver: str
    fact: int

    def questions(self) -> list[Candidate]:
        """Every way to ask about it; `What` stands twice because it is asked twice as often."""
        what = (f"What did {self.giver} give to {self.receiver}?", self.thing)
        forms = (
            what,
            what,
            (f"Who gave the {self.thing}?", self.giver),
            (f"Who gave the {self.thing} to {self.receiver}?", self.giver),
            (f"Who did {self.giver} give the {self.thing} to?", self.receiver),
            (f"Who received the {self.thing}?", self.receiver),
        )
        return [Candidate(text, answer, (self.fact,)) for text, answer in forms]


class WhoGave(RoundStory):
    """Task 5: `Who gave the milk to Fred?`"""

    people: ClassVar[Sequence[str]] = FRIENDS
    acts: ClassVar[Sequence[Act]] = ("go", "get", "drop", "give")

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._gifts: list[Gift] = []

    def remember(self, event: Event, fact: int) -> Sequence[str]:
        if event.act != "give":
            return ()
        self._gifts.append(Gift(event.person, event.thing, event.receiver, fact))
        return (event.thing,)

    def questions(self, topic: str) -> list[Candidate]:
        *_, last = (gift for gift in self._gifts if gift.thing == topic)
        # A question means the last gift it fits: two things may have gone the same way.
        meant = {question.text: question for gift in self._gifts for question in gift.questions()}
        return [question for question in last.questions() if meant[question.text] == question]


class HowMany(RoundStory):
    """Task 7: `How many objects is Mary carrying?`"""

    acts: ClassVar[Sequence[Act]] = ("go", "get", "drop", "give")

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        # For every person, the statements in which a thing came to them or left them.
        self.changes: dict[str, dict[str, list[int]]] = {}
        self.held: dict[str, set[str]] = {}

    def remember(self, event: Event, fact: int) -> Sequence[str]:
        if event.act == "go":
            return ()
        if event.act == "get":
            self._gain(event.person, event.thing, fact)
        else:
            self.changes[event.person][event.thing].append(fact)
            self.held[event.person].discard(event.thing)
        if event.act != "give":
            return (event.person,) * ACTING_WEIGHT
        self._gain(event.receiver, event.thing, fact)
        return (event.person,) * ACTING_WEIGHT + (event.receiver,) * RECEIVING_WEIGHT

    def _gain(self, person: str, thing: str, fact: int) -> None:
        self.changes.setdefault(person, {}).setdefault(thing, []).append(fact)
        self.held.setdefault(person, set()).add(thing)

    def questions(self, topic: str) -> list[Candidate]:
        return [self.about(topic)]

    def about(self, person: str) -> Candidate:
        """The question about what a person has; every change in it supports the answer."""
        facts = sorted(fact for facts in self.changes[person].values() for fact in facts)
        answer = COUNTS[len(self.held[person])]
        return Candidate(f"How many objects is {person} carrying?", answer, tuple(facts))


class WhatCarried(HowMany):
    """Task 8: `What is Mary carrying?`, things listed in the order they first came to hand."""

    acts: ClassVar[Sequence[Act]] = ("go", "get", "drop")

    def about(self, person: str) -> Candidate:
        changes = self.changes[person]
        facts = tuple(fact for facts in changes.values() for fact in facts)
        things = [thing for thing in changes if thing in self.held[person]]
        answer = ",".join(things) or "nothing"
        return Candidate(f"What is {person} carrying?", answer, facts)
