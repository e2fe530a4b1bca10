"""Animals and what holds for their kind: tasks 15 (deduction) and 16 (induction)."""

from __future__ import annotations

from random import Random
from typing import Final

from rotcell.lab.tasks.babi.data.generate.narration import Notebook, other_than
from rotcell.lab.tasks.babi.data.stories import Story

PLURAL: Final = {"cat": "cats", "mouse": "mice", "sheep": "sheep", "wolf": "wolves"}
PETS: Final = ("Emily", "Gertrude", "Jessica", "Winona")
DEDUCTION_QUESTIONS: Final = 4

SPECIES: Final = ("frog", "lion", "rhino", "swan")
COLORS: Final = ("gray", "green", "white", "yellow")
ANIMALS: Final = ("Bernhard", "Brian", "Greg", "Julius", "Lily")
CHANCE_OF_OWN_KINDS_COLOR: Final = 0.73
# The real task never asks about an animal with exactly two others of its kind.
EXAMPLES_ASKED_ABOUT: Final = frozenset({1, 3, 4})


def deduction_story(rng: Random) -> Story:
    """Task 15: what a kind fears and who is of that kind, then four questions."""
    notes = Notebook()
    fears: dict[str, tuple[str, int]] = {}
    kind_of: dict[str, tuple[str, int]] = {}
    while len(fears) + len(kind_of) < len(PLURAL) + len(PETS):
        kind = rng.choice(tuple(PLURAL))
        if rng.random() < 0.5:
            if kind not in fears:
                feared = other_than(rng, tuple(PLURAL), kind)
                text = f"{PLURAL[kind].capitalize()} are afraid of {PLURAL[feared]}."
                fears[kind] = feared, notes.tell(text)
        else:
            pet = rng.choice(PETS)
            if pet not in kind_of and kind in fears:  # a kind is introduced before its members
                kind_of[pet] = kind, notes.tell(f"{pet} is a {kind}.")
    for _ in range(DEDUCTION_QUESTIONS):
        pet = rng.choice(PETS)
        kind, member_fact = kind_of[pet]
        feared, fear_fact = fears[kind]
        notes.ask(f"What is {pet.lower()} afraid of?", feared, (member_fact, fear_fact))
    return notes.story()


def induction_story(rng: Random) -> Story:
    """Task 16: kinds and colors of animals; one has no color, its kind suggests it.

    The examples of the kind asked about agree. In the real files they sometimes do not, and the
    answer then follows the example introduced last, which no reader can know.
    """
    while True:
        species = {animal: rng.choice(SPECIES) for animal in ANIMALS}
        order = _telling_order(rng)
        colored = [animal for animal, what in order if what == "color"]
        (asked,) = (animal for animal in ANIMALS if animal not in colored)
        examples = [animal for animal in colored if species[animal] == species[asked]]
        if len(examples) in EXAMPLES_ASKED_ABOUT:
            break
    usual = {kind: rng.choice(COLORS) for kind in SPECIES}
    color = {}
    for animal in ANIMALS:
        keeps = rng.random() < CHANCE_OF_OWN_KINDS_COLOR or species[animal] == species[asked]
        color[animal] = usual[species[animal]] if keeps else rng.choice(COLORS)
    notes = Notebook()
    facts: dict[tuple[str, str], int] = {}
    for animal, what in order:
        text = f"a {species[animal]}" if what == "kind" else color[animal]
        facts[animal, what] = notes.tell(f"{animal} is {text}.")
    example = max(examples, key=lambda animal: facts[animal, "kind"])
    support = (facts[asked, "kind"], facts[example, "kind"], facts[example, "color"])
    notes.ask(f"What color is {asked}?", color[example], support)
    return notes.story()


def _telling_order(rng: Random) -> list[tuple[str, str]]:
    """Kinds of all animals and colors of all but one, a color after its animal's kind."""
    order: list[tuple[str, str]] = []
    kinds_left = list(ANIMALS)
    colors_left: list[str] = []
    while len(order) < 2 * len(ANIMALS) - 1:
        number = rng.randrange(len(kinds_left) + len(colors_left))
        if number < len(kinds_left):
            animal = kinds_left.pop(number)
            colors_left.append(animal)
            order.append((animal, "kind"))
        else:
            order.append((colors_left.pop(number - len(kinds_left)), "color"))
    return order
