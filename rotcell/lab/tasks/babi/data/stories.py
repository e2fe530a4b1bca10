"""The line format of a task file: stories of numbered statements and questions.

    1 Mary moved to the bathroom.
    2 Where is Mary? <tab>bathroom<tab>1

Ids count from 1 within a story; a 1 begins the next story. Supporting facts are ids of statements.
In memory they are positions among the story's statements (the first statement is 0), which is what
everybody who leaves the questions out needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rotcell.lab.errors import DataError


class MalformedLineError(DataError):
    """A line that breaks the format; the message names file and line."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__(f"{source}:{line}: {reason}")
        self.source = source
        self.line = line
        self.reason = reason


@dataclass(frozen=True)
class Statement:
    """A sentence that states a fact."""

    text: str


@dataclass(frozen=True)
class Query:
    """A question with its answer; `support` holds positions among the story's statements."""

    text: str
    answer: str
    support: tuple[int, ...]


@dataclass(frozen=True)
class Story:
    """Statements and questions in the order of the file."""

    lines: tuple[Statement | Query, ...]

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements alone."""
        return tuple(line for line in self.lines if isinstance(line, Statement))

    @property
    def queries(self) -> tuple[Query, ...]:
        """The questions alone."""
        return tuple(line for line in self.lines if isinstance(line, Query))


_NUMBERED = re.compile(r"([0-9]+) (.*)")
_ID = re.compile(r"[1-9][0-9]*")


class _StoryParser:
    """Collects the lines of one story; remembers which id is which statement."""

    def __init__(self) -> None:
        self.lines: list[Statement | Query] = []
        self._position: dict[int, int] = {}  # id of a statement -> its position

    @property
    def next_id(self) -> int:
        return len(self.lines) + 1

    @property
    def open_ended(self) -> bool:
        """Whether statements wait for a question that should follow."""
        return bool(self.lines) and isinstance(self.lines[-1], Statement)

    def add(self, text: str) -> None:
        """Add the rest of a line after its id; ValueError if it is malformed."""
        fields = text.split("\t")
        content = fields[0].strip()
        if not content:
            raise ValueError("no text after the id")
        if len(fields) == 1:
            if content.endswith("?"):
                raise ValueError("a question without tabs: answer and supporting facts are missing")
            self._position[self.next_id] = len(self._position)
            self.lines.append(Statement(content))
        elif len(fields) == 3:
            self.lines.append(self._query(content, fields[1].strip(), fields[2]))
        else:
            raise ValueError(
                f"{len(fields)} tab-separated fields: a question has 3 (text, answer, support)"
            )

    def _query(self, text: str, answer: str, support: str) -> Query:
        if not answer:
            raise ValueError("the answer is empty")
        ids = support.split()
        if not ids:
            raise ValueError("no supporting facts")
        if len(set(ids)) != len(ids):
            raise ValueError("a supporting fact is listed twice")
        return Query(text, answer, tuple(self._resolve(fact) for fact in ids))

    def _resolve(self, fact: str) -> int:
        if _ID.fullmatch(fact) is None:
            raise ValueError(f"supporting fact {fact!r} is not a line id")
        number = int(fact)
        if number >= self.next_id:
            raise ValueError(f"supporting fact {number} is not a line before the question")
        if number not in self._position:
            raise ValueError(f"supporting fact {number} is a question, not a statement")
        return self._position[number]


def parse_stories(data: bytes, source: str) -> list[Story]:
    """The stories in a file's bytes; MalformedLineError names `source` and the line."""
    raw_lines = data.split(b"\n")
    if raw_lines.pop() != b"":
        line = len(raw_lines) + 1
        raise MalformedLineError(source, line, "the last line has no end: the file is truncated")
    stories: list[Story] = []
    story = _StoryParser()
    for number, raw in enumerate(raw_lines, start=1):
        try:
            story_id, text = _split_id(raw)
            if story_id == 1 and story.lines:
                stories.append(_finished(story))
                story = _StoryParser()
            if story_id != story.next_id:
                raise ValueError(f"id {story_id} where {story.next_id} or 1 was expected")
            story.add(text)
        except ValueError as error:
            raise MalformedLineError(source, number, str(error)) from None
    if not story.lines:
        raise MalformedLineError(source, 1, "the file is empty")
    try:
        stories.append(_finished(story))
    except ValueError as error:
        raise MalformedLineError(source, len(raw_lines), str(error)) from None
    return stories


def _finished(story: _StoryParser) -> Story:
    if story.open_ended:
        raise ValueError("the story before ends without a question: something is cut off")
    return Story(tuple(story.lines))


def _split_id(raw: bytes) -> tuple[int, str]:
    try:
        line = raw.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start + 1} of the line)") from None
    match = _NUMBERED.fullmatch(line)
    if match is None or _ID.fullmatch(match[1]) is None:
        raise ValueError("the line does not begin with an id and a blank")
    return int(match[1]), match[2]


def format_stories(stories: Iterable[Story], *, blank_before_tab: bool = False) -> str:
    """The text of a task file; the inverse of `parse_stories`."""
    ending = " \t" if blank_before_tab else "\t"
    return "".join(f"{line}\n" for story in stories for line in _format_story(story, ending))


def _format_story(story: Story, ending: str) -> Iterator[str]:
    statement_ids: list[int] = []
    for number, line in enumerate(story.lines, start=1):
        if isinstance(line, Statement):
            statement_ids.append(number)
            yield f"{number} {line.text}"
        else:
            support = " ".join(str(statement_ids[fact]) for fact in line.support)
            yield f"{number} {line.text}{ending}{line.answer}\t{support}"
