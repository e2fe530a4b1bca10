"""The line format: what is read, what is refused, and that writing and reading are inverse."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rotcell.lab.tasks.babi.data.catalog import ALL_TASKS, BLANK_BEFORE_TAB, SPLITS, parse_task_list
from rotcell.lab.tasks.babi.data.reader import open_data
from rotcell.lab.tasks.babi.data.stories import (
    MalformedLineError,
    Query,
    Statement,
    Story,
    format_stories,
    parse_stories,
)

GOOD = (
    b"1 Mary moved to the bathroom.\n"
    b"2 John went to the hallway.\n"
    b"3 Where is Mary? \tbathroom\t1\n"
    b"4 Daniel went back to the hallway.\n"
    b"5 Where is Daniel?\thallway\t4\n"
    b"1 Mary got the milk.\n"
    b"2 What is Mary carrying? \tmilk,apple\t1\n"
)


def test_reads_stories_questions_and_support() -> None:
    first, second = parse_stories(GOOD, "good.txt")
    assert [line.text for line in first.statements] == [
        "Mary moved to the bathroom.",
        "John went to the hallway.",
        "Daniel went back to the hallway.",
    ]
    assert first.queries == (
        Query("Where is Mary?", "bathroom", (0,)),
        Query("Where is Daniel?", "hallway", (2,)),  # line 4 is the third statement
    )
    assert second.queries == (Query("What is Mary carrying?", "milk,apple", (0,)),)


def test_reads_windows_line_ends() -> None:
    assert parse_stories(GOOD.replace(b"\n", b"\r\n"), "x") == parse_stories(GOOD, "x")


STATEMENT = b"1 Mary moved to the bathroom.\n"
QUESTION = b"2 Where is Mary?\tbathroom\t1\n"

DAMAGED = {
    "empty file": (b"", 1, "empty"),
    "starts at 2": (b"2 Mary moved.\n", 1, "id 2 where 1"),
    "id skipped": (STATEMENT + b"3 Where is Mary?\tbathroom\t1\n", 2, "id 3 where 2 or 1"),
    "id repeated": (STATEMENT + QUESTION + b"2 Mary left.\n", 3, "id 2 where 3 or 1"),
    "id zero": (b"0 Mary moved.\n", 1, "begin with an id"),
    "id with leading zero": (b"01 Mary moved.\n", 1, "begin with an id"),
    "id negative": (b"-1 Mary moved.\n", 1, "begin with an id"),
    "id missing": (STATEMENT + b"Where is Mary?\tbathroom\t1\n", 2, "begin with an id"),
    "id only": (b"1\n", 1, "begin with an id"),
    "id and blank only": (b"1  \n", 1, "no text"),
    "id too long to be a number": (b"1" * 5000 + b" Mary moved.\n", 1, ""),
    "foreign digits": ("\u0661 Mary moved.\n".encode(), 1, "begin with an id"),
    "blank line": (STATEMENT + b"\n" + QUESTION, 2, "begin with an id"),
    "question without tabs": (STATEMENT + b"2 Where is Mary?\n", 2, "without tabs"),
    "one tab": (STATEMENT + b"2 Where is Mary?\tbathroom\n", 2, "2 tab-separated fields"),
    "three tabs": (STATEMENT + b"2 Where is Mary?\tbathroom\t1\t1\n", 2, "4 tab-separated fields"),
    "blanks for tabs": (STATEMENT + b"2 Where is Mary? bathroom 1\n", 2, "without a question"),
    "no question text": (STATEMENT + b"2 \tbathroom\t1\n", 2, "no text"),
    "answer empty": (STATEMENT + b"2 Where is Mary?\t \t1\n", 2, "answer is empty"),
    "support empty": (STATEMENT + b"2 Where is Mary?\tbathroom\t\n", 2, "no supporting facts"),
    "support not a number": (STATEMENT + b"2 Where is Mary?\tbathroom\tone\n", 2, "'one'"),
    "support with comma": (STATEMENT + b"2 Where is Mary?\tbathroom\t1,1\n", 2, "'1,1'"),
    "support fractional": (STATEMENT + b"2 Where is Mary?\tbathroom\t1.0\n", 2, "'1.0'"),
    "support twice": (STATEMENT + b"2 Where is Mary?\tbathroom\t1 1\n", 2, "twice"),
    "support zero": (STATEMENT + b"2 Where is Mary?\tbathroom\t0\n", 2, "'0'"),
    "support is itself": (STATEMENT + b"2 Where is Mary?\tbathroom\t2\n", 2, "not a line before"),
    "support is later": (
        STATEMENT + b"2 Where is Mary?\tbathroom\t3\n3 Mary left.\n",
        2,
        "not a line before",
    ),
    "support is a question": (
        STATEMENT + QUESTION + b"3 Where is Mary?\tbathroom\t2\n",
        3,
        "2 is a question",
    ),
    "bad UTF-8": (STATEMENT + b"2 Where is M\xe4ry?\tbathroom\t1\n", 2, "byte 13"),
    "cut within a line": (STATEMENT + QUESTION[:-4], 2, "truncated"),
    "cut after a statement": (STATEMENT + QUESTION + STATEMENT, 3, "without a question"),
    "story without question": (STATEMENT + STATEMENT + QUESTION, 2, "without a question"),
}


@pytest.mark.parametrize(("data", "line", "reason"), DAMAGED.values(), ids=DAMAGED.keys())
def test_malformed_line_is_named(data: bytes, line: int, reason: str) -> None:
    with pytest.raises(MalformedLineError) as caught:
        parse_stories(data, "some/qa1_x_train.txt")
    assert str(caught.value).startswith(f"some/qa1_x_train.txt:{line}: ")
    assert reason in str(caught.value)


_TEXT = (
    st.text(st.characters(exclude_characters="\t\r\n", exclude_categories=["Cs"]), min_size=1)
    .map(str.strip)
    .filter(bool)
)
_STATEMENTS = _TEXT.filter(lambda text: not text.endswith("?")).map(Statement)


@st.composite
def _stories(draw: st.DrawFn) -> Story:
    lines: list[Statement | Query] = []
    num_statements = 0
    for _ in range(draw(st.integers(1, 4))):
        statements = draw(st.lists(_STATEMENTS, min_size=0 if num_statements else 1, max_size=4))
        lines += statements
        num_statements += len(statements)
        facts = st.lists(st.integers(0, num_statements - 1), min_size=1, max_size=4, unique=True)
        lines.append(Query(draw(_TEXT), draw(_TEXT), tuple(draw(facts))))
    return Story(tuple(lines))


@given(st.lists(_stories(), min_size=1, max_size=4), st.booleans())
def test_what_is_written_is_read_back(stories: list[Story], blank: bool) -> None:
    text = format_stories(stories, blank_before_tab=blank)
    assert parse_stories(text.encode(), "x") == stories


@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_damaged_bytes_give_stories_or_the_error(at: int, inserted: bytes, removed: int) -> None:
    data = GOOD[:at] + inserted + GOOD[at + removed :]
    line = 1
    try:
        parse_stories(data, "x")
    except MalformedLineError as error:
        line = error.line
    assert 1 <= line <= data.count(b"\n") + 1


def test_official_files_are_written_back_to_the_byte(real_babi: Path) -> None:
    files = open_data(real_babi)
    for task in ALL_TASKS:
        for split in SPLITS:
            data, source = files.read(task, split)
            stories = parse_stories(data, source)
            text = format_stories(stories, blank_before_tab=task in BLANK_BEFORE_TAB)
            assert text.encode() == data, source
            assert sum(len(story.queries) for story in stories) == 1000


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("1", (1,)), ("18, 1", (1, 18)), ("2-4,3", (2, 3, 4)), ("all", ALL_TASKS)],
)
def test_task_lists_are_parsed(text: str, tasks: tuple[int, ...]) -> None:
    assert parse_task_list(text) == tasks


@pytest.mark.parametrize("text", ["", "0", "21", "1,,2", "4-2", "one", "1-", "-3"])
def test_bad_task_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="task"):
        parse_task_list(text)
