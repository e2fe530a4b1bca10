"""Generated data looks like the official data, and the table that shows it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rotcell.lab.tasks.babi.data.catalog import ALL_TASKS
from rotcell.lab.tasks.babi.data.compare import (
    Profile,
    compare,
    distance,
    profile_of_files,
    profile_of_generated,
    quantile,
)
from rotcell.lab.tasks.babi.data.generate import write_dataset
from rotcell.lab.tasks.babi.data.reader import open_data
from rotcell.lab.tasks.babi.data.stories import parse_stories


def test_distance_is_the_total_variation() -> None:
    assert distance(Counter("aab"), Counter("aabaab")) == pytest.approx(0)
    assert distance(Counter("aabb"), Counter("abbb")) == pytest.approx(0.25)
    assert distance(Counter("a"), Counter("b")) == pytest.approx(1)


def test_a_quantile_is_the_smallest_value_that_covers_the_share() -> None:
    values = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert [quantile(values, share) for share in (0, 0.1, 0.5, 0.51, 1)] == [1, 1, 5, 6, 10]


def test_a_profile_counts_words_and_forms() -> None:
    data = (
        b"1 Mary got the milk.\n2 The red square is below the triangle.\n"
        b"3 Is Mary in the park? \tmaybe\t1\n4 John got the milk.\n"
        b"5 Is John in the park? \tno\t1 4\n"
    )
    profile = Profile.of(parse_stories(data, "x"))
    assert "maybe" in profile.vocabulary
    assert "?" in profile.vocabulary
    assert profile.story_tokens == (13, 18)
    assert profile.statements == (1, 2)
    assert profile.questions_per_story == Counter({2: 1})
    assert profile.supports == Counter({1: 1, 2: 1})
    assert profile.statement_forms == Counter(
        {"PERSON got the THING.": 2, "The SHAPE is below the SHAPE.": 1}
    )
    assert profile.question_forms == Counter({"Is PERSON in the PLACE?": 2})


def test_table_of_two_folders(tmp_path: Path) -> None:
    write_dataset(tmp_path, tasks=(1, 4), questions=20)
    table = compare(tmp_path, tmp_path)
    *_, header, rule, first, second = table.splitlines()
    assert header.count("|") == rule.count("|") == first.count("|") == second.count("|")
    assert first.startswith("| 1 single-supporting-fact | ")
    assert " 0.000 " in second


def close(one: float, other: float, share: float) -> bool:
    return abs(one - other) <= share * max(abs(one), abs(other))


def mean(counts: Counter[int]) -> float:
    return sum(counts.elements()) / counts.total()


@pytest.mark.parametrize("task", ALL_TASKS)
def test_generated_data_is_like_the_official(task: int, real_babi: Path) -> None:
    real = profile_of_files(open_data(real_babi), task)
    made = profile_of_generated(task, 1000, seed=1)
    # Lists of three things are so rare in task 8 that each file has its own.
    odd_words = {word for word in real.vocabulary ^ made.vocabulary if word.count(",") < 2}
    assert not odd_words
    assert set(real.statement_forms) == set(made.statement_forms)
    assert set(real.question_forms) == set(made.question_forms)
    assert distance(real.statement_forms, made.statement_forms) < 0.1
    assert distance(real.question_forms, made.question_forms) < 0.1
    assert distance(real.answers, made.answers) < 0.1
    assert max(real.answers.values()) == pytest.approx(max(made.answers.values()), abs=100)
    for share in (0.25, 0.5, 0.75, 0.9):
        assert close(quantile(real.story_tokens, share), quantile(made.story_tokens, share), 0.2)
    assert close(sum(real.statements), sum(made.statements), 0.12)
    assert close(mean(real.questions_per_story), mean(made.questions_per_story), 0.03)
    assert close(mean(real.supports), mean(made.supports), 0.1)
