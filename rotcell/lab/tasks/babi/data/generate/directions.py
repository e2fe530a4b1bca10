"""Rooms north, south, east and west of each other: tasks 4 and 19."""

from __future__ import annotations

from random import Random
from typing import Final

from rotcell.lab.tasks.babi.data.generate.narration import OPPOSITE_DIRECTION, ROOMS, Notebook
from rotcell.lab.tasks.babi.data.stories import Story

STEP: Final = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
# How often the outer room of a pair is the subject of the sentence, as in the real files.
OUTER_FIRST_IN_LINE: Final = 0.655
OUTER_FIRST_ON_PATH: Final = 0.565
OUTER_FIRST_BESIDE_PATH: Final = 0.75

Cell = tuple[int, int]


def _relation(
    rng: Random, outer: str, direction: str, inner: str, outer_first: float
) -> tuple[str, str, str]:
    """(subject, direction, object), where `outer` lies in `direction` of `inner`."""
    if rng.random() < outer_first:
        return outer, direction, inner
    return inner, OPPOSITE_DIRECTION[direction], outer


def relation_story(rng: Random) -> Story:
    """Task 4: three rooms in a line; the answer is the subject of the sentence asked about."""
    notes = Notebook()
    middle, *outer = rng.sample(ROOMS, 3)
    direction = rng.choice(tuple(STEP))
    relations = [
        _relation(rng, room, towards, middle, OUTER_FIRST_IN_LINE)
        for room, towards in zip(outer, (direction, OPPOSITE_DIRECTION[direction]), strict=True)
    ]
    for subject, towards, reference in relations:
        notes.tell(f"The {subject} is {towards} of the {reference}.")
    fact = rng.randrange(len(relations))
    subject, towards, reference = relations[fact]
    if rng.random() < 0.5:
        text = f"What is {towards} of the {reference}?"
    else:
        text = f"What is the {reference} {OPPOSITE_DIRECTION[towards]} of?"
    notes.ask(text, subject, (fact,))
    return notes.story()


def path_story(rng: Random) -> Story:
    """Task 19: a path of three rooms, and three more rooms beside it."""
    notes = Notebook()
    start, middle, goal, *beside = rng.sample(ROOMS, len(ROOMS))
    first = rng.choice(tuple(STEP))
    second = rng.choice([way for way in STEP if way != OPPOSITE_DIRECTION[first]])
    to_start = OPPOSITE_DIRECTION[first]
    relations = [
        _relation(rng, start, to_start, middle, OUTER_FIRST_ON_PATH),
        _relation(rng, goal, second, middle, OUTER_FIRST_ON_PATH),
    ]
    cell = {middle: (0, 0), start: STEP[to_start], goal: STEP[second]}
    for room in beside:
        neighbor, direction = rng.choice(_free_sides(cell, (start, middle, goal)))
        cell[room] = _beyond(cell[neighbor], direction)
        relations.append(_relation(rng, room, direction, neighbor, OUTER_FIRST_BESIDE_PATH))
    order = list(range(len(relations)))
    rng.shuffle(order)
    for number in order:
        subject, towards, reference = relations[number]
        notes.tell(f"The {subject} is {towards} of the {reference}.")
    support = (order.index(0), order.index(1))
    question = f"How do you go from the {start} to the {goal}?"
    notes.ask(question, f"{first[0]},{second[0]}", support)
    return notes.story()


def _free_sides(cell: dict[str, Cell], rooms: tuple[str, ...]) -> list[tuple[str, str]]:
    """Sides of the given rooms on which no room lies yet, so that no two share a cell."""
    taken = set(cell.values())
    return [
        (room, direction)
        for room in rooms
        for direction in STEP
        if _beyond(cell[room], direction) not in taken
    ]


def _beyond(cell: Cell, direction: str) -> Cell:
    step = STEP[direction]
    return cell[0] + step[0], cell[1] + step[1]
