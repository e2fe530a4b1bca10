"""What a model makes of a story, token by token: the story layer from inside, as a page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rotcell.lab.errors import CheckpointError, LookError
from rotcell.lab.tasks.babi.checkpoint import Checkpoint
from rotcell.lab.tasks.babi.data.source import DataName
from rotcell.lab.tasks.babi.model import QuestionAnswerer
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.tensors import Dictionary, Examples, pad
from rotcell.tracing import Reading, Selection, Trace, trace

#: Answers that a reading names.
_ANSWERS = 8
#: Tokens of padding that a page shows in front of a story.
_SHOWN_PADDING = 8


@dataclass(frozen=True)
class Reader:
    """A trained model and all it needs to read a story."""

    model: QuestionAnswerer
    settings: RunSettings
    dictionary: Dictionary
    story_length: int  # shorter stories are padded to it, unless packed
    question_length: int
    data: DataName  # that it was trained and tested on

    @classmethod
    def load(cls, path: Path) -> Reader:
        """The model of a checkpoint, with the weights of the reported epoch."""
        saved = Checkpoint.load(path)
        dictionary = Dictionary(saved.words)
        model = QuestionAnswerer(len(dictionary), saved.settings).eval()
        try:
            model.load_state_dict(saved.best)
        except RuntimeError as error:
            raise CheckpointError(f"the weights in {path} do not fit: {error}") from None
        lengths = saved.story_length, saved.question_length
        return cls(model, saved.settings, dictionary, *lengths, saved.data)

    def known(self, words: Iterable[str]) -> list[str]:
        """The words that the model has met."""
        return [word for word in words if word in self.dictionary]

    def examples(self, stories: Sequence[Sequence[str]], question: Sequence[str]) -> Examples:
        """Stories of known words, each with the same question."""
        return Examples(
            self._padded(stories, self.story_length),
            self._padded([question] * len(stories), self.question_length),
            torch.zeros(len(stories), dtype=torch.int64),
            torch.tensor([len(story) for story in stories]),
            torch.tensor([len(question)] * len(stories)),
        )

    def _padded(self, rows: Sequence[Sequence[str]], usual: int) -> Tensor:
        numbers = [[self.dictionary[word] for word in row] for row in rows]
        longest = max(len(row) for row in rows)
        if self.settings.packed:
            return pad(numbers, longest, "behind")
        return pad(numbers, max(usual, longest))


@dataclass(frozen=True)
class QuestionTrace:
    """The story layer's trace of one story, and how the answer came about."""

    trace: Trace
    tokens: list[str]  # the padding in front included, empty words
    reading: Reading
    padding: int  # tokens in front of the story

    def save(self, path: str | os.PathLike[str], title: str | None = None) -> Path:
        """Write the page, with the last tokens of the padding."""
        where = Path(path)
        where.write_text(self.html(title), encoding="utf-8")
        return where

    def html(self, title: str | None = None) -> str:
        """The page that `save` writes."""
        shown = Selection(rows=[0], steps=slice(max(0, self.padding - _SHOWN_PADDING), None))
        return self.trace.html(self.tokens, shown, readings=self.reading, title=title)


def look_at_question(
    reader: Reader,
    story: Sequence[str],
    question: Sequence[str],
    expected: str | None = None,
) -> QuestionTrace:
    """Trace the story layer while the model reads a story to answer a question.

    Args:
        reader: a trained model.
        story: words; those the model does not know are left out.
        question: words, as for the story.
        expected: the right answer, if it is known.

    Raises:
        LookError: if no word is known, or the model's layers cannot be traced (nn.GRU).
    """
    story, question = reader.known(story), reader.known(question)
    if not story or not question:
        raise LookError("there is no word that the model knows, in the story or in the question")
    rows = reader.examples([story], question)
    try:
        read, context = layer_input(reader.model.story_rnn, reader.model, rows)
        inside = trace(reader.model.story_rnn, read, context=context)
    except TypeError as error:
        raise LookError(
            f"a model of {reader.settings.cell} cells cannot be traced: {error}"
        ) from None
    padding = inside.layout.length(0) - len(story)
    return QuestionTrace(
        inside,
        [""] * padding + list(story),
        _reading(reader, story, question, expected, padding),
        padding,
    )


@torch.no_grad()
def layer_input(
    layer: nn.Module, model: QuestionAnswerer, rows: Examples
) -> tuple[Tensor | PackedSequence, Tensor | None]:
    """What a layer of the model reads, and its context, if any."""
    seen: list[tuple[Tensor | PackedSequence, Tensor | None]] = []

    def keep(_: nn.Module, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        seen.append((given[0], options.get("context")))

    handle = layer.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        model(rows)
    finally:
        handle.remove()
    return seen[0]


def _reading(
    reader: Reader,
    story: Sequence[str],
    question: Sequence[str],
    expected: str | None,
    padding: int,
) -> Reading:
    chances = prefix_probabilities(reader, story, question)
    final = chances[-1]
    named = set(chances.amax(0).topk(min(_ANSWERS, chances.shape[1])).indices.tolist())
    named.add(int(final.argmax()))
    if expected is not None and expected in reader.dictionary:
        named.add(reader.dictionary[expected])
    answers = sorted(named)
    of_story, of_question = saliency(reader, story, question)
    return Reading(
        answers=[reader.dictionary.word(answer) for answer in answers],
        probabilities=torch.cat([chances.new_zeros(padding, len(answers)), chances[:, answers]]),
        saliency=torch.cat([of_story.new_zeros(padding), of_story]),
        question=list(question),
        question_saliency=of_question,
        expected=expected,
    )


@torch.no_grad()
def prefix_probabilities(reader: Reader, story: Sequence[str], question: Sequence[str]) -> Tensor:
    """``[T, words]``: of every answer, had the story ended after each of its T words.

    Each beginning is read as the model reads any story, padded to the usual length.
    """
    beginnings = [story[: count + 1] for count in range(len(story))]
    return torch.softmax(reader.model(reader.examples(beginnings, question)), dim=-1)


def saliency(
    reader: Reader, story: Sequence[str], question: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """How much each word of story and question mattered for the answer.

    The norm of the gradient of the likeliest answer's log probability with respect to the word's
    embedding.
    """
    model = reader.model
    rows = reader.examples([story], question)
    read: dict[str, Tensor] = {}

    def leaf(name: str) -> torch.utils.hooks.RemovableHandle:
        def keep(_: nn.Module, __: object, embedded: Tensor) -> Tensor:
            read[name] = embedded.detach().requires_grad_()
            return read[name]

        handle: torch.utils.hooks.RemovableHandle = getattr(model, name).register_forward_hook(keep)
        return handle

    names = ("story_embedding", "question_embedding")
    handles = [leaf(name) for name in names]
    try:
        with torch.enable_grad():
            best = torch.log_softmax(model(rows)[0], dim=0).max()
            gradients = torch.autograd.grad(best, [read[name] for name in names])
    finally:
        for handle in handles:
            handle.remove()
    of_story, of_question = (gradient[:, 0].norm(dim=-1) for gradient in gradients)
    return of_story[_words(of_story, story, reader)], of_question[
        _words(of_question, question, reader)
    ]


def _words(padded: Tensor, words: Sequence[str], reader: Reader) -> slice:
    """Where the words are among the padding: in front of it if it is behind."""
    if reader.settings.packed:
        return slice(0, len(words))
    return slice(len(padded) - len(words), None)
