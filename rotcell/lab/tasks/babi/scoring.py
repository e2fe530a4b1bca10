"""Scores of many questions without dropout, past the padding in front of their stories.

In some tasks three fourths of all words are padding, and the paper's model reads it. Without
dropout, what it makes of so much padding depends on nothing but the question, and there are few
different ones: so the padding is read once for each of them, and every story begins from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from rotcell.lab.tasks.babi.model import QuestionAnswerer, State
from rotcell.lab.tasks.babi.tensors import PADDING, Examples

MOST_ROWS: Final = 256
_MOST_WORDS: Final = 1 << 16  # of a batch, so that long stories stay in the cache


def score_all(model: QuestionAnswerer, examples: Examples) -> Iterator[tuple[Tensor, Tensor]]:
    """Scores and answers of all rows, batch by batch, stories of like length together."""
    if model.packed:
        for batch in examples.batches(_rows(examples.story.shape[1])):
            yield model(batch.trimmed()), batch.answer
        return
    # Longest stories, which have the least padding, first.
    lengths, order = examples.story_lengths.sort(descending=True, stable=True)
    examples = examples.in_order(order)
    asked, question_of_row = torch.unique(examples.question, dim=0, return_inverse=True)
    q = model.ask(asked)
    padding = examples.story.new_full((1, len(asked)), PADDING)
    state: State | None = None  # of every question, after the padding that has been read
    read, first, longest = 0, 0, examples.story.shape[1]
    while first < examples.rows:
        skipped = longest - max(1, int(lengths[first]))
        if skipped > read:
            state = model.read(padding.expand(skipped - read, -1), q, state)
            read = skipped
        batch = examples.part(first, first + _rows(longest - skipped))
        rows = question_of_row[first : first + batch.rows]
        before = None if state is None else tuple(each[:, rows] for each in state)
        yield model.answer(model.read(batch.story[:, skipped:].t(), q[rows], before)), batch.answer
        first += batch.rows


def _rows(words: int) -> int:
    """How many stories of so many words make a batch."""
    return max(1, min(MOST_ROWS, _MOST_WORDS // words))
