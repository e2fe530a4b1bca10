"""The generator: the same bytes for the same seed, well-formed, and free of contradictions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rotcell.lab.tasks.babi.data.catalog import ALL_TASKS, file_name
from rotcell.lab.tasks.babi.data.check import check_stories
from rotcell.lab.tasks.babi.data.generate import generate, write_dataset
from rotcell.lab.tasks.babi.data.reader import open_data, questions_of, read_stories
from rotcell.lab.tasks.babi.data.stories import format_stories, parse_stories

QUESTIONS_PER_STORY = {**dict.fromkeys(range(1, 15), 5), 4: 1, 15: 4, 16: 1, 17: 8, 19: 1}


@pytest.mark.parametrize("task", ALL_TASKS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_generated_stories_have_no_contradiction(task: int, seed: int) -> None:
    assert check_stories(task, generate(task, 300, seed)) == []


@given(st.sampled_from(ALL_TASKS), st.integers(1, 40), st.integers(-(10**9), 10**9))
@settings(max_examples=60, deadline=None)
def test_any_number_and_seed(task: int, questions: int, seed: int) -> None:
    stories = generate(task, questions, seed)
    assert len(questions_of(stories)) == questions
    assert parse_stories(format_stories(stories).encode(), "x") == stories
    assert check_stories(task, stories) == []


@pytest.mark.parametrize("task", QUESTIONS_PER_STORY)
def test_stories_have_as_many_questions_as_the_real_ones(task: int) -> None:
    *whole, last = (len(story.queries) for story in generate(task, 101))
    assert set(whole) == {QUESTIONS_PER_STORY[task]}
    assert last <= QUESTIONS_PER_STORY[task]


@pytest.mark.parametrize("task", ALL_TASKS)
def test_seed_and_split_decide(task: int) -> None:
    assert generate(task, 50, 3) == generate(task, 50, 3)
    assert generate(task, 50, 3) != generate(task, 50, 4)
    assert generate(task, 50, 3, "train") != generate(task, 50, 3, "test")
    assert (
        generate(task, 50, 3)[0] == generate(task, 20, 3)[0]
    )  # a longer file begins with the same questions


def test_bytes_do_not_depend_on_the_process(tmp_path: Path) -> None:
    write_dataset(tmp_path / "here", questions=30, seed=5)
    script = "import sys; from rotcell.lab.tasks.babi.data.generate import write_dataset as w; "
    script += "w(sys.argv[1], questions=30, seed=5)"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "123",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    there = tmp_path / "there"
    subprocess.run([sys.executable, "-c", script, str(there)], check=True, env=environment)
    for path in (tmp_path / "here").iterdir():
        assert (there / path.name).read_bytes() == path.read_bytes(), path.name


def test_files_are_official_in_name_and_form(tmp_path: Path) -> None:
    written = write_dataset(tmp_path, tasks=(1, 4), questions=10)
    assert [path.name for path in written] == [
        "qa1_single-supporting-fact_train.txt",
        "qa1_single-supporting-fact_test.txt",
        "qa4_two-arg-relations_train.txt",
        "qa4_two-arg-relations_test.txt",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(p.name for p in written)
    assert "? \t" in (tmp_path / file_name(1, "train")).read_text()
    assert "?\t" in (tmp_path / file_name(4, "train")).read_text()
    assert open_data(tmp_path).available == [(1, "train"), (1, "test"), (4, "train"), (4, "test")]
    assert read_stories(tmp_path, 4, "test") == generate(4, 10, 0, "test")


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="no bAbI task 0"):
        generate(0)
    with pytest.raises(ValueError, match="at least 1"):
        generate(1, 0)
