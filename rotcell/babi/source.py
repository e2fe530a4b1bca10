"""Where a run's questions come from: files at hand, or the generator when there are none."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

from rotcell.babi.catalog import ALL_TASKS, Split
from rotcell.babi.generate import DEFAULT_QUESTIONS, generate
from rotcell.babi.reader import Question, Size, questions_of, read_questions


@dataclass(frozen=True)
class TaskQuestions:
    """The questions of one task."""

    task: int
    train: tuple[Question, ...]
    test: tuple[Question, ...]

    @cached_property
    def story_words(self) -> tuple[int, ...]:
        """The length of every story, training and test."""
        return tuple(len(question.story_tokens) for question in self.train + self.test)

    @cached_property
    def digest(self) -> str:
        """A checksum of all of it, to tell data sets apart."""
        return hashlib.sha256(repr((self.train, self.test)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Source:
    """Folder or archive of the training and of the test files; None means generated ones."""

    train_path: str | None = None
    test_path: str | None = None
    size: Size = "1k"
    questions: int = DEFAULT_QUESTIONS  # to generate for each split
    seed: int = 0  # of the generator

    @classmethod
    def at(cls, path: str | None, size: Size = "1k") -> Source:
        """Training and test files from one place."""
        return cls(path, path, size)

    def __str__(self) -> str:
        paths = (self.train_path, self.test_path)
        train, test = (f"files in {path}" if path else "generated" for path in paths)
        return train if train == test else f"training: {train}; test: {test}"

    def load(self, task: int) -> TaskQuestions:
        """Read or generate the questions of a task; DataError when the files are not right."""
        return _load(self, task)


@lru_cache(maxsize=len(ALL_TASKS))
def _load(source: Source, task: int) -> TaskQuestions:
    def split(name: Split, path: str | None) -> tuple[Question, ...]:
        if path is None:
            return tuple(questions_of(generate(task, source.questions, source.seed, name)))
        return tuple(read_questions(path, task, name, size=source.size))

    return TaskQuestions(task, split("train", source.train_path), split("test", source.test_path))
