"""Questions as tensors, made once for a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from rotcell.lab.errors import DataError
from rotcell.lab.tasks.babi.data.reader import Question
from rotcell.lab.tasks.babi.data.source import TaskQuestions

PADDING: Final = 0  # a separate word with a trainable embedding
VALIDATION_SHARE: Final = 0.05

Side = Literal["front", "behind"]


class Dictionary:
    """Words and answers of a task, numbered from 1 in sorted order."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._index = {word: number for number, word in enumerate(self.words, start=1)}

    @classmethod
    def of(cls, questions: Iterable[Question]) -> Dictionary:
        """All words of stories and questions, and all answers."""
        words: set[str] = set()
        for question in questions:
            words.update(question.story_tokens, question.question, (question.answer,))
        return cls(sorted(words))

    def __len__(self) -> int:
        """How many indices there are, that of the padding included."""
        return len(self.words) + 1

    def __contains__(self, word: str) -> bool:
        return word in self._index

    def __getitem__(self, word: str) -> int:
        return self._index[word]

    def word(self, index: int) -> str:
        """The word at `index`; the padding has none and shows as a dash."""
        return "-" if index == PADDING else self.words[index - 1]


class Examples(NamedTuple):
    """Rows of word numbers; `N` questions, padded to the same number of words."""

    story: Tensor  # [N, words]
    question: Tensor  # [N, words]
    answer: Tensor  # [N]
    story_lengths: Tensor  # [N], on the CPU
    question_lengths: Tensor  # [N], on the CPU

    @property
    def rows(self) -> int:
        return len(self.answer)

    def part(self, start: int, stop: int | None = None) -> Examples:
        """The rows from `start` up to `stop`, without a copy."""
        return Examples(*(tensor[start:stop] for tensor in self))

    def batches(self, rows: int) -> Iterator[Examples]:
        """All rows, `rows` at a time and at the end what is left, without a copy."""
        return map(Examples._make, zip(*(tensor.split(rows) for tensor in self), strict=True))

    def in_order(self, order: Tensor) -> Examples:
        """A copy with the rows in another order."""
        return Examples(*(tensor[order.to(tensor.device)] for tensor in self))

    def trimmed(self) -> Examples:
        """Without the words that are padding in every row; for rows padded behind."""
        return self._replace(
            story=self.story[:, : int(self.story_lengths.max())],
            question=self.question[:, : int(self.question_lengths.max())],
        )

    def to(self, device: torch.device) -> Examples:
        """A copy on `device`, but for the lengths."""
        return self._replace(
            story=self.story.to(device),
            question=self.question.to(device),
            answer=self.answer.to(device),
        )


@dataclass(frozen=True)
class TaskTensors:
    """A task, ready for training."""

    dictionary: Dictionary
    train: Examples
    validation: Examples
    test: Examples

    @property
    def story_length(self) -> int:
        return self.test.story.shape[1]

    @property
    def question_length(self) -> int:
        return self.test.question.shape[1]

    def to(self, device: torch.device) -> TaskTensors:
        """The same on another device."""
        splits = (split.to(device) for split in (self.train, self.validation, self.test))
        return TaskTensors(self.dictionary, *splits)


def vectorize(questions: TaskQuestions, *, padding: Side = "front") -> TaskTensors:
    """Number the words; dictionary and lengths are those of training and test questions together.

    The last 5 % of the training questions are kept apart for validation.
    """
    everything = questions.train + questions.test
    dictionary = Dictionary.of(everything)
    story_length = max(len(question.story_tokens) for question in everything)
    question_length = max(len(question.question) for question in everything)

    def examples(part: Sequence[Question]) -> Examples:
        stories = [question.story_tokens for question in part]
        asked = [question.question for question in part]
        return Examples(
            pad([[dictionary[w] for w in words] for words in stories], story_length, padding),
            pad([[dictionary[w] for w in words] for words in asked], question_length, padding),
            torch.tensor([dictionary[question.answer] for question in part]),
            torch.tensor([len(words) for words in stories]),
            torch.tensor([len(words) for words in asked]),
        )

    boundary = int(len(questions.train) * (1 - VALIDATION_SHARE))
    if not 0 < boundary < len(questions.train) or not questions.test:
        raise DataError(
            f"task {questions.task} has {len(questions.train)} training and {len(questions.test)} "
            "test questions: too few to train, validate and test"
        )
    return TaskTensors(
        dictionary,
        examples(questions.train[:boundary]),
        examples(questions.train[boundary:]),
        examples(questions.test),
    )


def pad(rows: Sequence[Sequence[int]], length: int, side: Side = "front") -> Tensor:
    """Rows of numbers as one tensor, filled up with padding at one side."""
    padded = torch.full((len(rows), length), PADDING)
    for filled, row in zip(padded, rows, strict=True):
        start = length - len(row) if side == "front" else 0
        filled[start : start + len(row)] = torch.tensor(row)
    return padded
