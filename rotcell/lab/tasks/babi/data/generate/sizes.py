"""Things that fit inside each other: task 18."""

from __future__ import annotations

from random import Random
from typing import Final

from rotcell.lab.tasks.babi.data.generate.narration import QUESTIONS_PER_STORY, Notebook
from rotcell.lab.tasks.babi.data.stories import Story

ALWAYS_SMALL: Final = ("chocolate", "box of chocolates")
CONTAINERS: Final = ("box", "chest", "container", "suitcase")
STATEMENTS_AT_ONCE: Final = 5
# Rarely a real story is told on after three or four questions and then asks a full set.
CHANCE_OF_SEQUEL: Final = 0.015
CHANCE_OF_ANY_FACT: Final = 0.1


class _Sizes:
    """What has been told about a hidden order of sizes."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.notes = Notebook()
        self._order = (*ALWAYS_SMALL, *rng.sample(CONTAINERS, len(CONTAINERS)))
        self._facts: list[tuple[str, str]] = []  # (smaller, larger)

    def tell_more(self) -> None:
        """Compare five random pairs."""
        for _ in range(STATEMENTS_AT_ONCE):
            smaller, larger = sorted(self._rng.sample(self._order, 2), key=self._order.index)
            self._facts.append((smaller, larger))
            if self._rng.random() < 0.5:
                self.notes.tell(f"The {smaller} fits inside the {larger}.")
            else:
                self.notes.tell(f"The {larger} is bigger than the {smaller}.")

    def between(self) -> list[str]:
        """Things with something smaller and something larger known: the middles of a chain."""
        larger_ones = {larger for _, larger in self._facts}
        smaller_ones = {smaller for smaller, _ in self._facts}
        return [thing for thing in self._order if thing in larger_ones & smaller_ones]

    def ask(self) -> None:
        """Ask about the two ends of a chain of two facts."""
        middle = self._rng.choice(self.between())
        below = self._pick([i for i, fact in enumerate(self._facts) if fact[1] == middle])
        above = self._pick([i for i, fact in enumerate(self._facts) if fact[0] == middle])
        small, large = self._facts[below][0], self._facts[above][1]
        true = self._rng.random() < 0.5
        inner, outer = (small, large) if true else (large, small)
        if self._rng.random() < 0.5:
            text = f"Does the {inner} fit in the {outer}?"
        else:
            text = f"Is the {outer} bigger than the {inner}?"
        self.notes.ask(text, *(("yes", (above, below)) if true else ("no", (below, above))))

    def _pick(self, facts: list[int]) -> int:
        """Mostly the fact told first, as in the real files."""
        return self._rng.choice(facts) if self._rng.random() < CHANCE_OF_ANY_FACT else facts[0]


def size_story(rng: Random) -> Story:
    """Five comparisons (more while no two of them chain), then five questions."""
    sizes = _Sizes(rng)
    _tell_until_chained(sizes)
    if rng.random() < CHANCE_OF_SEQUEL:
        for _ in range(rng.choice((3, 4))):
            sizes.ask()
        sizes.tell_more()
    for _ in range(QUESTIONS_PER_STORY):
        sizes.ask()
    return sizes.notes.story()


def _tell_until_chained(sizes: _Sizes) -> None:
    sizes.tell_more()
    while not sizes.between():
        sizes.tell_more()
