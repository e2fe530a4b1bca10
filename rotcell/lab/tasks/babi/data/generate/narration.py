"""Words and sentence parts that several tasks share, and the notebook a story is written in."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from rotcell.lab.tasks.babi.data.stories import Query, Statement, Story

HOUSEHOLD: Final = ("Daniel", "John", "Mary", "Sandra")
FRIENDS: Final = ("Bill", "Fred", "Jeff", "Mary")
NEIGHBOURS: Final = ("Bill", "Fred", "Julie", "Mary")
PRONOUN: Final = {"Daniel": "he", "John": "he", "Mary": "she", "Sandra": "she"}

ROOMS: Final = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
TOWN: Final = ("bedroom", "cinema", "kitchen", "office", "park", "school")
THINGS: Final = ("apple", "football", "milk")

GO_VERBS: Final = ("journeyed", "moved", "travelled", "went", "went back")
GET_VERBS: Final = ("got", "grabbed", "picked up", "took")
DROP_VERBS: Final = ("discarded", "dropped", "left", "put down")
GIVE_VERBS: Final = ("gave", "handed", "passed")
AFTERWARDS: Final = ("After that", "Afterwards", "Following that", "Then")

OPPOSITE_DIRECTION: Final = {"north": "south", "south": "north", "east": "west", "west": "east"}

QUESTIONS_PER_STORY: Final = 5
STATEMENTS_PER_ROUND: Final = 2
# The real stories ask about somebody or something that one of the last five clauses is about (each
# clause with the same chance), and continue without a question where none of them allows one.
MEMORY: Final = 5


class Notebook:
    """Collects the lines of a story."""

    def __init__(self) -> None:
        self._lines: list[Statement | Query] = []
        self._told = 0

    def tell(self, text: str) -> int:
        """Add a statement; its position is what questions name as support."""
        self._lines.append(Statement(text))
        self._told += 1
        return self._told - 1

    def ask(self, text: str, answer: str, support: Sequence[int]) -> None:
        """Add a question."""
        self._lines.append(Query(text, answer, tuple(support)))

    def story(self) -> Story:
        """The finished story."""
        return Story(tuple(self._lines))


def other_than(rng: Random, choices: Sequence[str], *excluded: str | None) -> str:
    """A random choice that is none of the excluded ones."""
    return rng.choice([choice for choice in choices if choice not in excluded])


def went_to(rng: Random, who: str, place: str) -> str:
    """`Mary went back to the kitchen`, without a full stop."""
    return f"{who} {rng.choice(GO_VERBS)} to the {place}"
