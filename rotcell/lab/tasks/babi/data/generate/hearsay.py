"""What is said about where somebody is, denials and doubts included: tasks 9 and 10."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from rotcell.lab.tasks.babi.data.generate.narration import (
    HOUSEHOLD,
    MEMORY,
    NEIGHBOURS,
    QUESTIONS_PER_STORY,
    ROOMS,
    STATEMENTS_PER_ROUND,
    TOWN,
    Notebook,
    other_than,
    went_to,
)
from rotcell.lab.tasks.babi.data.stories import Story


@dataclass(frozen=True)
class Belief:
    """What was last said about somebody."""

    fact: int
    kind: str  # "in", "not in" or "either"
    places: tuple[str, ...]


def negation_story(rng: Random) -> Story:
    """Task 9: half of the statements are walks, the others `is in`, `is not in`, `no longer`."""
    notes = Notebook()
    # Every statement moves somebody; a denial says only which place they left.
    place = {person: rng.choice(ROOMS) for person in HOUSEHOLD}
    beliefs: dict[str, Belief] = {}
    mentioned: list[str] = []
    for _ in range(QUESTIONS_PER_STORY):
        for _ in range(STATEMENTS_PER_ROUND):
            person = rng.choice(HOUSEHOLD)
            mentioned.append(person)
            left = place[person]
            place[person] = now = other_than(rng, ROOMS, left)
            form = rng.choice(("go", "go", "is", "not"))
            if form == "not":
                fact = notes.tell(f"{person} is {rng.choice(('not', 'no longer'))} in the {left}.")
                beliefs[person] = Belief(fact, "not in", (left,))
            else:
                fact = notes.tell(_presence(rng, person, now, walk=form == "go"))
                beliefs[person] = Belief(fact, "in", (now,))
        person = rng.choice(mentioned[-MEMORY:])
        belief = beliefs[person]
        (known,) = belief.places
        if belief.kind == "not in":
            asked, answer = known, "no"
        elif rng.random() < 0.5:
            asked, answer = known, "yes"
        else:
            asked, answer = other_than(rng, ROOMS, known), "no"
        notes.ask(f"Is {person} in the {asked}?", answer, (belief.fact,))
    return notes.story()


def indefinite_story(rng: Random) -> Story:
    """Task 10: half of the statements are walks, the others `is in` and `is either in ... or`."""
    notes = Notebook()
    place: dict[str, str | None] = dict.fromkeys(NEIGHBOURS)
    beliefs: dict[str, Belief] = {}
    mentioned: list[str] = []
    for _ in range(QUESTIONS_PER_STORY):
        for _ in range(STATEMENTS_PER_ROUND):
            person = rng.choice(NEIGHBOURS)
            mentioned.append(person)
            now = other_than(rng, TOWN, place[person])
            place[person] = now
            form = rng.choice(("go", "go", "is", "either"))
            if form == "either":
                pair = [now, other_than(rng, TOWN, now)]
                rng.shuffle(pair)
                text = f"{person} is either in the {pair[0]} or the {pair[1]}."
                beliefs[person] = Belief(notes.tell(text), "either", tuple(pair))
            else:
                fact = notes.tell(_presence(rng, person, now, walk=form == "go"))
                beliefs[person] = Belief(fact, "in", (now,))
        person = rng.choice(mentioned[-MEMORY:])
        belief = beliefs[person]
        # The real files ask a little more often about a place that was named.
        if rng.random() < 0.55:
            asked = rng.choice(belief.places)
            answer = "maybe" if belief.kind == "either" else "yes"
        else:
            asked, answer = other_than(rng, TOWN, *belief.places), "no"
        notes.ask(f"Is {person} in the {asked}?", answer, (belief.fact,))
    return notes.story()


def _presence(rng: Random, person: str, place: str, *, walk: bool) -> str:
    return f"{went_to(rng, person, place)}." if walk else f"{person} is in the {place}."
