"""Stories that go in rounds: two things happen, then a question if one can be asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from rotcell.lab.tasks.babi.data.generate.narration import (
    HOUSEHOLD,
    MEMORY,
    QUESTIONS_PER_STORY,
    STATEMENTS_PER_ROUND,
    Notebook,
)
from rotcell.lab.tasks.babi.data.generate.world import Act, Event, World, sentence
from rotcell.lab.tasks.babi.data.stories import Story


@dataclass(frozen=True)
class Candidate:
    """A question that could be asked now."""

    text: str
    answer: str
    support: tuple[int, ...]


class RoundStory(ABC):
    """A story of the small world; a task says what it remembers and what it can ask."""

    people: ClassVar[Sequence[str]] = HOUSEHOLD
    acts: ClassVar[Sequence[Act]] = ("go", "get", "drop")
    get_there: ClassVar[float] = 1.0

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    @abstractmethod
    def remember(self, event: Event, fact: int) -> Sequence[str]:
        """Take note of an event told as statement number `fact`.

        Returns what can be asked about while the event is recent; a repeated name is more likely.
        """

    @abstractmethod
    def questions(self, topic: str) -> list[Candidate]:
        """What can be asked now about something that was remembered."""

    @classmethod
    def write(cls, rng: Random) -> Story:
        """A new story."""
        story = cls(rng)
        notes = Notebook()
        world = World(rng, cls.people, cls.acts)
        recent: deque[Sequence[str]] = deque(maxlen=MEMORY)
        asked = 0
        while asked < QUESTIONS_PER_STORY:
            for _ in range(STATEMENTS_PER_ROUND):
                event = world.step()
                fact = notes.tell(sentence(rng, event, get_there=cls.get_there))
                recent.append(story.remember(event, fact))
            topics = [topic for topics in recent for topic in topics]
            options = {topic: story.questions(topic) for topic in topics}
            askable = [topic for topic in topics if options[topic]]
            if askable:
                chosen = rng.choice(options[rng.choice(askable)])
                notes.ask(chosen.text, chosen.answer, chosen.support)
                asked += 1
        return notes.story()
