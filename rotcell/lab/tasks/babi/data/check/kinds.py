"""Replays animals and what holds for their kind: tasks 15 and 16."""

from __future__ import annotations

from rotcell.lab.tasks.babi.data.check.replay import (
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

_SINGULAR = {"cats": "cat", "mice": "mouse", "sheep": "sheep", "wolves": "wolf"}


class DeductionReplay(Replay):
    """Task 15: members share what their kind fears."""

    def __init__(self) -> None:
        self._fears: dict[str, tuple[str, int]] = {}
        self._kind: dict[str, tuple[str, int]] = {}

    def tell(self, fact: int, text: str) -> None:
        if match := read(r"(\w+) are afraid of (\w+)\.", text):
            kind, feared = (_SINGULAR.get(match[i].lower(), match[i]) for i in (1, 2))
            if kind == feared:
                raise ContradictionError(f"a {kind} cannot be afraid of itself")
            learn(self._fears, kind, feared, fact)
        elif match := read(r"(\w+) is a (\w+)\.", text):
            learn(self._kind, match[1].lower(), match[2], fact)
        else:
            raise UnknownFormError(text)

    def solve(self, text: str) -> Solution:
        match = read(r"What is (\w+) afraid of\?", text)
        if match is None:
            raise UnknownFormError(text)
        kind, is_a = recall(self._kind, match[1])
        feared, fears = recall(self._fears, kind)
        return proven_by(feared, [is_a, fears])


class InductionReplay(Replay):
    """Task 16: the color of others of its kind."""

    def __init__(self) -> None:
        self._kind: dict[str, tuple[str, int]] = {}
        self._color: dict[str, tuple[str, int]] = {}

    def tell(self, fact: int, text: str) -> None:
        if match := read(r"(\w+) is a (\w+)\.", text):
            learn(self._kind, match[1], match[2], fact)
        elif match := read(r"(\w+) is (\w+)\.", text):
            learn(self._color, match[1], match[2], fact)
        else:
            raise UnknownFormError(text)

    def solve(self, text: str) -> Solution:
        match = read(r"What color is (\w+)\?", text)
        if match is None:
            raise UnknownFormError(text)
        kind, is_a = recall(self._kind, match[1])
        examples = [
            (*self._color[other], other_is_a)
            for other, (other_kind, other_is_a) in self._kind.items()
            if other_kind == kind and other != match[1] and other in self._color
        ]
        if not examples:
            raise UndeterminedError(f"nothing was said about the color of another {kind}")
        # Kinds are kept in the order told, so this is the example introduced last.
        answer = examples[-1][0]
        agreeing = [(has, other) for color, has, other in examples if color == answer]
        disagree = len(agreeing) < len(examples)
        remark = "the examples disagree; the one introduced last decides" if disagree else ""
        return Solution(answer, tuple(frozenset({is_a, *pair}) for pair in agreeing), remark)
