"""The model: what it computes and how it begins."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from training_helpers import questions, small

from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.model import JointDropout, QuestionAnswerer, keep_mask
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.tensors import TaskTensors, vectorize
from rotcell.lab.training.processes import Share

CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""


@pytest.fixture(scope="module")
def tensors() -> TaskTensors:
    return vectorize(questions())


@pytest.mark.parametrize(
    ("cell", "gates"),
    [
        ("lstm", 4),
        ("rotlstm", 4.5),
        ("gru", 3),
        ("rotgru", 3.5),
        ("lstm-torch", 4),
        ("gru-torch", 3),
    ],
)
def test_trained_parameters_are_those_of_the_paper(cell: str, gates: float) -> None:
    words, size = 23, 50
    model = QuestionAnswerer(words, RunSettings(18, cell, gates="sigmoid"))
    count = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    rows = int(gates * size)
    question_rnn, story_rnn = rows * (50 + size + 1), rows * (100 + size + 1)
    assert count == 2 * 50 * words + question_rnn + story_rnn + (size + 1) * words


@pytest.mark.parametrize("cell", list(CELLS))
def test_starts_as_keras_does(cell: str) -> None:
    model = QuestionAnswerer(40, RunSettings(1, cell, gates="sigmoid"))
    for embedding in (model.story_embedding, model.question_embedding):
        assert 0.045 < float(embedding.weight.detach().abs().max()) <= 0.05
        assert embedding.weight[0].any()  # the padding is a word
    for rnn, width in ((model.question_rnn, 50), (model.story_rnn, 100)):
        kernel, recurrent = rnn.weight_ih_l0, rnn.weight_hh_l0
        limit = math.sqrt(6 / (width + kernel.shape[0]))
        assert 0.98 * limit < float(kernel.detach().abs().max()) <= limit
        assert torch.allclose(recurrent.T @ recurrent, torch.eye(50), atol=1e-5)
        bias = torch.zeros(kernel.shape[0])
        if "lstm" in cell:
            bias[50:100] = 1.0
        assert torch.equal(rnn.bias_ih_l0, bias)
        assert not rnn.bias_hh_l0.any()
        assert not rnn.bias_hh_l0.requires_grad
        assert rnn.bias_ih_l0.requires_grad
    assert float(model.dense.weight.detach().abs().max()) <= math.sqrt(6 / 90)
    assert not model.dense.bias.any()


@pytest.mark.parametrize("cell", list(CELLS))
def test_the_model_computes_figure_2_of_the_paper(cell: str, tensors: TaskTensors) -> None:
    model = QuestionAnswerer(len(tensors.dictionary), small(cell=cell)).eval()
    batch = tensors.train.part(0, 3)
    asked, _ = model.question_rnn(model.question_embedding(batch.question).transpose(0, 1))
    for row in range(3):
        words = [
            torch.cat([model.story_embedding(word), asked[-1, row]]) for word in batch.story[row]
        ]
        outputs, _ = model.story_rnn(torch.stack(words).unsqueeze(1))
        expected = model.dense(outputs[-1, 0])
        assert torch.allclose(model(batch)[row], expected, atol=1e-6)


@pytest.mark.parametrize("cell", list(CELLS))
def test_packed_sees_only_real_words(cell: str) -> None:
    tensors = vectorize(questions(), padding="behind")
    model = QuestionAnswerer(len(tensors.dictionary), small(cell=cell, packed=True)).eval()
    batch = tensors.train.part(0, 5)
    assert len(set(batch.story_lengths.tolist())) > 1
    together = model(batch.trimmed())
    model.packed = False
    for row in range(5):
        alone = batch.part(row, row + 1).trimmed()
        assert torch.allclose(model(alone)[0], together[row], atol=1e-6)


@pytest.mark.parametrize("gates", ["hard_sigmoid", "sigmoid"])
def test_the_gates_are_those_of_the_settings(gates: str, tensors: TaskTensors) -> None:
    model = QuestionAnswerer(len(tensors.dictionary), small(cell="lstm", gates=gates))
    x = 3 * torch.randn(1, 4, 8)
    rnn = model.question_rnn
    i, _, g, o = (x[0] @ rnn.weight_ih_l0.T + rnn.bias_ih_l0).chunk(4, dim=-1)

    def gate(a: torch.Tensor) -> torch.Tensor:
        return a.sigmoid() if gates == "sigmoid" else (0.2 * a + 0.5).clamp(0, 1)

    expected = gate(o) * (gate(i) * g.tanh()).tanh()
    assert torch.allclose(rnn(x)[0][0], expected, atol=1e-6)


def test_dropout_acts_in_training_only(tensors: TaskTensors) -> None:
    model = QuestionAnswerer(len(tensors.dictionary), small())
    batch = tensors.train.part(0, 4)
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


@pytest.mark.parametrize("p", [0.3, 0.5, 0.0, 0.9])
def test_masks_keep_what_they_should(p: float) -> None:
    mask = keep_mask(torch.empty(300, 50, 20), p)
    values = torch.tensor(sorted({0.0, 1.0 / (1 - p)}) if p else [1.0])
    assert torch.equal(mask.unique(), values)
    kept = float((mask > 0).float().mean())
    assert kept == pytest.approx(1 - p, abs=5 * math.sqrt(p * (1 - p) / mask.numel()))


@pytest.mark.skipif("GenuineIntel" in CPU, reason="torch draws otherwise on CPUs of Intel")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_are_those_of_torch(dtype: torch.dtype) -> None:
    x = torch.randn(40, 7, 11).to(dtype)
    for p in (0.3, 0.77, 0.1):
        torch.manual_seed(5)
        expected = [torch.nn.functional.dropout(x, p) for _ in range(3)]
        torch.manual_seed(5)
        assert all(torch.equal(x * keep_mask(x, p), each) for each in expected)


def test_shares_of_a_batch_have_the_masks_of_the_whole() -> None:
    dropout = JointDropout(0.3)
    x = torch.randn(7, 5, 3)
    torch.manual_seed(1)
    whole = dropout(x, None)
    parts = []
    for start, stop in ((0, 2), (2, 5)):
        torch.manual_seed(1)
        parts.append(dropout(x[:, start:stop], Share(start, stop, 5)))
    assert torch.allclose(torch.cat(parts, dim=1), whole)
    assert 0 < int((whole == 0).sum()) < whole.numel()
