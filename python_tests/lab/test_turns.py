"""How far pairs turn per element: against angles that are set by hand."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from rotcell.lab import cli
from rotcell.lab.tasks import groups
from rotcell.lab.training.loop import Budget
from rotcell.lab.training.settings import LabSettings
from rotcell.lab.training.tagging import Tagger
from rotcell.lab.turns import Turns, draw_turns, turns_by_element


def tagger(angles: list[float]) -> Tagger:
    """A RotLSTM of two units whose angle is that of the element it reads, whatever h is."""
    order = len(angles)
    settings = LabSettings("groups", "mod5", "rotlstm", 2, 0.01, seed=0, start="pi")
    model = Tagger(settings, order, order)
    logits = torch.logit(torch.tensor(angles))
    with torch.no_grad():
        for name, weight in model.rnn.named_parameters():
            weight[-1] = logits if name == "weight_ih_l0" else 0
    return model


def test_the_angle_of_every_element_is_found() -> None:
    angles = [0.1, 0.3, 0.5, 0.7, 0.9]
    found = turns_by_element(tagger(angles), "mod5", length=8, rows=16)
    torch.testing.assert_close(found.mean[:, 0], torch.tensor(angles).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.steadiness, torch.ones(5, 1).double(), atol=1e-6, rtol=0)
    assert found.multiple(0) == (1, pytest.approx(0.1, abs=1e-6))


@pytest.mark.parametrize("m", [1, 2, 3, 4])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_multiples_of_a_fifth_are_recognized(m: int, noise: float) -> None:
    wobble = noise * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    mean = ((torch.arange(5) * m / 5 + 0.98 + wobble) % 1).double()[:, None]
    found = Turns(mean, torch.ones(5, 1)).multiple(0)
    assert found is not None
    assert found[0] == m
    assert abs(math.remainder(found[1] - 0.98, 1)) < 0.01


def test_other_angles_are_no_multiple() -> None:
    mean = torch.tensor([[0.0], [0.2], [0.4], [0.6], [0.6]]).double()
    turns = Turns(mean, torch.ones(5, 1))
    assert turns.multiple(0) is None
    assert draw_turns(turns, "made up").startswith(b"\x89PNG")


def test_train_draws_what_a_rotating_layer_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = Budget(1, "linear")
    small = dataclasses.replace(groups.TASK, epoch_steps=2, test_rows=8, budget=budget)
    monkeypatch.setattr(groups, "TASK", small)
    picture = tmp_path / "turns.png"
    options = ["train", "groups", "--dataset", "mod5", "--size", "4", "--look", str(picture)]
    assert cli.main(options) == 0
    assert "pair 0: " in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert cli.main([*options, "--cell", "lstm"]) == 1
    assert "--look shows nothing of --cell lstm with --dataset mod5" in capsys.readouterr().err
