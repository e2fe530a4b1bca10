"""People who want something and act on it: task 20."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from rotcell.lab.tasks.babi.data.generate.narration import GET_VERBS, Notebook, went_to
from rotcell.lab.tasks.babi.data.stories import Story

AGENTS: Final = ("Antoine", "Jason", "Sumit", "Yann")


@dataclass(frozen=True)
class Motive:
    """A state of mind, where it leads and what is wanted there."""

    state: str
    place: str
    thing: str


MOTIVES: Final = (
    Motive("bored", "garden", "football"),
    Motive("hungry", "kitchen", "apple"),
    Motive("thirsty", "kitchen", "milk"),
    Motive("tired", "bedroom", "pajamas"),
)


@dataclass
class _Agent:
    name: str
    motive: Motive
    steps: int = 0  # taken of: have the motive, go, get
    motive_fact: int = -1


def motivation_story(rng: Random) -> Story:
    """Each agent feels something, goes and gets; what one has taken is no longer there."""
    notes = Notebook()
    agents = [_Agent(name, rng.choice(MOTIVES)) for name in AGENTS]
    taken: set[str] = set()
    while True:
        able = [
            agent
            for agent in agents
            if agent.steps < 2 or (agent.steps == 2 and agent.motive.thing not in taken)
        ]
        if not able:
            return notes.story()
        agent = rng.choice(able)
        _act(rng, notes, agent, taken)
        agent.steps += 1


def _act(rng: Random, notes: Notebook, agent: _Agent, taken: set[str]) -> None:
    motive, asked_as = agent.motive, agent.name.lower()
    if agent.steps == 0:
        agent.motive_fact = notes.tell(f"{agent.name} is {motive.state}.")
        notes.ask(f"Where will {asked_as} go?", motive.place, (agent.motive_fact,))
    elif agent.steps == 1:
        notes.tell(f"{went_to(rng, agent.name, motive.place)}.")
        question = f"Why did {asked_as} go to the {motive.place}?"
        notes.ask(question, motive.state, (agent.motive_fact,))
    else:
        taken.add(motive.thing)
        notes.tell(f"{agent.name} {rng.choice(GET_VERBS)} the {motive.thing} there.")
        question = f"Why did {asked_as} get the {motive.thing}?"
        notes.ask(question, motive.state, (agent.motive_fact,))
