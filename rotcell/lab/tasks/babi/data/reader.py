"""Reads the official task files from a folder or a .tar.gz, as questions ready for a model."""

from __future__ import annotations

import gzip
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from rotcell.lab.errors import DataError
from rotcell.lab.tasks.babi.data.catalog import Split, known_task, parse_file_name
from rotcell.lab.tasks.babi.data.stories import Statement, Story, parse_stories

Size = Literal["1k", "10k"]
FOLDER_OF_SIZE: Final[dict[Size, str]] = {"1k": "en", "10k": "en-10k"}
ARCHIVE_ROOT: Final = "tasks_1-20_v1-2"
_ARCHIVE_SUFFIXES = (".tar.gz", ".tgz")
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Question:
    """One example: the statements before a question, the question and its answer.

    `support` holds positions in `story`. The answer is one symbol, comma lists included.
    """

    story: tuple[tuple[str, ...], ...]
    question: tuple[str, ...]
    answer: str
    support: tuple[int, ...]

    @property
    def story_tokens(self) -> tuple[str, ...]:
        """The story as one flat sequence of tokens."""
        return tuple(token for sentence in self.story for token in sentence)


def tokenize(text: str) -> tuple[str, ...]:
    """Words and punctuation marks, case kept."""
    return tuple(_TOKEN.findall(text))


def story_questions(story: Story) -> list[Question]:
    """The questions of a story, each with the statements before it and no earlier question."""
    statements: list[tuple[str, ...]] = []
    found: list[Question] = []
    for line in story.lines:
        if isinstance(line, Statement):
            statements.append(tokenize(line.text))
        else:
            found.append(
                Question(tuple(statements), tokenize(line.text), line.answer, line.support)
            )
    return found


def questions_of(stories: Iterable[Story]) -> list[Question]:
    """The questions of all stories, in the order of the file."""
    return [question for story in stories for question in story_questions(story)]


def read_stories(
    path: str | os.PathLike[str], task: int, split: Split, *, size: Size = "1k"
) -> list[Story]:
    """The stories of one task file.

    `path` is a folder that holds the task files themselves (then `size` does not matter), the
    root of the unpacked archive (`size` chooses en or en-10k), or the archive as .tar.gz.
    """
    known_task(task)
    data = open_data(path, size=size)
    return parse_stories(*data.read(task, split))


def open_data(path: str | os.PathLike[str], *, size: Size = "1k") -> TaskFiles:
    """The task files of one size at `path`, which must hold at least one."""
    if size not in FOLDER_OF_SIZE:
        raise ValueError(f"size is {size!r}: it must be one of {', '.join(FOLDER_OF_SIZE)}")
    where = Path(path)
    if where.is_dir():
        return _folder_files(where, size)
    if where.is_file():
        if where.name.endswith(_ARCHIVE_SUFFIXES):
            return _archive_files(where, size)
        raise DataError(f"{where} is neither a folder nor a .tar.gz archive")
    raise DataError(f"{where} does not exist")


class TaskFiles:
    """Which task files there are, and how to read one."""

    def __init__(self, where: Path, names: Iterable[str], *, archive: bool) -> None:
        self.where = where
        self._archive = archive
        self._names: dict[tuple[int, Split], str] = {}
        for name in sorted(names):
            key = parse_file_name(PurePosixPath(name).name)
            if key is None:
                continue
            if key in self._names:
                raise DataError(f"{where} has two files for one: {self._names[key]} and {name}")
            self._names[key] = name

    def __bool__(self) -> bool:
        return bool(self._names)

    @property
    def available(self) -> list[tuple[int, Split]]:
        """Task and split of every file, in the order of the tasks."""
        return sorted(self._names, key=lambda key: (key[0], key[1] != "train"))

    def read(self, task: int, split: Split) -> tuple[bytes, str]:
        """The bytes of a file and its name for messages."""
        try:
            name = self._names[task, split]
        except KeyError:
            raise DataError(f"{self.where} has no {split} file of task {task}") from None
        label = str(self.where / name)
        if not self._archive:
            return (self.where / name).read_bytes(), label
        with _reading(self.where), tarfile.open(self.where) as archive:
            content = archive.extractfile(name)
            if content is None:
                raise DataError(f"{label} is not a regular file")
            return content.read(), label


def _folder_files(where: Path, size: Size) -> TaskFiles:
    wanted = FOLDER_OF_SIZE[size]
    for folder in (where, where / wanted, where / ARCHIVE_ROOT / wanted):
        if folder.is_dir():
            files = TaskFiles(
                folder, (entry.name for entry in folder.iterdir() if entry.is_file()), archive=False
            )
            if files:
                return files
    raise DataError(
        f"{where} has no bAbI task files (qa1_..._train.txt), neither itself nor in {wanted}/"
    )


def _archive_files(where: Path, size: Size) -> TaskFiles:
    with _reading(where), tarfile.open(where) as archive:
        names = [member.name for member in archive if member.isfile()]
    wanted = FOLDER_OF_SIZE[size]
    in_folder = [name for name in names if PurePosixPath(name).parent.name == wanted]
    flat = [name for name in names if str(PurePosixPath(name).parent) == "."]
    files = TaskFiles(where, in_folder or flat, archive=True)
    if not files:
        raise DataError(f"{where} has no bAbI task files in {wanted}/")
    return files


@contextmanager
def _reading(where: Path) -> Iterator[None]:
    """Turns the ways in which a damaged archive fails into one error that names it."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{where} is damaged: {error}") from error
