"""Scores past the padding are those of the model that reads all of it."""

from __future__ import annotations

import pytest
import torch
from training_helpers import questions, small

from rotcell.lab.tasks.babi import scoring
from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.model import QuestionAnswerer
from rotcell.lab.tasks.babi.tensors import TaskTensors, vectorize


@pytest.fixture(scope="module")
def tensors() -> TaskTensors:
    return vectorize(questions())


@pytest.mark.parametrize("most_words", [60, 1 << 16])  # many small batches, one for all
@pytest.mark.parametrize("cell", list(CELLS))
def test_scores_are_those_of_the_whole_model(
    cell: str, most_words: int, tensors: TaskTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_MOST_WORDS", most_words)
    model = QuestionAnswerer(len(tensors.dictionary), small(cell=cell)).double().eval()
    test = tensors.test
    assert len(set(test.story_lengths.tolist())) > 2
    by_answer: dict[int, list[torch.Tensor]] = {}
    with torch.no_grad():
        for scores, answers in scoring.score_all(model, test):
            for row, answer in zip(scores, answers.tolist(), strict=True):
                by_answer.setdefault(answer, []).append(row)
        # In any order: each row must be the next one with its answer.
        order = test.story_lengths.sort(descending=True, stable=True).indices
        for row, answer in zip(model(test)[order], test.answer[order].tolist(), strict=True):
            assert torch.allclose(by_answer[answer].pop(0), row, rtol=0, atol=1e-13)
    assert not any(by_answer.values())


def test_padding_is_read_once_per_question(
    tensors: TaskTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once per story, which would save nothing."""
    model = QuestionAnswerer(len(tensors.dictionary), small()).eval()
    monkeypatch.setattr(scoring, "_MOST_WORDS", 1)  # one story per batch, without padding
    words = []
    model.story_embedding.register_forward_hook(lambda _m, args, _out: words.append(args[0]))
    test = tensors.test
    with torch.no_grad():
        assert sum(len(answers) for _, answers in scoring.score_all(model, test)) == test.rows
    seen = torch.cat([part.flatten() for part in words])
    different = len(torch.unique(test.question, dim=0))
    shortest, longest = int(test.story_lengths.min()), test.story.shape[1]
    assert int((seen != 0).sum()) == int(test.story_lengths.sum())
    assert int((seen == 0).sum()) == different * (longest - shortest)
