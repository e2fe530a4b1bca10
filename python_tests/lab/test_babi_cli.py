"""rotcell-lab."""

from __future__ import annotations

import csv
import dataclasses
import io
import shutil
from pathlib import Path

import pytest
import torch
from training_helpers import in_this_process, questions, save_made_up, small

from rotcell.lab import cli
from rotcell.lab.cli import demo
from rotcell.lab.tasks.babi import load_task
from rotcell.lab.tasks.babi.checkpoint import Checkpoint
from rotcell.lab.tasks.babi.data.generate import write_dataset
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.evaluate import Answerer
from rotcell.lab.tasks.babi.experiments import EXPERIMENTS, make_plan
from rotcell.lab.tasks.babi.sweep.collect import collect
from rotcell.lab.tasks.babi.sweep.runner import Folder
from rotcell.lab.tasks.babi.train import train
from rotcell.lab.training.loop import Budget

SOFT = ["--cells", "lstm-torch,rotlstm", "--gates", "sigmoid"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ask") / "c.pt"
    train(questions(4), small(4, epochs=30, lr=0.02, state_size=10, batch=8), checkpoint=path)
    return path


def ask(checkpoint: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return cli.main(["ask", str(checkpoint)])


TRAIN = ["train", "babi", "--task", "4", "--state-size", "4", "--gates", "sigmoid"]


@pytest.mark.parametrize(
    "name", ["", "data", "train babi", "evaluate", "ask", "sweep lstm", "collect", "report", "demo"]
)
def test_help_names_commands_and_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([*name.split(), "--help"])
    out = capsys.readouterr().out
    assert out.startswith(f"usage: rotcell-lab {name}".rstrip())
    wanted = {
        "": "demo data train evaluate ask sweep collect report",
        "train babi": "--epochs --lr --device --amp --compile --packed --checkpoint --resume "
        "--cell --gates --angle --log",
        "sweep lstm": "--tasks --seeds --cells --gates --workers --out --dry-run --engine",
        "demo": "--epochs --out",
    }
    for word in wanted.get(name, "").split():
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "babi", "--task", "21"], "there is no bAbI task 21"),
        (["train", "babi", "--data", "/nowhere"], "/nowhere does not exist"),
        (["train", "babi", "--resume"], "--resume needs --checkpoint"),
        (["train", "babi", "--lr", "-1"], "lr is -1.0"),
        (["ask", "/nowhere.pt"], "/nowhere.pt"),
        (["report", "/nowhere"], "holds no sweep"),
        (["sweep", "lstm", "--sizes", "6"], "--sizes is for state-size"),
        (["sweep", "lstm", "--address", "auto"], "--address is for --engine ray"),
        (["train", "babi", "--size", "10k"], "--size is for official files"),
        (["data", "--generate", "d", "--size", "10k"], "--size has no meaning for --generate"),
        (["data", "--download", "d", "--tasks", "1"], "--tasks has no meaning for --download"),
        (["data", "--check", "d", "--seed", "0"], "--seed has no meaning for --check"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["train", "babi", "--epochs", "0"],
        ["train", "babi", "--device", "abacus"],
        ["train", "babi", "--device", "meta"],
        ["sweep", "table3"],
        ["sweep"],
    ],
)
def test_bad_usage_exits_with_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)


def test_train_prints_its_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.pt"
    options = [*TRAIN, "--epochs", "2"]
    assert cli.main([*options, "--checkpoint", str(file)]) == 0
    out, err = capsys.readouterr()
    assert "epoch   2  loss" in err
    assert f"checkpoint: {file} (weights of epoch" in out
    assert Checkpoint.load(file).history.epochs == 2
    assert cli.main([*options, "--checkpoint", str(file)]) == 1
    assert "exists; add --resume" in capsys.readouterr().err


def test_train_keeps_a_log(tmp_path: Path) -> None:
    log = tmp_path / "new" / "log.csv"
    options = [*TRAIN, "--epochs", "2"]
    assert cli.main([*options, "--log", str(log), "--checkpoint", str(tmp_path / "c.pt")]) == 0
    rows = list(csv.DictReader(log.open()))
    history = Checkpoint.load(tmp_path / "c.pt").history
    assert [int(row["epoch"]) for row in rows] == [1, 2]
    assert [float(row["loss"]) for row in rows] == history.loss
    assert float(rows[1]["test"]) == history.test[2]


