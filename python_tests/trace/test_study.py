"""The study of the angles: its measures against cases with a known answer, its runs, its tables."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from rotcell import RotLSTM
from rotcell.lab.tasks.babi.checkpoint import Checkpoint
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.tensors import vectorize
from rotcell.lab.tasks.babi.train import Place, Trainer, train

STUDY = Path(__file__).resolve().parents[2] / "results" / "angles"
sys.path.insert(0, str(STUDY))

import figures  # noqa: E402
import measure  # noqa: E402
import run  # noqa: E402
import variants  # noqa: E402

SOURCE = Source(questions=60)


@pytest.fixture(scope="module")
def tensors():
    return vectorize(SOURCE.load(1))


@pytest.fixture(scope="module")
def model(tensors):
    settings = RunSettings(
        task=1,
        cell="rotlstm",
        state_size=6,
        embedding=5,
        epochs=1,
        lr=0.01,
        gates="sigmoid",
    )
    trainer = Trainer(tensors, settings, Place())
    trainer.epoch()
    return trainer.model.eval()


def test_the_plain_loop_with_the_papers_rule_is_the_layer():
    layer, x = RotLSTM(3, 5, dtype=torch.float64), torch.randn(7, 2, 3, dtype=torch.float64)
    expected = layer(x)
    variants.use_rule(layer, variants.paper_rule)
    found = layer(x)
    torch.testing.assert_close(found, expected)
    variants.undo(layer)
    assert torch.equal(layer(x)[0], expected[0])


def test_masked_angles_do_not_depend_on_what_is_masked():
    layer, x = RotLSTM(3, 4), torch.randn(5, 2, 3)
    torch.manual_seed(0)
    variants.TRAINING_VARIANTS["x-only"](layer)
    before = layer(x)[0].detach()
    with torch.no_grad():
        layer.weight_hh_l0[16:] += 1
    assert torch.equal(layer(x)[0], before)
    with torch.no_grad():
        layer.weight_ih_l0[16:] += 1
    assert not torch.equal(layer(x)[0], before)
    layer(x)[0].sum().backward()
    assert not layer.weight_hh_l0.grad[16:].any()
    assert layer.weight_hh_l0.grad[:16].any()
    assert layer.weight_ih_l0.grad[16:].any()
    variants.TRAINING_VARIANTS["fixed"](layer)
    layer.zero_grad()
    layer(x)[0].sum().backward()
    assert not layer.weight_ih_l0.grad[16:].any()
    assert layer.bias_ih_l0.grad[16:].any()


def test_a_sign_flip_is_an_lstm_that_negates_its_cell_state():
    layer, x = RotLSTM(3, 4), torch.randn(5, 2, 3)
    plain = nn.LSTMCell(3, 4)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(plain, name).data.copy_(getattr(layer, f"{name}_l0").detach()[:16])
    variants.TRAINING_VARIANTS["sign-flip"](layer)
    h, c = torch.zeros(2, 4), torch.zeros(2, 4)
    expected = []
    for step in x:
        # o tanh(-c) = -o tanh(c)
        h, c = (-value for value in plain(step, (h, c)))
        expected.append(h)
    torch.testing.assert_close(layer(x)[0], torch.stack(expected))


def test_variance_explained():
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(6000) % 300
    decided = (groups * 0.7) % (2 * math.pi)
    noise = torch.rand(6000, generator=generator) * 2 * math.pi
    # Half of the variance: a point that is a group's, or any.
    any_time = torch.rand(6000, generator=generator) < 0.5
    mixed = torch.where(any_time, noise, decided)
    angles = torch.stack([decided, noise, mixed], dim=1)
    by_group = measure.explained(angles, groups)
    assert by_group[0] == pytest.approx(1, abs=1e-9)
    assert by_group[1] == pytest.approx(0, abs=0.02)
    # A group's mean point has half the length, so a quarter of the variance is between groups.
    assert by_group[2] == pytest.approx(0.25, abs=0.03)


def test_the_beat_of_angles():
    generator = torch.Generator().manual_seed(0)
    steps = torch.arange(40)[:, None]
    flips = 6.2 + 0.5 * (-1.0) ** steps.expand(40, 3)  # to both sides of a whole turn
    noise = 3 + torch.randn(40, 3, generator=generator)
    angles = torch.stack([flips % (2 * math.pi), noise], dim=-1)
    real = torch.ones(40, 3, dtype=torch.bool)
    real[:7, 1] = False
    angles[:7, 1] = 1.0  # padding has no part in it
    assert measure.angle_beat(angles, real, 1)[0] == pytest.approx(-1, abs=0.01)
    assert measure.angle_beat(angles, real, 2)[0] == pytest.approx(1, abs=0.01)
    assert abs(measure.angle_beat(angles, real, 1)[1]) < 0.25


def test_watching_leaves_out_padding(model, tensors):
    steps = measure.watch(model, tensors.test)
    assert len(steps.words) == int(tensors.test.story_lengths.sum())
    assert (steps.words != 0).all()
    assert int(steps.positions.max()) == int(tensors.test.story_lengths.max()) - 1
    assert steps.angles.shape == (len(steps.words), 3)


def test_ablations_begin_with_the_model_itself(model, tensors):
    found = measure.ablations(model, tensors.train, tensors.test)
    assert found["plain loop, as trained"] == pytest.approx(found["as trained"], abs=0.02)
    assert model.story_rnn.direction_runner is None
    with torch.no_grad():
        expected = measure.accuracy(model, tensors.test)
    assert found["as trained"] == expected


def test_rotation_off_is_a_layer_whose_angles_are_zero(model, tensors):
    found = measure.ablations(model, tensors.train, tensors.test)["rotation off"]
    weights = {name: w.clone() for name, w in model.state_dict().items()}
    with torch.no_grad():
        for layer in (model.question_rnn, model.story_rnn):
            layer.weight_ih_l0[24:] = 0
            layer.weight_hh_l0[24:] = 0
            layer.bias_ih_l0[24:] = -1e4
    expected = measure.accuracy(model, tensors.test)
    model.load_state_dict(weights)
    assert found == pytest.approx(expected, abs=0.02)


def test_runs_are_resumed_and_not_computed_twice(tmp_path, monkeypatch):
    one = run.Run(task=1, model="rotlstm x-only", seed=0)
    epochs = []
    whole_epoch = Trainer.epoch

    def epoch(trainer):
        if len(epochs) == 1 and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            raise KeyboardInterrupt
        epochs.append(trainer.history.epochs)
        whole_epoch(trainer)

    monkeypatch.setattr(Trainer, "epoch", epoch)
    with pytest.raises(KeyboardInterrupt):
        run.run_one(one, SOURCE.load(1), tmp_path, 2, ())
    run.run_one(one, SOURCE.load(1), tmp_path, 2, ())
    assert epochs == [0, 1]
    found = json.loads((tmp_path / f"{one.name}.json").read_text())
    assert found["data"] == SOURCE.load(1).data.plain()
    assert found["settings"]["seed"] == 0
    assert found["model"] == "rotlstm x-only"


def test_models_of_a_sweep_are_measured_and_not_trained(tmp_path, monkeypatch):
    one = run.Run(task=1, model="lstm", seed=0)
    settings = one.settings(1)
    kept = tmp_path / f"{settings.name}.pt"
    train(SOURCE.load(1), settings, checkpoint=kept)
    monkeypatch.setattr(Trainer, "epoch", None)
    assert run.kept_model(one, one.settings(2), [tmp_path]) is None  # trained otherwise
    assert run.kept_model(run.Run(1, "rotlstm fixed", 0), settings, [tmp_path]) is None
    run.run_one(one, SOURCE.load(1), tmp_path, 1, [tmp_path / "none", tmp_path])
    found = json.loads((tmp_path / f"{one.name}.json").read_text())
    assert found["outcome"] == Checkpoint.load(kept).history.outcome._asdict()
    assert found["norm"]


def test_the_page_in_the_repository_matches_the_runs():
    numbers = figures.Numbers(figures.load())
    if not numbers.tasks:
        pytest.skip("no run is committed")
    text = figures.PAGE.read_text(encoding="utf-8")
    assert figures.with_tables(text, numbers) == text
    for name in figures.FIGURE_MAKERS:
        assert (figures.FIGURES / f"{name}.png").exists()


def test_figures_can_be_drawn_of_few_runs(tmp_path, model, tensors, monkeypatch):
    settings = RunSettings(task=1, cell="rotlstm", state_size=6, epochs=1)
    made = {
        "model": "rotlstm",
        "settings": settings.plain(),
        "gates": "sigmoid",
        "data": {"train": {"name": "x"}},
        "outcome": {"epoch": 1, "validation": 0.5, "test": 0.4},
        **measure.measure(model, model, tensors.train, tensors.test),
    }
    monkeypatch.setattr(figures, "RUNS", tmp_path / "results" / "runs.jsonl")
    (tmp_path / "a.json").write_text(json.dumps(made))
    figures.collect(tmp_path)
    numbers = figures.Numbers(figures.load())
    assert numbers.tasks == [1]
    for make in figures.FIGURE_MAKERS.values():
        figure = make(numbers)
        figures.plt.close(figure)
    assert "40.0 (one seed)" in figures.training_table(numbers)
    (tmp_path / "b.json").write_text(
        json.dumps(
            made | {"data": {"train": {"name": "y"}}, "settings": settings.plain() | {"seed": 1}}
        )
    )
    figures.collect(tmp_path)
    with pytest.raises(SystemExit, match="different data"):
        figures.load()
