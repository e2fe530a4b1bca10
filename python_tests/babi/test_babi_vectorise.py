"""Questions as tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from training_helpers import questions

from rotcell.babi.source import Source, TaskQuestions
from rotcell.babi.stories import DataError
from rotcell.babi.vectorise import PADDING, Dictionary, pad, vectorise


def test_dictionary_is_over_training_and_test_words_and_answers() -> None:
    data = questions(8)
    dictionary = Dictionary.of(data.train + data.test)
    assert list(dictionary.words) == sorted(dictionary.words)
    assert len(dictionary) == len(dictionary.words) + 1
    for question in data.train + data.test:
        for word in (*question.story_tokens, *question.question, question.answer):
            index = dictionary[word]
            assert index > PADDING
            assert dictionary.word(index) == word
    assert dictionary.word(PADDING) == "-"
    assert "nothing like it" not in dictionary


@pytest.mark.parametrize("side", ["front", "behind"])
def test_words_can_be_read_back(side: str) -> None:
    data = questions(2)
    tensors = vectorise(data, padding=side)
    read = []
    for split in (tensors.train, tensors.validation, tensors.test):
        for story, asked, answer, *lengths in zip(*split, strict=True):
            words = []
            for row, length in zip((story, asked), lengths, strict=True):
                real = row[len(row) - length :] if side == "front" else row[:length]
                assert (real != PADDING).all()
                assert int((row != PADDING).sum()) == length
                words.append(tuple(tensors.dictionary.word(int(index)) for index in real))
            read.append((*words, tensors.dictionary.word(int(answer))))
    assert read == [(q.story_tokens, q.question, q.answer) for q in data.train + data.test]


def test_validation_is_the_last_twentieth_of_the_file() -> None:
    tensors = vectorise(questions())
    assert (tensors.train.rows, tensors.validation.rows, tensors.test.rows) == (38, 2, 40)


def test_too_few_questions() -> None:
    data = questions()
    with pytest.raises(DataError, match="too few"):
        vectorise(TaskQuestions(1, data.train[:1], data.test))
    with pytest.raises(DataError, match="0 test"):
        vectorise(TaskQuestions(1, data.train, ()))


def test_pad() -> None:
    assert pad([[1, 2], [3]], 3).tolist() == [[0, 1, 2], [0, 0, 3]]
    assert pad([[1, 2], [3]], 3, "behind").tolist() == [[1, 2, 0], [3, 0, 0]]


def test_trimmed_drops_only_padding() -> None:
    examples = vectorise(questions(), padding="behind").train.part(0, 2)
    trimmed = examples.trimmed()
    assert trimmed.story.shape[1] == int(examples.story_lengths.max())
    assert not examples.story[:, trimmed.story.shape[1] :].any()
    assert torch.equal(trimmed.answer, examples.answer)


def test_sizes_of_real_task_18(real_babi: Path) -> None:
    tensors = vectorise(Source.at(str(real_babi)).load(18))
    assert len(tensors.dictionary) == 23
    assert (tensors.train.rows, tensors.validation.rows, tensors.test.rows) == (950, 50, 1000)
    assert tensors.story_length == 130


def test_sources_have_names_and_digests(tmp_path: Path) -> None:
    assert str(Source()) == "generated"
    assert str(Source("a", "a")) == "files in a"
    assert str(Source(None, "a")) == "training: generated; test: files in a"
    assert Source(questions=20).load(1).digest != Source(questions=20, seed=1).load(1).digest
    with pytest.raises(DataError, match="does not exist"):
        Source.at(str(tmp_path / "gone")).load(1)
