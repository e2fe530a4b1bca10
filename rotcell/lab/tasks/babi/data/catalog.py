"""The twenty tasks: their numbers, official names and file names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

Split = Literal["train", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "test")

TASK_NAMES: Final[dict[int, str]] = {
    1: "single-supporting-fact",
    2: "two-supporting-facts",
    3: "three-supporting-facts",
    4: "two-arg-relations",
    5: "three-arg-relations",
    6: "yes-no-questions",
    7: "counting",
    8: "lists-sets",
    9: "simple-negation",
    10: "indefinite-knowledge",
    11: "basic-coreference",
    12: "conjunction",
    13: "compound-coreference",
    14: "time-reasoning",
    15: "basic-deduction",
    16: "basic-induction",
    17: "positional-reasoning",
    18: "size-reasoning",
    19: "path-finding",
    20: "agents-motivations",
}
ALL_TASKS: Final[tuple[int, ...]] = tuple(TASK_NAMES)

# The official files of these tasks have a blank between the question mark and the tab.
BLANK_BEFORE_TAB: Final[frozenset[int]] = frozenset({1, 2, 3, *range(5, 15)})

_FILE_NAME = re.compile(r"qa([1-9][0-9]*)_[^/\\]*_(train|test)\.txt")


def file_name(task: int, split: Split) -> str:
    """The official name of a task's file."""
    return f"qa{task}_{known_task(task)}_{split}.txt"


def parse_file_name(name: str) -> tuple[int, Split] | None:
    """Task and split of a file called `name`; None when it is not a bAbI task file."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    return int(match[1]), "train" if match[2] == "train" else "test"


def known_task(task: int) -> str:
    """The official name of `task`; ValueError when there is no such task."""
    try:
        return TASK_NAMES[task]
    except KeyError:
        raise ValueError(f"there is no bAbI task {task}: the tasks are 1 to 20") from None


def parse_task_list(text: str) -> tuple[int, ...]:
    """Task numbers from text like `1,6,15-18` (or `all`), sorted, each once."""
    if text.strip() == "all":
        return ALL_TASKS
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?", part)
        if match is None:
            raise ValueError(f"not a list of task numbers: {text!r} (write 1,6,15-18 or all)")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise ValueError(f"an empty range of tasks: {part.strip()!r}")
        found.update(_checked(range(first, last + 1)))
    return tuple(sorted(found))


def _checked(tasks: Iterable[int]) -> Iterable[int]:
    for task in tasks:
        known_task(task)
        yield task
