"""Where somebody or something is or was: tasks 1, 2, 3 and 6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import ClassVar

from rotcell.lab.tasks.babi.data.generate.narration import ROOMS, other_than
from rotcell.lab.tasks.babi.data.generate.rounds import Candidate, RoundStory
from rotcell.lab.tasks.babi.data.generate.world import Act, Event


@dataclass(frozen=True)
class Visit:
    """A place somebody or something came to, and the statement that says so."""

    place: str
    fact: int


class WherePerson(RoundStory):
    """Task 1: `Where is Mary?` in a world where people only walk."""

    acts: ClassVar[Sequence[Act]] = ("go",)

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._last: dict[str, Visit] = {}

    def remember(self, event: Event, fact: int) -> Sequence[str]:
        if event.act != "go":
            return ()
        self._last[event.person] = Visit(event.place, fact)
        return (event.person,)

    def questions(self, topic: str) -> list[Candidate]:
        return [self.about(topic, self._last[topic])]

    def about(self, person: str, visit: Visit) -> Candidate:
        """The question about a person who is known to be somewhere."""
        return Candidate(f"Where is {person}?", visit.place, (visit.fact,))


class IsPersonThere(WherePerson):
    """Task 6: `Is Mary in the kitchen?` among people who also carry things."""

    acts: ClassVar[Sequence[Act]] = ("go", "get", "drop")

    def about(self, person: str, visit: Visit) -> Candidate:
        if self.rng.random() < 0.5:
            place, answer = visit.place, "yes"
        else:
            place, answer = other_than(self.rng, ROOMS, visit.place), "no"
        return Candidate(f"Is {person} in the {place}?", answer, (visit.fact,))


@dataclass
class Handling:
    """The last time somebody took or put down a thing, and the walk it went on with them."""

    fact: int
    held: bool
    carried_to: list[Visit] = field(default_factory=list)
    put_down_at: Visit | None = None


class WhereThing(RoundStory):
    """Task 2: `Where is the milk?`"""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._visit: dict[str, Visit] = {}
        self._holder: dict[str, str] = {}
        self.handled: dict[str, Handling] = {}

    def remember(self, event: Event, fact: int) -> Sequence[str]:
        if event.act == "go":
            visit = Visit(event.place, fact)
            self._visit[event.person] = visit
            for thing, holder in self._holder.items():
                if holder == event.person:
                    self.handled[thing].carried_to.append(visit)
        elif event.act == "get":
            self._holder[event.thing] = event.person
            self.handled[event.thing] = Handling(fact, held=True)
        elif event.act == "drop":
            del self._holder[event.thing]
            handling = self.handled[event.thing]
            handling.fact, handling.held = fact, False
            handling.put_down_at = self._visit.get(event.person)
        return (event.thing,) if event.thing else ()

    def questions(self, topic: str) -> list[Candidate]:
        handling = self.handled[topic]
        place = self._known_place(handling)
        if place is None:
            return []
        support = (handling.fact, place.fact)
        return [Candidate(f"Where is the {topic}?", place.place, support)]

    @staticmethod
    def _known_place(handling: Handling) -> Visit | None:
        """Where a thing is; a thing in hand counts only once it has been carried somewhere."""
        if not handling.held:
            return handling.put_down_at
        return handling.carried_to[-1] if handling.carried_to else None


class WhereThingBefore(WhereThing):
    """Task 3: `Where was the milk before the kitchen?`, about the walk it last went on."""

    get_there: ClassVar[float] = 0.2

    def questions(self, topic: str) -> list[Candidate]:
        handling = self.handled[topic]
        # The last arrival at a place is the one meant, so later pairs replace earlier ones.
        arrivals = {there.place: (here, there) for here, there in pairwise(handling.carried_to)}
        return [
            Candidate(
                f"Where was the {topic} before the {place}?",
                here.place,
                (handling.fact, there.fact, here.fact),
            )
            for place, (here, there) in arrivals.items()
        ]
