"""Replays people who act on what they feel: task 20."""

from __future__ import annotations

from rotcell.lab.tasks.babi.data.check.replay import (
    WALKED,
    ContradictionError,
    Replay,
    Solution,
    UndeterminedError,
    UnknownFormError,
    learn,
    proven_by,
    read,
    recall,
)

_LEADS_TO = {
    "bored": ("garden", "football"),
    "hungry": ("kitchen", "apple"),
    "thirsty": ("kitchen", "milk"),
    "tired": ("bedroom", "pajamas"),
}


class MotiveReplay(Replay):
    """Task 20: a state of mind leads to a place and to a thing there."""

    def __init__(self) -> None:
        self._state: dict[str, tuple[str, int]] = {}
        self._went: dict[str, str] = {}
        self._taken: set[str] = set()

    def tell(self, fact: int, text: str) -> None:
        if match := read(r"(\w+) is (bored|hungry|thirsty|tired)\.", text):
            learn(self._state, match[1].lower(), match[2], fact)
        elif match := read(rf"(\w+) {WALKED} (\w+)\.", text):
            place, _ = self._goal(match[1])
            if match[2] != place:
                raise ContradictionError(f"{match[1]} has no reason to go to the {match[2]}")
            self._went[match[1]] = place
        elif match := read(r"(\w+) (?:got|grabbed|picked up|took) the (\w+) there\.", text):
            place, thing = self._goal(match[1])
            if match[2] != thing or self._went.get(match[1]) != place:
                raise ContradictionError(f"{match[1]} has no reason to get the {match[2]} there")
            if thing in self._taken:
                raise ContradictionError(f"the {thing} is not there any more")
            self._taken.add(thing)
        else:
            raise UnknownFormError(text)

    def _goal(self, person: str) -> tuple[str, str]:
        if person.lower() not in self._state:
            raise ContradictionError(f"{person} acts without a reason")
        return _LEADS_TO[self._state[person.lower()][0]]

    def solve(self, text: str) -> Solution:
        if match := read(r"Where will (\w+) go\?", text):
            state, fact = recall(self._state, match[1])
            return proven_by(_LEADS_TO[state][0], [fact])
        if match := read(r"Why did (\w+) (?:go to|get) the (\w+)\?", text):
            state, fact = recall(self._state, match[1])
            if match[2] not in _LEADS_TO[state]:
                raise UndeterminedError(f"{match[1]} did not want the {match[2]}")
            return proven_by(state, [fact])
        raise UnknownFormError(text)
