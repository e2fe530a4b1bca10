"""Tests a trained model, question by question, and asks it about stories that a person types."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor

from rotcell.lab.errors import CheckpointError, DataError
from rotcell.lab.tasks.babi.checkpoint import Checkpoint
from rotcell.lab.tasks.babi.data.reader import Question, tokenize
from rotcell.lab.tasks.babi.model import QuestionAnswerer
from rotcell.lab.tasks.babi.tensors import PADDING, Dictionary, Examples, pad

Weights = Literal["reported", "last"]

HELP: Final = """\
Type the sentences of a story, one per line. A line that ends in ? is a question.
An empty line begins a new story; Ctrl-D ends."""
_SHOWN: Final = 3
_BATCH: Final = 64
_COLUMNS: Final = ("number", "story", "question", "expected", "given", "probability", "right")


@dataclass(frozen=True)
class Answer:
    """A model's answer to one question."""

    question: Question
    given: str
    probability: float

    @property
    def right(self) -> bool:
        return self.given == self.question.answer


@dataclass(frozen=True)
class Evaluation:
    """A model's answers to many questions."""

    answers: tuple[Answer, ...]
    unknown: tuple[str, ...]  # words that the model has never met and that were left out

    @property
    def accuracy(self) -> float:
        return sum(answer.right for answer in self.answers) / len(self.answers)

    def csv(self) -> bytes:
        """One row per question."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for number, answer in enumerate(self.answers, start=1):
            asked = answer.question
            texts = [" ".join(words) for words in (asked.story_tokens, asked.question)]
            chance = f"{answer.probability:.6f}"
            writer.writerow([number, *texts, asked.answer, answer.given, chance, int(answer.right)])
        return out.getvalue().encode()


class Answerer:
    """A trained model with its dictionary."""

    def __init__(self, saved: Checkpoint, weights: Weights = "reported") -> None:
        self.settings = saved.settings
        self.history = saved.history
        self.data = saved.data  # that it was trained and tested on
        self.dictionary = Dictionary(saved.words)
        self._lengths = saved.story_length, saved.question_length
        self._model = QuestionAnswerer(len(self.dictionary), saved.settings)
        self._model.load_state_dict(saved.best if weights == "reported" else saved.model)
        self._model.eval()

    @classmethod
    def load(cls, path: Path, weights: Weights = "reported") -> Answerer:
        """The model of a checkpoint; CheckpointError when its weights are no such model's."""
        saved = Checkpoint.load(path)
        try:
            return cls(saved, weights)
        except RuntimeError as error:
            raise CheckpointError(f"the weights in {path} do not fit: {error}") from None

    def unknown(self, words: Iterable[str]) -> list[str]:
        """The words the model has never met, each once."""
        return list(dict.fromkeys(word for word in words if word not in self.dictionary))

    def evaluate(self, questions: Sequence[Question]) -> Evaluation:
        """Ask all questions; words the model does not know are left out."""
        if not questions:
            raise DataError("there are no questions to ask")
        answers: list[Answer] = []
        for start in range(0, len(questions), _BATCH):
            asked = questions[start : start + _BATCH]
            scores = self._scores([(each.story_tokens, each.question) for each in asked])
            chances = torch.softmax(scores, dim=-1)
            for row, (question, index) in enumerate(
                zip(asked, scores.argmax(dim=-1).tolist(), strict=True)
            ):
                word = self.dictionary.word(index)
                answers.append(Answer(question, word, float(chances[row, index])))
        words = (word for q in questions for word in (*q.story_tokens, *q.question))
        return Evaluation(tuple(answers), tuple(self.unknown(words)))

    def answers(self, story: Sequence[str], question: Sequence[str]) -> list[tuple[str, float]]:
        """The most probable answers, best first; words the model does not know are left out."""
        if not all(any(word in self.dictionary for word in words) for words in (story, question)):
            raise ValueError("there is no known word to go by")
        chances = torch.softmax(self._scores([(story, question)])[0], dim=-1)
        best = chances.topk(min(_SHOWN, len(self.dictionary)))
        return [
            (self.dictionary.word(int(index)), float(chance))
            for chance, index in zip(best.values, best.indices, strict=True)
        ]

    @torch.no_grad()
    def _scores(self, asked: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Tensor:
        """The scores of stories and questions, padded as they were in training."""
        story, story_lengths = self._padded([words for words, _ in asked], self._lengths[0])
        question, question_lengths = self._padded([words for _, words in asked], self._lengths[1])
        unused = torch.zeros(len(asked), dtype=torch.int64)
        scores: Tensor = self._model(
            Examples(story, question, unused, story_lengths, question_lengths)
        )
        return scores

    def _padded(self, texts: Sequence[Sequence[str]], usual: int) -> tuple[Tensor, Tensor]:
        """Rows of word numbers, and their lengths; a row without known words is one padding."""
        rows = [[self.dictionary[w] for w in words if w in self.dictionary] for words in texts]
        rows = [row or [PADDING] for row in rows]
        longest = max(len(row) for row in rows)
        lengths = torch.tensor([len(row) for row in rows])
        if self.settings.packed:
            return pad(rows, longest, "behind"), lengths
        return pad(rows, max(usual, longest)), lengths


def converse(answerer: Answerer, lines: Iterable[str]) -> Iterator[str]:
    """The model's replies to the lines a person types."""
    story: list[str] = []
    for line in lines:
        words = tokenize(line)
        unknown = answerer.unknown(words)
        if unknown:
            yield f"  I do not know, and leave out: {', '.join(unknown)}"
        if not words:
            story = []
            yield "  (a new story)"
        elif words[-1] != "?":
            story.extend(words)
        elif not story:
            yield "  enter a statement first"
        else:
            try:
                found = answerer.answers(story, words)
            except ValueError as error:
                yield f"  {error}"
                continue
            (answer, chance), *others = found
            rest = ", ".join(f"{word} {p:.0%}" for word, p in others)
            yield f"  {answer} ({chance:.0%}; then {rest})"