def test_missing_official_data_names_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = [*TRAIN, "--epochs", "1"]
    assert cli.main([*options, "--data", "official"]) == 1
    assert "data --download fetches them" in capsys.readouterr().err


def test_downloaded_data_is_used_and_pointed_at(
    real_babi: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shutil.copytree(real_babi / "en", tmp_path / "rotcell" / "babi" / "en")
    options = [*TRAIN, "--epochs", "1"]
    assert cli.main([*options, "--data", "official"]) == 0
    assert "data: official 1k\n" in capsys.readouterr().err
    assert cli.main(options) == 0
    err = capsys.readouterr().err
    assert "seed 0) (the official files are downloaded: use --data official)" in err
    assert str(load_task(4, "official").data) == "official 1k"


def test_interrupted_training_prints_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rotcell.lab.cli.train._show_progress", interrupt)
    options = ["--task", "4", "--state-size", "4", "--epochs", "2", "--gates", "sigmoid"]
    assert cli.main(["train", "babi", *options, "--checkpoint", str(tmp_path / "c.pt")]) == 130
    assert "--resume" in capsys.readouterr().err


def test_typed_questions_are_answered(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    story = "The office is north of the kitchen.\nThe garden is south of the kitchen.\n"
    question = "What is north of the kitchen?\n"
    text = f"{question}{story}{question}\nThe zebra is north of the moon.\nWho is Zoe?\n"
    assert ask(checkpoint, text, monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  enter a statement first"
    assert "%; then " in lines[1]
    assert lines[2] == "  (a new story)"
    assert lines[3] == "  I do not know, and leave out: zebra, moon"
    assert lines[4] == "  I do not know, and leave out: Who, Zoe"


def test_answers_are_those_of_the_model_in_training(checkpoint: Path) -> None:
    answerer = Answerer.load(checkpoint, "last")
    asked = questions(4).test
    right = sum(
        answerer.answers(q.story_tokens, q.question)[0][0] == q.answer for q in asked
    ) / len(asked)
    assert right == Checkpoint.load(checkpoint).history.test[30]
    best = answerer.answers(asked[0].story_tokens, asked[0].question)
    assert [chance for _, chance in best] == sorted((c for _, c in best), reverse=True)
    assert 0 < sum(chance for _, chance in best) <= 1


def test_evaluate_prints_the_accuracy_of_the_record(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dataset(tmp_path / "data", tasks=(4,), questions=40)  # what the model learned from
    history = Checkpoint.load(checkpoint).history
    answers = tmp_path / "new" / "answers.csv"
    options = ["evaluate", str(checkpoint), "--data", str(tmp_path / "data")]
    assert cli.main([*options, "--answers", str(answers)]) == 0
    out, err = capsys.readouterr()
    assert "data: unverified files (40 questions), test questions of task 4" in err
    assert "the model was trained on other data: generated (40 questions, seed 0)" in err
    assert f"accuracy {history.outcome.test:.1%}" in out
    assert f"with the weights of epoch {history.outcome.epoch}\n" in out
    rows = list(csv.DictReader(answers.open()))
    assert len(rows) == 40
    assert sum(int(row["right"]) for row in rows) == round(40 * history.outcome.test)
    assert all((row["given"] == row["expected"]) == (row["right"] == "1") for row in rows)
    assert cli.main([*options, "--weights", "last"]) == 0
    out = capsys.readouterr().out
    assert f"accuracy {history.test[30]:.1%} " in out
    assert "weights of epoch 30" in out


def test_evaluate_on_words_that_the_model_does_not_know(checkpoint: Path) -> None:
    found = Answerer.load(checkpoint).evaluate(questions(1).test)
    assert "Mary" in found.unknown
    assert 0 <= found.accuracy <= 1


def test_ask_a_damaged_checkpoint(
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damaged = tmp_path / "damaged.pt"
    damaged.write_bytes(checkpoint.read_bytes()[:-100])
    assert ask(damaged, "", monkeypatch) == 1
    assert "damaged.pt is not a checkpoint, or is damaged" in capsys.readouterr().err
    content = torch.load(checkpoint, weights_only=True)
    content["settings"]["state_size"] = 12
    torch.save(content, damaged)
    assert ask(damaged, "", monkeypatch) == 1
    assert "do not fit" in capsys.readouterr().err


def test_dry_run_lists_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    options = ["--tasks", "4", "--seeds", "2", "--epochs", "2", "--workers", "2", *SOFT]
    assert cli.main(["sweep", "lstm", *options, "--out", str(out), "--dry-run"]) == 0
    printed, err = capsys.readouterr()
    assert "data: generated (1000 questions, seed 0)" in err
    assert printed.splitlines()[0] == "task4-lstm-torch-size50-seed0-sigmoid"
    assert "4 of 4 runs to do (2 lstm-torch, 2 rotlstm)" in printed
    assert "with 2 workers" in printed
    assert not out.exists()


def test_dry_run_leaves_out_collected_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Source(questions=1000)
    plan = make_plan(EXPERIMENTS["lstm"], tasks=(4,), seeds=1, epochs=2)
    Folder(tmp_path).adopt(plan)
    save_made_up(Folder(tmp_path), plan.runs[0], 0.5, data=source.load(4).data)
    lines = tmp_path / "lstm.jsonl"
    collect(tmp_path, lines)
    out = tmp_path / "out"
    options = ["--tasks", "4", "--epochs", "2", "--out", str(out), "--have", str(lines)]
    assert cli.main(["sweep", "lstm", *options, "--seeds", "1", "--dry-run"]) == 0
    assert "1 of 2 runs to do (1 rotlstm)" in capsys.readouterr().out
    assert (
        cli.main(["sweep", "lstm", *options, "--cells", "lstm", "--seeds", "1", "--dry-run"]) == 0
    )
    assert capsys.readouterr().out == "0 of 1 runs to do: all are there.\n"
    assert not out.exists()
    lines.write_text(lines.read_text().replace(source.load(4).data.train.digest, "0" * 16))
    assert cli.main(["sweep", "lstm", *options, "--seeds", "1", "--dry-run"]) == 1
    assert "task4-lstm-size50-seed0 was collected on other data" in capsys.readouterr().err


def test_a_size_named_twice_is_run_once(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--sizes", "6,4,6", "--tasks", "4", "--seeds", "1", "--epochs", "1", "--dry-run"]
    assert cli.main(["sweep", "state-size", *options, *SOFT]) == 0
    names = [line for line in capsys.readouterr().out.splitlines() if line.startswith("task")]
    cells = ("lstm-torch", "rotlstm")
    assert names == [f"task4-{cell}-size{n}-seed0-sigmoid" for n in (4, 6) for cell in cells]


def test_report_prints_the_table_and_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(EXPERIMENTS["lstm"], tasks=(18,), seeds=1)
    Folder(tmp_path).adopt(plan)
    for run in plan.runs:
        save_made_up(Folder(tmp_path), run, 0.5)
    assert cli.main(["report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "| 18 size-reasoning | **50.0** |" in out
    assert str(tmp_path / "report" / "index.html") in out


@pytest.mark.parametrize("plot", [True, False])
def test_the_demo_trains_and_prints_its_tables(
    plot: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo, "local_engine", lambda workers, models: in_this_process)
    small = dataclasses.replace(
        demo.groups.TASK, epoch_steps=2, budget=Budget(2, "linear", target=0.001)
    )
    monkeypatch.setattr(demo.groups, "TASK", small)
    if not plot:
        monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    options = ["--epochs", "1", "--questions", "40", "--out", str(tmp_path)]
    assert cli.main(["demo", *options]) == 0
    out, err = capsys.readouterr()
    assert "weights     steps     T 128     T 512" in out
    assert f"LSTM{525:32}{'-':>10}" in out
    assert f"RotLSTM{585:29}{'-':>10}" in out
    assert (tmp_path / "turns.png").exists() == plot
    assert "4/4 task18-rotlstm" in err
    assert "2/2 task18-lstm-size50-seed0-packed" in err
    assert " 1 single-supporting-fact " in out
    assert "18 size-reasoning " in out
    assert "LSTM       RotLSTM  LSTM, packed" in out
    row = next(line for line in out.splitlines() if line.startswith("18 size-reasoning "))
    assert row.count("%") == 3
    assert "the gain of rotation there is one\nagainst padding" in out
    assert "No page of a story" in out  # this engine keeps no models
    picture = tmp_path / "1-epochs-40-questions" / "convergence.png"
    assert picture.exists() == plot
    assert (str(picture) if plot else "No plot: figures need matplotlib") in out
    assert cli.main(["demo", *options, "--epochs", "2"]) == 0  # other runs, not in the way
