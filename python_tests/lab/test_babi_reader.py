"""Finding task files in folders and archives, and turning stories into questions."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from rotcell.lab.errors import DataError
from rotcell.lab.tasks.babi.data.reader import (
    Question,
    open_data,
    questions_of,
    read_stories,
    tokenize,
)
from rotcell.lab.tasks.babi.data.stories import MalformedLineError

SMALL = b"1 Mary moved to the office.\n2 Where is Mary? \toffice\t1\n"
LARGE = SMALL * 3
NAME = "qa1_single-supporting-fact_train.txt"


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def test_tokens_are_words_and_punctuation_with_case() -> None:
    assert tokenize("Is the box, of chocolates?") == (
        "Is",
        "the",
        "box",
        ",",
        "of",
        "chocolates",
        "?",
    )


def test_each_question_sees_the_statements_before_it_only(tmp_path: Path) -> None:
    data = (
        b"1 Mary got the milk.\n2 What is Mary carrying? \tmilk\t1\n3 Mary got the apple.\n"
        b"4 What is Mary carrying? \tmilk,apple\t1 3\n"
    )
    folder(tmp_path, {"qa8_lists-sets_test.txt": data})
    first, second = questions_of(read_stories(tmp_path, 8, "test"))
    milk, apple = ("Mary", "got", "the", "milk", "."), ("Mary", "got", "the", "apple", ".")
    asked = ("What", "is", "Mary", "carrying", "?")
    assert first == Question((milk,), asked, "milk", (0,))
    assert second == Question((milk, apple), asked, "milk,apple", (0, 1))
    assert second.story_tokens == milk + apple


ROOT = "tasks_1-20_v1-2/"


@pytest.mark.parametrize("make", [folder, archive])
@pytest.mark.parametrize("root", ["", ROOT])
def test_size_chooses_the_subfolder(make: object, root: str, tmp_path: Path) -> None:
    assert callable(make)
    files = {f"{root}en/{NAME}": SMALL, f"{root}en-10k/{NAME}": LARGE, f"{root}README.txt": b"-"}
    path = make(tmp_path / "data.tar.gz", files)
    assert len(read_stories(path, 1, "train")) == 1
    assert len(read_stories(path, 1, "train", size="10k")) == 3


@pytest.mark.parametrize("make", [folder, archive])
def test_flat_data_is_read_as_it_is(make: object, tmp_path: Path) -> None:
    assert callable(make)
    path = make(tmp_path / "data.tgz", {NAME: SMALL, "notes.txt": b"-"})
    assert open_data(path).available == [(1, "train")]
    assert len(questions_of(read_stories(path, 1, "train", size="10k"))) == 1


def test_error_in_an_archive_names_archive_file_and_line(tmp_path: Path) -> None:
    path = archive(tmp_path / "data.tar.gz", {f"en/{NAME}": SMALL + b"5 x\n"})
    with pytest.raises(MalformedLineError, match=rf"data.tar.gz/en/{NAME}:3: id 5"):
        read_stories(path, 1, "train")


def test_missing_things_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_bytes(b"-")
    folder(tmp_path / "good", {NAME: SMALL})
    cases = {
        "gone": "does not exist",
        "empty": "no bAbI task files",
        "file.txt": "neither a folder nor",
    }
    for name, message in cases.items():
        with pytest.raises(DataError, match=message):
            read_stories(tmp_path / name, 1, "train")
    with pytest.raises(DataError, match="no test file of task 1"):
        read_stories(tmp_path / "good", 1, "test")
    with pytest.raises(DataError, match="no train file of task 7"):
        read_stories(tmp_path / "good", 7, "train")
    with pytest.raises(ValueError, match="no bAbI task 21"):
        read_stories(tmp_path / "good", 21, "train")
    with pytest.raises(ValueError, match="size"):
        open_data(tmp_path / "good", size="5k")  # type: ignore[arg-type]
    empty_archive = archive(tmp_path / "empty.tar.gz", {"en/README.txt": b"-"})
    with pytest.raises(DataError, match="no bAbI task files in en/"):
        open_data(empty_archive)


def test_two_files_for_one_task_are_refused(tmp_path: Path) -> None:
    folder(tmp_path, {NAME: SMALL, "qa1_other_train.txt": SMALL})
    with pytest.raises(DataError, match="two files for one"):
        open_data(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "noise"])
def test_damaged_archive_is_named(damage: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "data.tar.gz", {f"en/{NAME}": SMALL * 500})
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if damage == "cut" else b"not an archive" * 50)
    with pytest.raises(DataError, match=r"data.tar.gz is damaged"):
        read_stories(path, 1, "train")


def test_the_official_files_have_the_published_sizes(real_babi: Path) -> None:
    counts = {2: (94.1, 343, 552), 19: (40.0, 40, 40), 20: (29.8, 69, 68)}
    for task, (mean, longest_train, longest_test) in counts.items():
        train = [len(q.story_tokens) for q in questions_of(read_stories(real_babi, task, "train"))]
        test = [len(q.story_tokens) for q in questions_of(read_stories(real_babi, task, "test"))]
        assert (len(train), max(train), max(test)) == (1000, longest_train, longest_test)
        assert sum(train + test) / 2000 == pytest.approx(mean, abs=1.5)
