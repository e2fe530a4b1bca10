"""Generates stories for all twenty tasks in the manner of the real files.

Every task has a small simulated world that computes the answers and the supporting facts. The
same task, split and seed give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Final

from rotcell.lab.files import write_atomically
from rotcell.lab.tasks.babi.data.catalog import (
    ALL_TASKS,
    BLANK_BEFORE_TAB,
    SPLITS,
    Split,
    file_name,
    known_task,
)
from rotcell.lab.tasks.babi.data.generate.company import (
    compound_coreference_story,
    conjunction_story,
    coreference_story,
)
from rotcell.lab.tasks.babi.data.generate.directions import path_story, relation_story
from rotcell.lab.tasks.babi.data.generate.hearsay import indefinite_story, negation_story
from rotcell.lab.tasks.babi.data.generate.kinds import deduction_story, induction_story
from rotcell.lab.tasks.babi.data.generate.motives import motivation_story
from rotcell.lab.tasks.babi.data.generate.possession import HowMany, WhatCarried, WhoGave
from rotcell.lab.tasks.babi.data.generate.shapes import position_story
from rotcell.lab.tasks.babi.data.generate.sizes import size_story
from rotcell.lab.tasks.babi.data.generate.times import time_story
from rotcell.lab.tasks.babi.data.generate.whereabouts import (
    IsPersonThere,
    WherePerson,
    WhereThing,
    WhereThingBefore,
)
from rotcell.lab.tasks.babi.data.stories import Query, Story, format_stories

DEFAULT_QUESTIONS: Final = 1000

STORY_WRITERS: Final[dict[int, Callable[[Random], Story]]] = {
    1: WherePerson.write,
    2: WhereThing.write,
    3: WhereThingBefore.write,
    4: relation_story,
    5: WhoGave.write,
    6: IsPersonThere.write,
    7: HowMany.write,
    8: WhatCarried.write,
    9: negation_story,
    10: indefinite_story,
    11: coreference_story,
    12: conjunction_story,
    13: compound_coreference_story,
    14: time_story,
    15: deduction_story,
    16: induction_story,
    17: position_story,
    18: size_story,
    19: path_story,
    20: motivation_story,
}


def generate(
    task: int, questions: int = DEFAULT_QUESTIONS, seed: int = 0, split: Split = "train"
) -> list[Story]:
    """Stories of `task` with exactly so many questions; the last story is cut to fit."""
    known_task(task)
    if questions < 1:
        raise ValueError(f"{questions} questions asked for: at least 1 is needed")
    rng = Random(f"rotcell bAbI {task} {split} {seed}")
    write = STORY_WRITERS[task]
    stories: list[Story] = []
    missing = questions
    while missing > 0:
        story = _cut(write(rng), missing)
        missing -= len(story.queries)
        stories.append(story)
    return stories


def _cut(story: Story, questions: int) -> Story:
    """The story up to its question number `questions`."""
    asked = 0
    for number, line in enumerate(story.lines, start=1):
        asked += isinstance(line, Query)
        if asked == questions:
            return Story(story.lines[:number])
    return story


def file_content(task: int, stories: Iterable[Story]) -> bytes:
    """The stories of a task as its official file would have them."""
    return format_stories(stories, blank_before_tab=task in BLANK_BEFORE_TAB).encode()


def write_dataset(
    folder: str | os.PathLike[str],
    tasks: Iterable[int] = ALL_TASKS,
    questions: int = DEFAULT_QUESTIONS,
    seed: int = 0,
) -> list[Path]:
    """Write train and test files of the tasks in the official format; returns the files."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for task in tasks:
        for split in SPLITS:
            path = target / file_name(task, split)
            write_atomically(path, file_content(task, generate(task, questions, seed, split)))
            written.append(path)
    return written
