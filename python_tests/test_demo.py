"""rotcell-demo."""

import pytest
import torch

from rotcell import demo


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(demo, "STEPS_PER_EPOCH", 10)
    monkeypatch.setattr(demo, "TEST_SIZE", 20)


def test_headings_are_the_sum_of_the_turns_so_far():
    words, headings = demo.make_walks(3, 5, torch.Generator().manual_seed(0))
    for walk in range(3):
        heading = 0
        for step in range(5):
            heading = (heading + int(demo.TURNS[words[step, walk]])) % 8
            assert headings[step, walk] == heading


@pytest.mark.usefixtures("short")
def test_prints_progress_and_the_accuracy_of_both(capsys):
    assert demo.main(["--epochs", "1", "--hidden", "4"]) == 0
    out = capsys.readouterr().out
    assert "\r" not in out
    assert "100%" in out
    table = out.split("weights")[1]
    for name in ("RotLSTM", "nn.LSTM"):
        assert name in table
    assert table.count("%") == 4


@pytest.mark.usefixtures("short")
def test_on_a_terminal_one_line_is_redrawn(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert demo.main(["--epochs", "1", "--hidden", "4"]) == 0
    out = capsys.readouterr().out
    assert "\rRotLSTM" in out
    assert "\rnn.LSTM" in out


@pytest.mark.usefixtures("short")
def test_same_seed_gives_the_same_result():
    first, second = (demo.train("RotLSTM", demo.RotLSTM, 4, 1, seed=3) for _ in range(2))
    assert first.accuracy == second.accuracy
    assert first.accuracy_on_longer == second.accuracy_on_longer


def test_interrupt_ends_cleanly(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "train", interrupted)
    assert demo.main([]) == 130
    assert capsys.readouterr().out.endswith("Stopped.\n")


@pytest.mark.parametrize("option", ["--epochs", "--hidden", "--threads"])
def test_nonsense_is_refused(option, capsys):
    with pytest.raises(SystemExit, match="2"):
        demo.main([option, "0"])
    assert "at least 1" in capsys.readouterr().err


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit, match="0"):
        demo.main(["--help"])
    out = capsys.readouterr().out
    for option in ("--epochs", "--hidden", "--seed", "--threads"):
        assert option in out
