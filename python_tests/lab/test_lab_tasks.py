"""The tasks and the training loop: right data, right measures, same bits again."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rotcell.lab import tasks
from rotcell.lab.errors import DataError, SettingsError
from rotcell.lab.tasks import (
    copying,
    groups,
    music,
    pixels,
    ptb_characters,
    ptb_words,
    recall,
    text,
)
from rotcell.lab.training.loop import Budget, Problem, run_problem
from rotcell.lab.training.settings import LabSettings

SMALL = replace(
    groups.TASK,
    budget=replace(groups.TASK.budget, epochs=3),
    epoch_steps=4,
    batch=8,
    test_rows=6,
    validation_rows=6,
)


def small_run(**changed: Any) -> LabSettings:
    plain = {"task": "groups", "dataset": "mod5", "cell": "lstm", "size": 4, "lr": 0.01, "seed": 0}
    return LabSettings(**{**plain, **changed})


def test_tasks_are_found_by_their_names() -> None:
    for name in ("babi", "copying", "groups", "music", "pixels", "ptb_words", "recall", "text"):
        assert tasks.find(name).name == name
    with pytest.raises(SettingsError, match=r"task must be one of babi, .*, got 'chess'"):
        tasks.find("chess")


@pytest.mark.parametrize(
    ("dataset", "order"),
    [("parity", 2), ("mod5", 5), ("mod7", 7), ("s3", 6), ("a5", 60), ("s5", 120)],
)
def test_the_tables_are_groups(dataset: str, order: int) -> None:
    table = groups.multiplication(dataset)
    numbers = torch.arange(order)
    assert table.shape == (order, order)
    assert torch.equal(table[0], numbers)
    assert torch.equal(table[:, 0], numbers)
    assert torch.equal(table.sort(dim=1).values, numbers.expand(order, order))
    a, b, c = torch.randint(order, (3, 1000))
    assert torch.equal(table[table[a, b], c], table[a, table[b, c]])
    assert torch.equal(table, table.t()) == (dataset in ("parity", "mod5", "mod7"))


def test_products_match_permutations() -> None:
    elements, products = groups.sequences("s3", 9, 5, seed=1)
    known = list(permutations(range(3)))
    for row in range(5):
        total = (0, 1, 2)
        for step in range(9):
            factor = known[int(elements[step, row])]
            total = tuple(total[i] for i in factor)
            assert known[int(products[step, row])] == total


def test_training_is_on_short_sequences_that_a_seed_decides() -> None:
    problem, _ = SMALL.problem(small_run(), None)
    other, _ = SMALL.problem(small_run(cell="rotlstm", start="pi"), None)
    third, _ = SMALL.problem(small_run(seed=1), None)
    (x, y), *rest = problem.batches(1)
    assert x.shape == y.shape == (32, 8)
    assert len(rest) == 3
    assert torch.equal(x, next(iter(other.batches(1)))[0])
    assert not torch.equal(x, next(iter(third.batches(1)))[0])
    assert not torch.equal(x, next(iter(problem.batches(2)))[0])


@pytest.mark.parametrize("cell", ["lstm", "rotlstm", "gru", "classicgru", "rotgru"])
def test_the_same_run_gives_the_same_bits(cell: str) -> None:
    settings = small_run(cell=cell, start="spread" if "rot" in cell else "")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = SMALL.run(settings, None)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    two = SMALL.run(settings, None)
    for name in ("settings", "data", "protocol", "outcome", "history"):
        assert one[name] == two[name]
    assert one["outcome"]["epochs"] == 3
    assert {"commit", "instruction_set", "torch", "load", "threads"} <= one["environment"].keys()


def test_a_tracker_learns_parity() -> None:
    task = replace(groups.TASK, epoch_steps=50, test_rows=50, validation_rows=50)
    outcome = task.run(small_run(dataset="parity", cell="rotlstm", start="pi"), None)["outcome"]
    assert outcome["test"]["solved"] == 1
    assert outcome["test"]["accuracy_128"] >= groups.SOLVED
    assert not outcome["capped"]
    assert outcome["steps_to_target"] < outcome["steps"]


class Scripted(Problem):
    """Validation errors as written down; one weight, which counts the steps."""

    def __init__(self, budget: Budget, errors: list[float]) -> None:
        self.budget, self._errors = budget, iter(errors)
        self.model = nn.Linear(1, 1)

    def batches(self, epoch: int) -> Iterator[int]:
        return iter(range(4))

    def loss(self, batch: int) -> Tensor:
        return self.model(torch.ones(1)).sum()

    def validate(self) -> float:
        return next(self._errors)

    def test(self) -> dict[str, float]:
        return {"weight": float(self.model.weight.detach())}


def test_the_rate_halves_and_training_stops_without_progress() -> None:
    budget = Budget(100, "halve", halve_after=2, patience=5)
    outcome, curve, _ = run_problem(
        Scripted(budget, [5, 4, 4.5, 4.5, 4.5, 3, *[9] * 9]), small_run()
    )
    assert (outcome.epoch, outcome.epochs, outcome.validation) == (6, 11, 3)
    assert not outcome.capped
    lr = 0.01
    expected = [lr] * 4 + [lr / 2] * 4 + [lr / 4] * 2 + [lr / 8]
    assert curve.lr == pytest.approx(expected)


def test_the_cap_is_reported() -> None:
    outcome, curve, _ = run_problem(Scripted(Budget(4, "linear"), [4, 3, 2, 1]), small_run())
    assert outcome.capped
    assert curve.lr == pytest.approx([0.01 * (1 - (e + 0.75) / 4) for e in range(4)])


def test_a_solved_run_cools_down_to_a_rate_of_zero() -> None:
    budget = Budget(100, "linear", target=0.1, target_epochs=2, cooldown=3)
    outcome, curve, _ = run_problem(Scripted(budget, [1, 0.1, 1, 0, 0, 0, 0, 0]), small_run())
    assert outcome.steps_to_target == 8
    assert (outcome.epochs, outcome.capped) == (8, False)
    at_five = 0.01 * (1 - 5 / 100)
    assert curve.lr[-3:] == pytest.approx([at_five * (1 - (e + 0.75) / 3) for e in range(3)])


def test_a_run_that_diverges_ends_with_what_it_had() -> None:
    outcome, _, _ = run_problem(Scripted(Budget(9, "linear"), [1, math.nan]), small_run())
    assert (outcome.diverged, outcome.epochs, outcome.validation) == (True, 1, 1)
    outcome, _, _ = run_problem(Scripted(Budget(9, "linear"), [math.inf]), small_run())
    assert (outcome.diverged, outcome.validation) == (True, None)


@pytest.fixture
def rolls(tmp_path: Path) -> Path:
    """Piano rolls that repeat every three steps, of different lengths."""
    scipy_io = pytest.importorskip("scipy.io", reason="SciPy reads and writes .mat files")
    import numpy as np

    def part(lengths: tuple[int, ...]) -> Any:
        cells = np.empty((1, len(lengths)), dtype=object)
        for number, length in enumerate(lengths):
            roll = np.zeros((length, music.KEYS), dtype=np.uint8)
            roll[np.arange(length), np.arange(length) % 3] = 1
            cells[0, number] = roll
        return cells

    parts = {"traindata": (5, 9, 1, 12), "validdata": (7, 4), "testdata": (6, 11, 3)}
    scipy_io.savemat(
        tmp_path / "JSB_Chorales.mat", {name: part(lengths) for name, lengths in parts.items()}
    )
    return tmp_path


def test_music_is_scored_per_step_whatever_the_lengths(rolls: Path) -> None:
    task = replace(music.TASK, budget=Budget(2, "halve", halve_after=1, patience=2), batch=2)
    settings = small_run(task="music", dataset="jsb")
    problem, named = task.problem(settings, rolls)
    assert named.name == "unverified JSB_Chorales.mat"
    pieces = music.load(rolls / "JSB_Chorales.mat")[0]
    assert [len(piece) for piece in pieces[0]] == [5, 9, 12]  # one frame has no next one
    problem.model.eval()
    total = steps = 0.0
    with torch.no_grad():
        for piece in pieces[2]:
            states, _ = problem.model.rnn(piece[:-1, None])
            scores = problem.model.linear(states[:, 0])
            total += float(F.binary_cross_entropy_with_logits(scores, piece[1:], reduction="sum"))
            steps += len(piece) - 1
        assert problem.test()["nll"] == pytest.approx(total / steps, rel=1e-5)
    record = task.run(settings, rolls)
    assert record["data"]["md5"] == named.md5
    assert record["outcome"]["test"]["nll"] < total / steps


def test_music_reports_invalid_data(tmp_path: Path) -> None:
    pytest.importorskip("scipy.io")
    settings = small_run(task="music", dataset="jsb")
    with pytest.raises(DataError, match="music needs --data"):
        music.TASK.problem(settings, None)
    with pytest.raises(DataError, match=r"JSB_Chorales\.mat cannot be read"):
        music.TASK.problem(settings, tmp_path)
    (tmp_path / "JSB_Chorales.mat").write_bytes(b"no mat")
    with pytest.raises(DataError, match="has no piano rolls"):
        music.TASK.problem(settings, tmp_path)
    with pytest.raises(SettingsError, match=r"dataset must be one of jsb, .*, got 'mod5'"):
        music.TASK.settings(small_run().plain())


def test_text_is_read_on_with_the_state_of_the_window_before(tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_bytes(b"abcabcabd " * 200)
    task = replace(text.TASK, budget=Budget(1, "halve", halve_after=1), batch=2, length=7)
    settings = small_run(task="text", dataset="tinyshakespeare", size=8)
    problem, _ = task.problem(settings, tmp_path)
    (train, validation, test), characters, _ = text.load(tmp_path / "input.txt")
    assert (len(train), len(validation), len(test), characters) == (1800, 100, 100, 5)
    problem.model.eval()
    with torch.no_grad():
        whole = test.view(2, 50).t()
        scores, _ = problem.model(whole[:-1])
        nats = F.cross_entropy(scores.flatten(0, 1), whole[1:].flatten())
        found = problem.test()["bits_per_character"]
    assert found == pytest.approx(float(nats) / math.log(2), rel=1e-5)
    after = task.run(settings, tmp_path)["outcome"]["test"]["bits_per_character"]
    assert after < found


def test_what_is_copied_comes_after_the_signal() -> None:
    symbols, targets = copying.sequences(7, 3, seed=5)
    assert symbols.shape == targets.shape == (27, 3)
    assert torch.equal(targets[-10:], symbols[:10])
    assert (targets[:-10] == copying.BLANK).all()
    assert (symbols == copying.SIGNAL).nonzero()[:, 0].tolist() == [16] * 3  # ten outputs follow
    assert (symbols[10:16] == copying.BLANK).all()
    assert (symbols[17:] == copying.BLANK).all()
    task = replace(copying.TASK, budget=Budget(1, "linear"), epoch_steps=2, batch=4, test_rows=64)
    problem, _ = task.problem(small_run(task="copying", dataset="t200"), None)
    with torch.no_grad():  # the best without memory: certain of blanks, then uniform over all eight
        problem.model.linear.weight.zero_()
        problem.model.linear.bias.copy_(torch.tensor([0.0] * 8 + [-30.0]))
        eight = problem.loss(problem._test)
    blanks = 210 * 30.0 + 210 * math.log(8)
    assert float(eight) * 220 == pytest.approx(10 * math.log(8) + blanks, rel=1e-4)
    assert task.run(small_run(task="copying", dataset="t200"), None)["outcome"]["test"]["loss"] > 0


def test_recall_asks_for_the_digit_after_a_letter() -> None:
    symbols, targets = recall.sequences(30, 200, seed=5)
    assert symbols.shape == (33, 200)
    for row in range(200):
        letters, asked = symbols[:30, row].tolist(), int(symbols[32, row])
        pairs = dict(zip(letters[::2], letters[1::2], strict=True))
        assert len(pairs) == 15
        assert pairs[asked] - recall.LETTERS == int(targets[32, row])
    assert (symbols[30:32] == recall.QUESTION).all()
    assert (targets[:32] < 0).all()
    task = replace(
        recall.TASK, budget=Budget(1, "linear"), epoch_steps=2, test_rows=64, validation_rows=8
    )
    found = task.run(small_run(task="recall", dataset="t30"), None)["outcome"]["test"]
    assert 0 <= found["accuracy"] < 0.5


def write_ptb(folder: Path) -> None:
    parts = {"train": "a b c\n c a b\n" * 50, "valid": "a b c\n" * 20, "test": "a b c\n" * 12}
    for name, content in parts.items():
        (folder / f"ptb.{name}.txt").write_text(content)


def test_words_have_an_end_per_line_and_the_numbers_of_the_training_text(tmp_path: Path) -> None:
    write_ptb(tmp_path)
    (train, validation, test), words, named = ptb_words.load(tmp_path)
    assert words == 4
    assert [len(part) for part in (train, validation, test)] == [400, 80, 48]
    assert train[:8].tolist() == [1, 2, 3, 0, 3, 1, 2, 0]  # <eos> sorts before a, b and c
    assert test[:4].tolist() == [1, 2, 3, 0]
    assert named.name == "unverified ptb.train.txt"
    ptb_words.load.cache_clear()
    (tmp_path / "ptb.valid.txt").write_text("a new word\n")
    with pytest.raises(DataError, match="2 words are not in the training text, such as 'new'"):
        ptb_words.load(tmp_path)


def test_perplexity_is_that_of_a_plain_loop_over_the_whole_text(tmp_path: Path) -> None:
    write_ptb(tmp_path)
    ptb_words.load.cache_clear()
    budget = Budget(8, "decay", halve_after=6, clip=5.0, sgd=True)
    task = replace(ptb_words.TASK, budget=budget, batch=2, length=5)
    settings = small_run(task="ptb_words", dataset="ptb", size=6, lr=0.5)
    problem, _ = task.problem(settings, tmp_path)
    problem.model.eval()
    (_, _, test), _, _ = ptb_words.load(tmp_path)
    whole = test.view(2, 24).t()
    with torch.no_grad():
        scores, _ = problem.model(whole[:-1])
        nats = F.cross_entropy(scores.flatten(0, 1), whole[1:].flatten())
        found = problem.test()["perplexity"]
    assert found == pytest.approx(math.exp(float(nats)), rel=1e-4)
    record = task.run(settings, tmp_path)
    assert record["outcome"]["test"]["perplexity"] < found
    assert record["history"]["lr"] == [0.5] * 6 + [0.25, 0.125]
    assert record["protocol"]["optimizer"] == "SGD"
    with pytest.raises(DataError, match="ptb_words needs --data"):
        task.problem(settings, None)


def test_characters_of_the_published_parts(tmp_path: Path) -> None:
    write_ptb(tmp_path)
    ptb_characters.load.cache_clear()
    (train, validation, _), characters, _ = ptb_characters.load(tmp_path)
    assert characters == 5  # a, b, c, blank, end of line
    assert len(train) == 650
    assert validation[:4].tolist() == [2, 1, 3, 1]  # "a b "
    task = replace(ptb_characters.TASK, budget=Budget(1, "halve", halve_after=1), batch=2, length=7)
    settings = small_run(task="ptb_characters", dataset="ptb", size=4)
    record = task.run(settings, tmp_path)
    assert record["protocol"]["split"] == "as published"
    assert 0 < record["outcome"]["test"]["bits_per_character"] < 4


def idx(values: Tensor) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    content = bytes([0, 0, 8, values.dim()]) + sizes + bytes(values.flatten().tolist())
    return gzip.compress(content)


def write_digits(folder: Path) -> Tensor:
    """Four pixels; the digit is how many are white."""
    images = torch.randint(2, (60, 2, 2), generator=torch.Generator().manual_seed(0)) * 255
    labels = (images > 0).sum((1, 2))
    for stem, (pictures, digits) in {
        "train": (images[:40], labels[:40]),
        "t10k": (images[40:], labels[40:]),
    }.items():
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(idx(pictures))
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(idx(digits))
    return images


def test_pixels_come_one_per_step_in_the_same_order_for_every_run(tmp_path: Path) -> None:
    images = write_digits(tmp_path)
    task = replace(pixels.TASK, budget=Budget(2, "halve", halve_after=1), batch=10, validation=10)
    settings = {name: small_run(task="pixels", dataset=name, size=8) for name in pixels.DATASETS}
    shown = {}
    for name, each in settings.items():
        problem, named = task.problem(each, tmp_path)
        assert named.name == "unverified MNIST"
        shown[name] = problem._test[0]
    assert torch.equal(shown["sequential"], images[40:].flatten(1) / 255)
    permuted, _ = task.problem(replace(settings["permuted"], seed=7), tmp_path)
    assert torch.equal(permuted._test[0], shown["permuted"])
    assert torch.equal(shown["permuted"].sum(1), shown["sequential"].sum(1))
    record = task.run(settings["permuted"], tmp_path)
    assert 0 <= record["outcome"]["test"]["accuracy"] <= 1
    assert record["outcome"]["steps"] == 2 * 3  # 30 images, 10 left for validation


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "is not a gzip file"),
        (gzip.compress(b"no idx"), "is not an idx file of bytes"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 3, 1])), "has 1 elements, its header says"),
    ],
    ids=("no gzip", "no idx", "too short"),  # compressed data holds the time
)
def test_files_that_are_no_digits_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    write_digits(tmp_path)
    pixels.load.cache_clear()
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(content)
    with pytest.raises(DataError, match=message):
        pixels.load(tmp_path)
