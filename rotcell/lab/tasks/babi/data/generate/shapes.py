"""Colored shapes above, below and beside each other: task 17."""

from __future__ import annotations

from random import Random
from typing import Final

from rotcell.lab.tasks.babi.data.generate.narration import Notebook
from rotcell.lab.tasks.babi.data.stories import Story

SHAPES: Final = (
    "blue square",
    "pink rectangle",
    "red sphere",
    "red square",
    "triangle",
    "yellow square",
)
OFFSET: Final = {
    "above": (0, 1),
    "below": (0, -1),
    "to the left of": (-1, 0),
    "to the right of": (1, 0),
}
OPPOSITE: Final = {
    "above": "below",
    "below": "above",
    "to the left of": "to the right of",
    "to the right of": "to the left of",
}
QUESTIONS: Final = 8
MIDDLE_FIRST: Final = 2 / 3


def position_story(rng: Random) -> Story:
    """Two shapes are placed beside a third; the questions compare the two."""
    notes = Notebook()
    middle, *outer = rng.sample(SHAPES, 3)
    position: dict[str, tuple[int, int]] = {}
    fact: dict[str, int] = {}
    for shape, relation in zip(outer, rng.sample(list(OFFSET), 2), strict=True):
        position[shape] = OFFSET[relation]
        if rng.random() < MIDDLE_FIRST:
            text = f"The {middle} is {OPPOSITE[relation]} the {shape}."
        else:
            text = f"The {shape} is {relation} the {middle}."
        fact[shape] = notes.tell(text)
    for _ in range(QUESTIONS):
        subject, reference = rng.sample(outer, 2)
        wanted = rng.random() < 0.5
        relation = rng.choice(
            [
                relation
                for relation in OFFSET
                if _holds(position[subject], relation, position[reference]) == wanted
            ]
        )
        text = f"Is the {subject} {relation} the {reference}?"
        notes.ask(text, "yes" if wanted else "no", (fact[subject], fact[reference]))
    return notes.story()


def _holds(subject: tuple[int, int], relation: str, reference: tuple[int, int]) -> bool:
    """Whether the subject lies further in the relation's direction than the reference."""
    across, up = OFFSET[relation]
    return (subject[0] - reference[0]) * across + (subject[1] - reference[1]) * up > 0
