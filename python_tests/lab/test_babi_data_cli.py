"""The command line of the data."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rotcell.lab import cli
from rotcell.lab.tasks.babi.data.catalog import file_name
from rotcell.lab.tasks.babi.data.generate import write_dataset


def run(*arguments: str) -> int:
    return cli.main(["data", *arguments])


def test_generate_check_and_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "made")
    assert run("--generate", target, "--tasks", "1,18-19", "--questions", "15", "--seed", "4") == 0
    assert "6 files written" in capsys.readouterr().out
    assert run("--check", target) == 0
    assert capsys.readouterr().out.count(": 15 questions, 0 contradictions, 0 remarks\n") == 6
    assert run("--check", target, "--tasks", "18") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run("--compare", target, "--questions", "15", "--tasks", "1") == 0
    assert "| 1 single-supporting-fact |" in capsys.readouterr().out


def test_generating_again_gives_the_same_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run("--generate", str(tmp_path / name), "--tasks", "5", "--questions", "20", "--seed", "9")
    name = file_name(5, "test")
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_check_fails_on_a_wrong_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path, _) = write_dataset(tmp_path, tasks=(17,), questions=20)
    path.write_text(path.read_text().replace("\tyes\t", "\tno\t"))
    assert run("--check", str(tmp_path)) == 1
    out = capsys.readouterr().out
    assert "answer: 'no' should be 'yes'" in out
    assert " more\n" in out


def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--check", str(tmp_path / "gone")) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'gone'} does not exist\n"
    write_dataset(tmp_path, tasks=(1,), questions=1)
    assert run("--check", str(tmp_path), "--tasks", "2") == 1
    assert "no files of these tasks" in capsys.readouterr().err
    assert run("--compare", str(tmp_path), "--tasks", "2") == 1
    assert "no train file of task 2" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert run("--generate", str(tmp_path / "file")) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--generate", "x", "--check", "y"],
        ["--check", "x", "--tasks", "21"],
        ["--generate", "x", "--questions", "0"],
        ["--check", "x", "--size", "5k"],
    ],
)
def test_bad_usage_exits_with_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2


def test_download_names_the_folder(
    real_babi: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cache = tmp_path / "rotcell" / "babi"
    shutil.copytree(real_babi / "en", cache / "en")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run("--download") == 0  # there already: no network needed
    out, err = capsys.readouterr()
    assert out == f"{cache}\n"
    assert "use them with --data official" in err
    assert run("--download", str(cache)) == 0
    assert f"use them with --data {cache}" in capsys.readouterr().err


def test_download_into_a_folder_of_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dataset(tmp_path, tasks=(1,), questions=1)
    assert run("--download", str(tmp_path)) == 1
    assert "other bAbI files than the official ones; not touching it" in capsys.readouterr().err
