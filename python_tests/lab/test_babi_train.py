"""Training: the protocol, reproducible bits, and resuming after a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_helpers import command, questions, small, wait_until

from rotcell.lab.errors import CheckpointError, SettingsError, TrainingError
from rotcell.lab.tasks.babi import build_model, evaluate
from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.checkpoint import Checkpoint
from rotcell.lab.tasks.babi.data.generate import write_dataset
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.history import History
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.tensors import vectorize
from rotcell.lab.tasks.babi.train import Place, Trainer, train
from rotcell.lab.training.processes import ProcessGroup, own_device


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def same_bits(one: Any, other: Any) -> bool:
    """Whether two checkpoints, or parts of them, are equal to the bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.dtype == other.dtype
    if isinstance(one, dict):
        return list(one) == list(other) and all(same_bits(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_bits, one, other))
    return bool(one == other)


def same_checkpoints(one: Path, other: Path) -> bool:
    return same_bits(vars(Checkpoint.load(one)), vars(Checkpoint.load(other)))


class Stopped(Exception):
    pass


def stop_after(epoch: int) -> Any:
    def on_epoch(history: History) -> None:
        if history.epochs == epoch:
            raise Stopped

    return on_epoch


def test_paper_is_the_default() -> None:
    settings = RunSettings(18, "rotlstm")
    assert (settings.epochs, settings.batch, settings.lr) == (40, 32, 1e-3)
    assert (settings.state_size, settings.embedding, settings.dropout) == (50, 50, 0.3)
    assert settings.test_epochs == (1, 11, 21, 31, 40)
    assert (settings.gates, settings.angle) == ("hard_sigmoid", "sigmoid")
    adam = Trainer(
        vectorize(questions()), replace(settings, gates="sigmoid"), Place()
    ).optimizer.defaults
    assert (adam["betas"], adam["eps"], adam["weight_decay"]) == ((0.9, 0.999), 1e-8, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"task": 21},
        {"cell": "rnn"},
        {"epochs": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"dropout": 1.0},
        {"seed": -1},
        {"state_size": "50"},
        {"batch": True},
        {"packed": 1},
        {"gates": "soft"},
        {"angle": "hard_sigmoid"},
        {"gates": "hard_sigmoid", "cell": "lstm-torch"},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        RunSettings(**{"task": 1, "cell": "lstm", **wrong})
    with pytest.raises(SettingsError, match="not the settings"):
        RunSettings.from_plain({"task": 1, "cell": "lstm", "layers": 3})


def test_outcome_is_the_earliest_of_the_best_validated_epochs() -> None:
    history = History()
    for validation, test in ((0.5, 0.1), (0.9, None), (0.7, 0.2), (0.7, 0.9), (0.6, 0.8)):
        history.add(1.0, 0.0, validation, test)
    assert history.outcome == (3, 0.7, 0.2)  # epoch 2 was not tested
    assert History.from_plain(history.plain()) == history


@pytest.mark.parametrize("cell", list(CELLS))
@pytest.mark.parametrize("packed", [False, True])
def test_same_seed_same_bits(cell: str, packed: bool, tmp_path: Path) -> None:
    settings = small(cell=cell, packed=packed)
    files = [tmp_path / "one.pt", tmp_path / "two.pt"]
    for file in files:
        torch.rand(3)  # the caller's random numbers do not matter
        train(questions(), settings, checkpoint=file)
    assert same_checkpoints(*files)
    other = train(questions(), small(cell=cell, packed=packed, seed=1))
    assert other.history.loss != Checkpoint.load(files[0]).history.loss


def test_the_model_is_that_of_the_reported_epoch(tmp_path: Path) -> None:
    asked = questions(4)
    settings = small(4, epochs=12, lr=0.02, batch=8)
    trained = train(asked, settings, checkpoint=tmp_path / "c.pt")
    saved = Checkpoint.load(tmp_path / "c.pt")
    outcome = trained.history.outcome
    assert same_bits(dict(trained.model.state_dict()), saved.best)
    tensors = vectorize(asked)
    with torch.no_grad():
        given = trained.model(tensors.test).argmax(dim=-1)
    assert float((given == tensors.test.answer).float().mean()) == pytest.approx(outcome.test)
    assert evaluate(trained, asked.test).accuracy == outcome.test
    assert evaluate(tmp_path / "c.pt", asked.test).accuracy == outcome.test
    assert evaluate(trained, asked.test, "last").accuracy == trained.history.test[12]
    assert outcome.epoch == 12 or not same_bits(saved.best, saved.model)


