"""Where a run's questions come from: files at hand, or the generator when there are none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rotcell.lab.errors import DataError
from rotcell.lab.tasks.babi.data.catalog import ALL_TASKS, Split
from rotcell.lab.tasks.babi.data.generate import DEFAULT_QUESTIONS, file_content, generate
from rotcell.lab.tasks.babi.data.official import official_size
from rotcell.lab.tasks.babi.data.reader import Question, Size, open_data, questions_of
from rotcell.lab.tasks.babi.data.stories import parse_stories
from rotcell.lab.training.environment import environment

if TYPE_CHECKING:
    from rotcell.lab.tasks.babi.settings import RunSettings
    from rotcell.lab.tasks.babi.sweep.results import Result

Kind = Literal["official", "generated", "files"]


def digest_of(content: bytes) -> str:
    """How the sha256 of a file begins."""
    return hashlib.sha256(content).hexdigest()[:16]


@dataclass(frozen=True)
class SplitName:
    """What the training or the test questions of a run are, beyond doubt by the digest."""

    kind: Kind
    name: str
    digest: str


@dataclass(frozen=True)
class DataName:
    """What a run was trained and tested on."""

    train: SplitName
    test: SplitName

    def __str__(self) -> str:
        if self.train.name == self.test.name or self.train.kind == self.test.kind == "official":
            return self.train.name
        return f"training: {self.train.name}; test: {self.test.name}"

    def plain(self) -> dict[str, Any]:
        """As a dictionary of strings."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Any) -> DataName:
        """The inverse of `plain`; ValueError or TypeError when that cannot be."""
        train, test = (SplitName(**plain[split]) for split in ("train", "test"))
        return cls(train, test)


@dataclass(frozen=True)
class TaskQuestions:
    """The questions of one task."""

    task: int
    train: tuple[Question, ...]
    test: tuple[Question, ...]
    data: DataName

    @cached_property
    def story_words(self) -> tuple[int, ...]:
        """The length of every story, training and test."""
        return tuple(len(question.story_tokens) for question in self.train + self.test)


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

    def names(self, tasks: Sequence[int]) -> tuple[str, ...]:
        """What the data of these tasks is, in words; several names if they are not of one kind."""
        found = []
        for task in tasks:
            try:
                found.append(str(self.load(task).data))
            except (DataError, OSError):
                continue  # its runs will fail, each with this error
        return tuple(dict.fromkeys(found))

    def load(self, task: int) -> TaskQuestions:
        """Read or generate the questions of a task; DataError when the files are not right."""
        return _load(self, task)

    def compute(
        self,
        run: RunSettings,
        threads: int = 1,
        model: Path | None = None,
        on_epoch: Callable[[int], None] | None = None,
    ) -> Result:
        """The result of a run on this data, an error included."""
        from rotcell.lab.tasks.babi.sweep.job import run_job  # which imports this module

        load = partial(self.load, run.task)
        return run_job(run, load, threads=threads, model=model, on_epoch=on_epoch)

    def lost(self, run: RunSettings, error: str) -> Result:
        """The result of a run that took its worker down with it."""
        from rotcell.lab.tasks.babi.sweep.results import Result

        return Result(run, None, None, error, 0.0, environment())


@lru_cache(maxsize=len(ALL_TASKS))
def _load(source: Source, task: int) -> TaskQuestions:
    train, train_name = _split(source, task, "train", source.train_path)
    test, test_name = _split(source, task, "test", source.test_path)
    return TaskQuestions(task, train, test, DataName(train_name, test_name))


def _split(
    source: Source, task: int, split: Split, path: str | None
) -> tuple[tuple[Question, ...], SplitName]:
    """Official files are known by their digest, whatever folder they are in."""
    if path is None:
        stories = generate(task, source.questions, source.seed, split)
        name = f"generated ({source.questions} questions, seed {source.seed})"
        found = SplitName("generated", name, digest_of(file_content(task, stories)))
        return tuple(questions_of(stories)), found
    content, label = open_data(path, size=source.size).read(task, split)
    questions = tuple(questions_of(parse_stories(content, label)))
    digest = digest_of(content)
    size = official_size(task, split, digest)
    if size is None:
        return questions, SplitName(
            "files", f"unverified files ({len(questions)} questions)", digest
        )
    # The test questions are the same in both sizes.
    name = f"official {size}" if split == "train" else "official"
    return questions, SplitName("official", name, digest)
