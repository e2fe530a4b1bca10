"""What a model makes of a story, word by word, and the command that shows it."""

from __future__ import annotations

import pytest
import torch

from rotcell.lab.cli import demo, main
from rotcell.lab.errors import LookError
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.evaluate import Answerer
from rotcell.lab.tasks.babi.look import (
    Reader,
    look_at_question,
    prefix_probabilities,
    saliency,
)
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.train import train

STORY = ["Mary", "went", "to", "the", "kitchen", ".", "John", "moved", "to", "the", "garden", "."]
QUESTION = ["Where", "is", "Mary", "?"]
SOURCE = Source(questions=60)


def checkpoint(folder, cell="rotlstm", packed=False):
    path = folder / f"{cell}-{packed}.pt"
    settings = RunSettings(
        task=1,
        cell=cell,
        state_size=6,
        embedding=5,
        epochs=1,
        packed=packed,
        lr=0.01,
        gates="sigmoid",
    )
    train(SOURCE.load(1), settings, checkpoint=path)
    return path


@pytest.fixture(scope="module", params=[False, True], ids=["padded", "packed"])
def path(request, tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("models"), packed=request.param)


def test_probabilities_are_those_of_a_story_that_ends_there(path):
    reader = Reader.load(path)
    found = prefix_probabilities(reader, STORY, QUESTION)
    asked = Answerer.load(path)
    for count in range(1, len(STORY) + 1):
        for word, chance in asked.answers(STORY[:count], QUESTION):
            assert float(found[count - 1, reader.dictionary[word]]) == pytest.approx(
                chance, abs=1e-5
            )


def test_saliency_is_the_gradient_of_the_answer(path):
    reader = Reader.load(path)
    reader.model.double()
    of_story, of_question = saliency(reader, STORY, QUESTION)
    assert len(of_story) == len(STORY)
    assert len(of_question) == len(QUESTION)
    rows = reader.examples([STORY], QUESTION)
    best = int(reader.model(rows)[0].argmax())

    def moved(embedding, step, feature, by):
        def add(_, __, out):
            out = out.clone()
            out[step, 0, feature] += by
            return out

        handle = embedding.register_forward_hook(add)
        with torch.no_grad():
            chance = torch.log_softmax(reader.model(rows)[0], 0)[best]
        handle.remove()
        return chance

    for embedding, found, words in (
        (reader.model.story_embedding, of_story, rows.story),
        (reader.model.question_embedding, of_question, rows.question),
    ):
        for word in (0, 2):
            first = 0 if reader.settings.packed else words.shape[1] - len(found)
            gradient = torch.stack(
                [
                    (
                        moved(embedding, first + word, k, 1e-5)
                        - moved(embedding, first + word, k, -1e-5)
                    )
                    / 2e-5
                    for k in range(5)
                ]
            )
            assert float(found[word]) == pytest.approx(float(gradient.norm()), rel=1e-6)


def test_the_trace_is_of_the_story_as_the_model_reads_it(path):
    reader = Reader.load(path)
    seen = look_at_question(reader, STORY, QUESTION, "kitchen")
    assert seen.tokens[seen.padding :] == STORY
    last = seen.trace[0].row("output", 0)[-1]
    with torch.no_grad():
        scores = reader.model.dense(last)
    expected = torch.softmax(scores, 0)
    for word, chance in zip(seen.reading.answers, seen.reading.probabilities[-1], strict=True):
        assert float(chance) == pytest.approx(float(expected[reader.dictionary[word]]), abs=1e-5)


def test_unknown_words_are_reported(path):
    with pytest.raises(LookError, match="no word that the model knows"):
        look_at_question(Reader.load(path), ["xyzzy"], QUESTION)


def test_command_for_a_question_of_the_test(path, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["look", str(path), "--question", "2", "--out", str(out)]) == 0
    out_text = capsys.readouterr().out
    assert str(out) in out_text
    assert "right is" in out_text
    assert "Question 2 of bAbI task 1" in out.read_text(encoding="utf-8")


def test_command_for_a_typed_story(path, tmp_path, capsys, monkeypatch):
    typed = tmp_path / "typed"
    typed.write_text("Mary went to the xyzzy kitchen.\nWhere is Mary?\n", encoding="utf-8")
    out = tmp_path / "page.html"
    with typed.open(encoding="utf-8") as lines:
        monkeypatch.setattr("sys.stdin", lines)
        assert main(["look", str(path), "--out", str(out)]) == 0
    assert "leaves out: xyzzy" in capsys.readouterr().out
    assert out.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--question", "5000"], "there is no question 5000"),
        (["--task", "2"], "need --question"),
    ],
)
def test_command_reports_errors(path, arguments, message, capsys):
    assert main(["look", str(path), *arguments]) == 1
    assert message in capsys.readouterr().err


def test_the_demo_ends_with_a_page(tmp_path):
    path = tmp_path / "task18-rotlstm-size6-seed0.pt"
    settings = RunSettings(
        task=18, cell="rotlstm", state_size=6, embedding=5, epochs=1, gates="sigmoid"
    )
    train(SOURCE.load(18), settings, checkpoint=path)
    out_text = demo._look(SOURCE, tmp_path, tmp_path)
    assert str(tmp_path / "look.html") in out_text
    assert "bAbI task 18" in (tmp_path / "look.html").read_text(encoding="utf-8")
    assert "No page" in demo._look(SOURCE, tmp_path / "none", tmp_path)


def test_a_cell_that_cannot_be_traced(tmp_path, capsys):
    path = checkpoint(tmp_path, cell="gru-torch")
    assert main(["look", str(path), "--question", "1"]) == 1
    assert "a model of gru-torch cells cannot be traced" in capsys.readouterr().err


def test_command_for_two_models(path, tmp_path, capsys):
    out = tmp_path / "both.html"
    both = ["look", str(path), "--compare", str(path), "--question", "2", "--out", str(out)]
    assert main(both) == 0
    assert capsys.readouterr().out.count("Answer of the") == 2
    assert out.read_text(encoding="utf-8").count("<iframe") == 2