def test_build_model_is_what_a_run_begins_with() -> None:
    settings = small(4)
    trainer = Trainer(vectorize(questions(4)), settings, Place())
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    model = build_model(questions(4), settings)
    assert torch.equal(torch.rand(1), expected)
    assert same_bits(dict(model.state_dict()), dict(trainer.model.state_dict()))


def test_leaves_the_random_numbers_of_the_caller_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    train(questions(), small(epochs=1))
    assert torch.equal(torch.rand(4), expected)


def test_every_epoch_sees_every_question_once_in_a_new_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = Trainer(vectorize(questions()), small(batch=16), Place())
    seen: list[list[list[int]]] = [[], []]
    epoch = 0

    def step(batch: Any) -> torch.Tensor:
        seen[epoch].extend(batch.story.tolist())
        return torch.zeros(())

    monkeypatch.setattr(trainer, "step", step)
    for epoch in range(2):  # noqa: B007 step reads it
        trainer.epoch()
    everything = sorted(trainer.tensors.train.story.tolist())
    assert sorted(seen[0]) == sorted(seen[1]) == everything
    assert seen[0] != seen[1]


def test_learns_what_can_be_learned_by_heart() -> None:
    settings = small(4, state_size=20, epochs=42, lr=0.01, batch=8, dropout=0.0)
    trained = train(questions(4), settings)
    # Where exactly it ends depends on rounding; chance is an accuracy of about a sixth.
    assert trained.history.loss[-1] < 0.3 * trained.history.loss[0]
    assert trained.history.train[-1] > 0.7
    assert set(trained.history.test) == {1, 11, 21, 31, 41, 42}


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("cell", ["lstm-torch", "rotlstm"])
def test_resumed_ends_with_the_same_bits(epoch: int, cell: str, tmp_path: Path) -> None:
    settings = small(cell=cell)
    whole, halved = tmp_path / "whole.pt", tmp_path / "halved.pt"
    train(questions(), settings, checkpoint=whole)
    with pytest.raises(Stopped):
        train(questions(), settings, checkpoint=halved, on_epoch=stop_after(epoch))
    assert Checkpoint.load(halved).history.epochs == epoch
    train(questions(), settings, checkpoint=halved, resume=True)
    assert same_checkpoints(whole, halved)
    again = train(questions(), settings, checkpoint=halved, resume=True)  # nothing left to do
    assert again.history.epochs == settings.epochs


def test_compiled_run_is_the_same_within_rounding_and_resumes(tmp_path: Path) -> None:
    # Without dropout, whose masks differ when compiled, and with batches of one size, because each
    # new size recompiles.
    settings = small(4, epochs=2, dropout=0.0, batch=19)
    plain, whole, halved = (tmp_path / name for name in ("plain.pt", "whole.pt", "halved.pt"))
    place = Place(compile=True)

    def keep_the_first_epoch(history: History) -> None:
        if history.epochs == 1:
            shutil.copy(whole, halved)

    train(questions(4), settings, checkpoint=plain)
    torch._dynamo.utils.counters.clear()
    train(questions(4), settings, checkpoint=whole, place=place, on_epoch=keep_the_first_epoch)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    expected, found = Checkpoint.load(plain), Checkpoint.load(whole)
    assert found.history.loss == pytest.approx(expected.history.loss, rel=1e-5)
    for name, weight in expected.model.items():
        # Adam moves a weight by at most about lr per step, even if its gradient is rounding alone.
        assert torch.allclose(found.model[name], weight, atol=0.1 * settings.lr), name

    train(questions(4), settings, checkpoint=halved, place=place, resume=True)
    assert same_checkpoints(whole, halved)


def test_checkpoint_loads_with_weights_only(tmp_path: Path) -> None:
    train(questions(), small(epochs=1), checkpoint=tmp_path / "c.pt")
    content = torch.load(tmp_path / "c.pt", weights_only=True)
    assert content["settings"]["cell"] == "rotlstm"
    assert [file.name for file in tmp_path.iterdir()] == ["c.pt"]


