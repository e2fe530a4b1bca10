"""Every program in examples/ runs, is short, and prints what it learned."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: What a short run must print, from each program.
PRINTS = {
    "forecasting.py": "quantile loss of the model",
    "language_model.py": "bits per character on held-out text",
    "probe.py": "cell state",
    "recurrent_ppo.py": "mean return",
    "streaming.py": "int8: ",
    "text_classification.py": "rotcell.RotLSTM",
}


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--quick", *arguments])
    with torch.random.fork_rng():
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_all_are_listed() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PRINTS)


@pytest.mark.parametrize("name", PRINTS)
def test_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(name, monkeypatch)
    assert PRINTS[name] in capsys.readouterr().out


@pytest.mark.parametrize("name", PRINTS)
def test_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) < 120


def test_programs_take_files_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, table = tmp_path / "text.txt", tmp_path / "table.tsv"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    table.write_text("\n".join(f"{'ab'[k % 2]}\tword {['this', 'that'][k % 2]}" for k in range(60)))
    run("language_model.py", monkeypatch, "--text", str(text))
    run("text_classification.py", monkeypatch, "--tsv", str(table))
    printed = capsys.readouterr().out
    assert "8100 characters to train on, 28 different ones" in printed
    assert "48 texts to train on, 12 to test on, 2 classes" in printed


def test_gymnasium(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium")
    run("recurrent_ppo.py", monkeypatch, "--gym")
    assert "mean return" in capsys.readouterr().out
