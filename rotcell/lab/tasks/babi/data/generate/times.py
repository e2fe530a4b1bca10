"""Walks told out of order, each with its time of day: task 14."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Final

from rotcell.lab.tasks.babi.data.generate.narration import (
    MEMORY,
    NEIGHBOURS,
    QUESTIONS_PER_STORY,
    STATEMENTS_PER_ROUND,
    TOWN,
    Notebook,
    other_than,
    went_to,
)
from rotcell.lab.tasks.babi.data.stories import Story

TIMES: Final = ("yesterday", "this morning", "this afternoon", "this evening")


@dataclass
class Stop:
    """A person at a place at a time of day."""

    person: str
    time: int
    place: str
    happened: int  # how many stops, of anybody, came before
    fact: int = -1  # the statement that tells it, once told


def time_story(rng: Random) -> Story:
    """Everybody goes through the day in order; what happens between two questions is told mixed."""
    notes = Notebook()
    days: dict[str, list[Stop]] = {person: [] for person in NEIGHBOURS}
    happened = asked = 0
    untold: list[Stop] = []
    while asked < QUESTIONS_PER_STORY:
        for _ in range(STATEMENTS_PER_ROUND):
            untold.append(_next_stop(rng, days, happened))
            happened += 1
        fresh = _fresh_stops(days, happened)
        if not fresh:
            continue
        for stop in _derangement(rng, untold):
            stop.fact = notes.tell(_sentence(rng, stop))
        untold = []
        before, stop = rng.choice(fresh)
        text = f"Where was {stop.person} before the {stop.place}?"
        notes.ask(text, before.place, (stop.fact, before.fact))
        asked += 1
    return notes.story()


def _next_stop(rng: Random, days: dict[str, list[Stop]], happened: int) -> Stop:
    person = rng.choice([person for person, day in days.items() if len(day) < len(TIMES)])
    day = days[person]
    place = other_than(rng, TOWN, day[-1].place if day else None)
    stop = Stop(person, len(day), place, happened)
    day.append(stop)
    return stop


def _fresh_stops(days: dict[str, list[Stop]], happened: int) -> list[tuple[Stop, Stop]]:
    """Stops that can be asked about: recent, with a stop before, the last ones at their place."""
    found = []
    for day in days.values():
        last_at = {stop.place: stop for stop in day}
        for before, stop in pairwise(day):
            if happened - stop.happened <= MEMORY and last_at[stop.place] is stop:
                found.append((before, stop))
    return found


def _derangement(rng: Random, stops: list[Stop]) -> list[Stop]:
    """The stops in another order, none in its place: two of a person are never told in order."""
    mixed = stops[:]
    while any(mixed[i] is stops[i] for i in range(len(stops))):
        rng.shuffle(mixed)
    return mixed


def _sentence(rng: Random, stop: Stop) -> str:
    time = TIMES[stop.time]
    walk = went_to(rng, stop.person, stop.place)
    return f"{time.capitalize()} {walk}." if rng.random() < 0.5 else f"{walk} {time}."