def test_damaged_checkpoints_are_reported(tmp_path: Path) -> None:
    good = tmp_path / "good.pt"
    train(questions(), small(epochs=1), checkpoint=good)
    content = good.read_bytes()
    flipped = bytearray(content)
    place = content.index(b"bathroom")
    flipped[place] ^= 1
    torch.save({"weights": torch.ones(3)}, tmp_path / "other.pt")
    for name, damaged in {
        "empty": b"",
        "cut": content[: len(content) // 2],
        "text": b"not a checkpoint\n" * 9,
        "flipped": bytes(flipped),
        "other": (tmp_path / "other.pt").read_bytes(),
    }.items():
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(CheckpointError, match=name):
            Checkpoint.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Checkpoint.load(tmp_path / "gone")


def test_resuming_another_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.pt"
    train(questions(), small(epochs=1), checkpoint=file)
    with pytest.raises(CheckpointError, match=r"epochs 1 and not 3, lr 0\.001 and not 0\.1"):
        train(questions(), small(lr=0.1), checkpoint=file, resume=True)
    other = Source(questions=40, seed=5).load(1)
    with pytest.raises(CheckpointError, match="other data"):
        train(other, small(epochs=1), checkpoint=file, resume=True)
    content = torch.load(file, weights_only=True)
    del content["model"]["dense.bias"]
    torch.save(content, file)
    with pytest.raises(CheckpointError, match="do not fit"):
        train(questions(), small(epochs=1), checkpoint=file, resume=True)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        train(questions(), small(), resume=True)


def test_a_loss_that_explodes_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "_train", lambda self, number: float("nan"))
    with pytest.raises(TrainingError, match="loss is nan in epoch 1"):
        train(questions(), small())


@pytest.fixture
def files(tmp_path: Path) -> str:
    write_dataset(tmp_path / "data", tasks=(1,), questions=60)
    return str(tmp_path / "data")


TRAIN = ("train", "babi", "--task", "1", "--cell", "rotlstm")
OPTIONS = (*TRAIN, "--state-size", "8", "--gates", "sigmoid")


def test_killed_and_resumed_ends_with_the_same_bits(files: str, tmp_path: Path) -> None:
    settings = RunSettings(1, "rotlstm", 8, epochs=12, gates="sigmoid")
    train(Source.at(files).load(1), settings, checkpoint=tmp_path / "whole.pt")

    killed = tmp_path / "killed.pt"
    options = (*OPTIONS, "--epochs", "12", "--data", files, "--checkpoint", str(killed))
    with command(*options) as process:
        wait_until(killed.exists)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert 1 <= Checkpoint.load(killed).history.epochs < 12
    with command(*options, "--resume") as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert "test accuracy" in out
    assert "epoch  12" in err
    assert same_checkpoints(tmp_path / "whole.pt", killed)


def test_autocast_to_bfloat16_trains(files: str, tmp_path: Path) -> None:
    exact = train(
        Source.at(files).load(1), RunSettings(1, "rotlstm", 8, epochs=2, gates="sigmoid")
    ).history
    saved = tmp_path / "c.pt"
    options = ("--epochs", "2", "--data", files, "--checkpoint", str(saved), "--amp")
    # Some virtual machines promise matrix instructions (AMX) that then turn out to be illegal.
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    with command(*OPTIONS, *options, env=environment) as process:
        _, err = process.communicate()
    assert process.returncode == 0, err
    rounded = Checkpoint.load(saved).history
    assert rounded.loss != exact.loss
    assert rounded.loss == pytest.approx(exact.loss, rel=0.02)


def test_each_process_has_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert own_device(torch.device("cuda")) == torch.device("cuda:1")
    assert own_device(torch.device("cuda:0")) == torch.device("cuda:0")
    assert own_device(torch.device("cpu")) == torch.device("cpu")


def test_more_processes_than_rows_are_refused() -> None:
    with pytest.raises(SettingsError, match="4 processes for a batch of 3"):
        Trainer(vectorize(questions()), small(batch=7), Place(group=ProcessGroup(0, 4)))


def test_two_processes_have_the_loss_curve_of_one(files: str, tmp_path: Path) -> None:
    settings = RunSettings(1, "rotlstm", 8, epochs=3, gates="sigmoid")
    alone = train(Source.at(files).load(1), settings).history
    together = tmp_path / "together.pt"
    options = [*OPTIONS, "--epochs", "3", "--data", files, "--checkpoint", str(together)]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, "-m", "rotcell.lab", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1  # one of them speaks
    found = Checkpoint.load(together).history
    assert found.loss == pytest.approx(alone.loss, rel=1e-5)
    assert found.train == alone.train
    assert found.test == alone.test
