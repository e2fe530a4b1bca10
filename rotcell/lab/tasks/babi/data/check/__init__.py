"""Replays stories from their text alone and reports what contradicts them.

Nothing here is shared with the generator: the sentences are read with patterns of this package,
and answers and supporting facts are derived again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from rotcell.lab.tasks.babi.data.catalog import known_task
from rotcell.lab.tasks.babi.data.check.handling import HandlingReplay
from rotcell.lab.tasks.babi.data.check.kinds import DeductionReplay, InductionReplay
from rotcell.lab.tasks.babi.data.check.layout import LayoutReplay
from rotcell.lab.tasks.babi.data.check.motives import MotiveReplay
from rotcell.lab.tasks.babi.data.check.replay import (
    ContradictionError,
    Replay,
    UndeterminedError,
    UnknownFormError,
)
from rotcell.lab.tasks.babi.data.check.sightings import CompanyReplay, DayReplay, ReportReplay
from rotcell.lab.tasks.babi.data.check.sizes import SizeReplay
from rotcell.lab.tasks.babi.data.reader import Size, open_data
from rotcell.lab.tasks.babi.data.stories import Query, Statement, Story, parse_stories

Kind = Literal["form", "event", "undetermined", "answer", "support", "remark"]

REPLAYS: Final[dict[int, type[Replay]]] = {
    **dict.fromkeys((1, 2, 3, 5, 6, 7, 8), HandlingReplay),
    **dict.fromkeys((9, 10), ReportReplay),
    **dict.fromkeys((11, 12, 13), CompanyReplay),
    14: DayReplay,
    **dict.fromkeys((4, 17, 19), LayoutReplay),
    15: DeductionReplay,
    16: InductionReplay,
    18: SizeReplay,
    20: MotiveReplay,
}


@dataclass(frozen=True)
class Finding:
    """Something wrong in a story, or a remark: odd, but the answer follows from the text."""

    kind: Kind
    story: int  # counted from 1 in the file
    line: int  # the id within the story
    message: str

    @property
    def serious(self) -> bool:
        """Whether the story contradicts itself or does not give the answer."""
        return self.kind != "remark"

    def __str__(self) -> str:
        return f"story {self.story}, line {self.line}: {self.kind}: {self.message}"


@dataclass(frozen=True)
class Report:
    """What the check of one task file found."""

    source: str
    task: int
    questions: int
    findings: tuple[Finding, ...]

    @property
    def serious(self) -> int:
        """How many findings are more than remarks."""
        return sum(finding.serious for finding in self.findings)


def check_data(
    path: str | os.PathLike[str], tasks: Iterable[int] | None = None, *, size: Size = "1k"
) -> Iterator[Report]:
    """Check the task files at `path`, all or those of the given tasks, one report per file."""
    files = open_data(path, size=size)
    wanted = None if tasks is None else set(tasks)
    for task, split in files.available:
        if wanted is None or task in wanted:
            data, source = files.read(task, split)
            stories = parse_stories(data, source)
            questions = sum(len(story.queries) for story in stories)
            yield Report(source, task, questions, tuple(check_stories(task, stories)))


def check_stories(task: int, stories: Iterable[Story]) -> list[Finding]:
    """Everything found in stories of one task."""
    known_task(task)
    return [
        finding
        for number, story in enumerate(stories, start=1)
        for finding in _check_story(REPLAYS[task](), number, story)
    ]


def _check_story(replay: Replay, number: int, story: Story) -> Iterator[Finding]:
    told = 0
    for line_id, line in enumerate(story.lines, start=1):
        try:
            if isinstance(line, Statement):
                replay.tell(told, line.text)
                told += 1
                continue
            problems = list(_check_query(replay, line))
        except UnknownFormError as error:
            problems = [("form", f"not a sentence of this task: {error}")]
        except ContradictionError as error:
            problems = [("event", f"{error} ({line.text})")]
        except UndeterminedError as error:
            problems = [("undetermined", f"{error} ({line.text})")]
        for kind, message in problems:
            yield Finding(kind, number, line_id, message)
        if isinstance(line, Statement):
            return  # after an impossible event nothing that follows can be judged


def _check_query(replay: Replay, query: Query) -> Iterator[tuple[Kind, str]]:
    solution = replay.solve(query.text)
    if solution.answer != query.answer:
        yield "answer", f"{query.answer!r} should be {solution.answer!r} ({query.text})"
    elif frozenset(query.support) not in solution.supports:
        yield "support", f"the supporting facts do not prove {query.answer!r} ({query.text})"
    elif solution.remark:
        yield "remark", f"{solution.remark} ({query.text})"
