"""Asks a trained model about stories that a person types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from rotcell.babi.data.reader import tokenize
from rotcell.babi.errors import CheckpointError
from rotcell.babi.training.checkpoint import Checkpoint
from rotcell.babi.training.model import QuestionAnswerer
from rotcell.babi.training.tensors import Dictionary, Examples, pad

HELP = """\
Type the sentences of a story, one a line. A line that ends in ? is a question.
An empty line begins a new story; Ctrl-D ends."""
_SHOWN = 3


class Answerer:
    """A trained model with its dictionary."""

    def __init__(self, path: Path) -> None:
        saved = Checkpoint.load(path)
        self.settings = saved.settings
        self.dictionary = Dictionary(saved.words)
        self._lengths = saved.story_length, saved.question_length
        self._model = QuestionAnswerer(len(self.dictionary), saved.settings)
        try:
            self._model.load_state_dict(saved.model)
        except RuntimeError as error:
            raise CheckpointError(f"the weights in {path} do not fit: {error}") from None
        self._model.eval()

    def unknown(self, words: Iterable[str]) -> list[str]:
        """The words the model has never met, each once."""
        return list(dict.fromkeys(word for word in words if word not in self.dictionary))

    @torch.no_grad()
    def answers(self, story: Iterable[str], question: Iterable[str]) -> list[tuple[str, float]]:
        """The most probable answers, best first; words the model does not know are left out."""
        told, asked = (
            [self.dictionary[w] for w in ws if w in self.dictionary] for ws in (story, question)
        )
        if not told or not asked:
            raise ValueError("there is no known word to go by")
        packed = self.settings.packed
        longest = [
            max(0 if packed else usual, len(words))
            for usual, words in zip(self._lengths, (told, asked), strict=True)
        ]
        rows = Examples(
            pad([told], longest[0]),
            pad([asked], longest[1]),
            torch.zeros(1, dtype=torch.int64),
            torch.tensor([len(told)]),
            torch.tensor([len(asked)]),
        )
        best = torch.softmax(self._model(rows)[0], dim=0).topk(min(_SHOWN, len(self.dictionary)))
        return [
            (self.dictionary.word(int(index)), float(chance))
            for chance, index in zip(best.values, best.indices, strict=True)
        ]


def converse(answerer: Answerer, lines: Iterable[str]) -> Iterator[str]:
    """What the model says to the lines a person types."""
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
            yield "  tell me something first"
        else:
            try:
                found = answerer.answers(story, words)
            except ValueError as error:
                yield f"  {error}"
                continue
            (answer, chance), *others = found
            rest = ", ".join(f"{word} {p:.0%}" for word, p in others)
            yield f"  {answer} ({chance:.0%}; then {rest})"
