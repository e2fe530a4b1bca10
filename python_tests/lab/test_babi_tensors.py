"""Questions as tensors."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_helpers import questions

from rotcell.lab.errors import DataError
from rotcell.lab.tasks.babi.data.catalog import ALL_TASKS
from rotcell.lab.tasks.babi.data.generate import write_dataset
from rotcell.lab.tasks.babi.data.source import DataName, Source
from rotcell.lab.tasks.babi.tensors import PADDING, Dictionary, pad, vectorize


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
    tensors = vectorize(data, padding=side)
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
    tensors = vectorize(questions())
    assert (tensors.train.rows, tensors.validation.rows, tensors.test.rows) == (38, 2, 40)


def test_too_few_questions_are_refused() -> None:
    data = questions()
    with pytest.raises(DataError, match="too few"):
        vectorize(replace(data, train=data.train[:1]))
    with pytest.raises(DataError, match="0 test"):
        vectorize(replace(data, test=()))


def test_padding_goes_to_the_chosen_side() -> None:
    assert pad([[1, 2], [3]], 3).tolist() == [[0, 1, 2], [0, 0, 3]]
    assert pad([[1, 2], [3]], 3, "behind").tolist() == [[1, 2, 0], [3, 0, 0]]


def test_trimmed_drops_only_padding() -> None:
    examples = vectorize(questions(), padding="behind").train.part(0, 2)
    trimmed = examples.trimmed()
    assert trimmed.story.shape[1] == int(examples.story_lengths.max())
    assert not examples.story[:, trimmed.story.shape[1] :].any()
    assert torch.equal(trimmed.answer, examples.answer)


def test_sizes_of_real_task_18(real_babi: Path) -> None:
    tensors = vectorize(Source.at(str(real_babi)).load(18))
    assert len(tensors.dictionary) == 23
    assert (tensors.train.rows, tensors.validation.rows, tensors.test.rows) == (950, 50, 1000)
    assert tensors.story_length == 130


def test_generated_and_other_files_have_names_and_digests(tmp_path: Path) -> None:
    made = Source(questions=20).load(1).data
    assert str(made) == "generated (20 questions, seed 0)"
    assert made != Source(questions=20, seed=1).load(1).data
    write_dataset(tmp_path / "d", tasks=(1,), questions=20)
    found = Source.at(str(tmp_path / "d")).load(1).data
    assert str(found) == "unverified files (20 questions)"
    assert (found.train.digest, found.test.digest) == (made.train.digest, made.test.digest)
    assert DataName.from_plain(json.loads(json.dumps(found.plain()))) == found
    with pytest.raises(DataError, match="does not exist"):
        Source.at(str(tmp_path / "gone")).load(1)


def test_official_files_are_known_by_their_content(real_babi: Path, tmp_path: Path) -> None:
    for task in ALL_TASKS:
        data = Source.at(str(real_babi)).load(task).data
        assert str(data) == "official 1k"
        assert (data.train.kind, data.test.kind) == ("official", "official")
    # In any folder; --size does not matter if the folder holds the files directly.
    shutil.copytree(real_babi / "en", tmp_path / "en-10k")
    assert str(Source.at(str(tmp_path / "en-10k"), "10k").load(4).data) == "official 1k"
    mixed = Source(None, str(real_babi), questions=20).load(4).data
    assert str(mixed) == "training: generated (20 questions, seed 0); test: official"
    changed = next((tmp_path / "en-10k").glob("qa4_*_train.txt"))
    changed.write_bytes(changed.read_bytes().replace(b"kitchen", b"bedroom", 1))
    found = Source.at(str(tmp_path / "en-10k")).load(4).data
    assert str(found) == "training: unverified files (1000 questions); test: official"
