"""Reports: tables, figures and what they say about a sweep that is not finished."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from training_helpers import save_made_up

from rotcell.babi.errors import SettingsError
from rotcell.babi.report import tables
from rotcell.babi.report.figures import convergence
from rotcell.babi.report.page import write_report
from rotcell.babi.report.paper import Printed
from rotcell.babi.report.summary import Sample, summarise
from rotcell.babi.sweep.experiments import EXPERIMENTS, make_plan
from rotcell.babi.sweep.runner import Folder


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    """A sweep of three tasks and three seeds: task 1 done, 18 in part, 20 not begun."""
    folder = Folder(tmp_path)
    plan = make_plan(EXPERIMENTS["lstm"], tasks=(1, 18, 20), seeds=3, data=("made up",))
    folder.adopt(plan)
    for run in plan.runs:
        accuracy = 0.5 + 0.01 * run.seed + 0.4 * (run.cell == "rotlstm")
        if run.task == 1:
            save_made_up(folder, run, accuracy)
    eighteen = [run for run in plan.runs if run.task == 18]
    save_made_up(folder, eighteen[0], 0.7)
    save_made_up(folder, eighteen[1], 0.9)
    save_made_up(folder, eighteen[2], 0.0, error="Traceback\n at x\nRuntimeError: boom & bust")
    folder.file(eighteen[3]).write_text("{")
    return tmp_path


def test_partial_sweep(partial: Path) -> None:
    written = write_report(partial, partial / "report")
    text = written.markdown
    assert "8 of 18 runs are done" in text
    assert "data: made up" in text
    assert "Failed: task18-lstm-size50-seed1: RuntimeError: boom & bust" in text
    assert "Damaged: " in text
    assert "task18-rotlstm-size50-seed1.json" in text
    missing = next(line for line in text.splitlines() if line.startswith("Missing"))
    # 10 of 18 runs have no result, 1 of them failed; a damaged file counts as missing.
    assert missing == (
        "Missing: 9 runs. LSTM: task 18 (1 run), task 20 (3 runs); RotLSTM: task 18 (2 runs), "
        "task 20 (3 runs). Not in the table and the figure: task 20, without any result."
    )
    assert (
        "| 1 single-supporting-fact | 51.0 ± 1.0 | 49.8 ± 3.3 "
        "| **91.0 ± 1.0** † | **52.3 ± 1.1** | 3 |"
    ) in text
    assert ("| 18 size-reasoning | 70.0 | 70.3 ± 20.8 | **90.0** | **90.5 ± 0.9** | 1 |") in text
    assert "mean of 2 tasks" in text
    assert "20 agents" not in text

    names = {path.name for path in written.files}
    assert names == {
        "index.html",
        "report.md",
        "lstm.tex",
        "lstm-convergence.png",
        "lstm-convergence.svg",
    }
    assert (partial / "report" / "report.md").read_text() == f"{text}\n"


def test_page_needs_nothing_else(partial: Path) -> None:
    write_report(partial, partial / "report")
    page = (partial / "report" / "index.html").read_text()
    assert "boom &amp; bust" in page
    assert "<b>91.0 ± 1.0</b> <span class=mark>†</span>" in page
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)


def test_figures_are_pictures_and_repeat(partial: Path) -> None:
    one = write_report(partial, partial / "one").files
    two = write_report(partial, partial / "two").files
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    png = (partial / "one" / "lstm-convergence.png").read_bytes()
    width, height = struct.unpack(">II", png[16:24])
    assert png.startswith(b"\x89PNG")
    assert width > 600
    assert height > 300
    assert b"<svg" in (partial / "one" / "lstm-convergence.svg").read_bytes()


def test_latex(partial: Path) -> None:
    (summary,) = summarise(partial)
    text = tables.latex(summary)
    assert r"\textbf{91.0 $\pm$1.0}$^\dagger$" in text
    assert "Task: & 1 & 18" in text
    for line in text.splitlines():
        if line.endswith(r"\\"):
            assert line.count("&") == 2
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


def test_joint_spread() -> None:
    printed = Printed(50.0, 3.0)
    assert Sample((50.0,)).allowed(printed) is None
    assert not Sample((99.0,)).differs(printed)
    sample = Sample((52.0, 54.0))  # s² = 2, so 2 sqrt(2/2 + 9/10) = 2.757
    assert sample.allowed(printed) == pytest.approx(2.757 + 0.05, abs=1e-3)
    assert sample.differs(printed)
    assert not sample.differs(Printed(50.2, 3.0))
    same = Sample((94.4, 94.4))
    assert not same.differs(Printed(94.44, 0.0))  # no more than rounding
    assert same.differs(Printed(94.5, 0.0))


def test_state_size_and_packed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    plans = [
        make_plan(EXPERIMENTS["state-size"], tasks=(1,), seeds=2, sizes=(6, 10), epochs=2),
        make_plan(EXPERIMENTS["gru"], tasks=(1,), seeds=1),
        make_plan(EXPERIMENTS["gru"], tasks=(1,), seeds=1, packed=True),
    ]
    for plan in plans:
        folder.adopt(plan)
        for run in plan.runs:
            save_made_up(folder, run, run.state_size / 100)
    written = write_report(tmp_path, tmp_path / "report")
    assert "| 1 RotLSTM | 6.0 | 10.0 |" in written.markdown
    assert "Not the paper's protocol: epochs 2 and not 40." in written.markdown
    assert "## gru: GRU and RotGRU" in written.markdown
    assert "## gru, packed: GRU and RotGRU" in written.markdown
    names = {path.name for path in written.files}
    assert {"state-size.png", "gru.tex", "gru-packed.tex"} <= names
    assert "gru-packed-convergence.svg" in names


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="holds no sweep"):
        write_report(tmp_path, tmp_path / "report")
    Folder(tmp_path).adopt(make_plan(EXPERIMENTS["lstm"], seeds=1))
    text = write_report(tmp_path, tmp_path / "report").markdown
    assert "0 of 40 runs are done" in text
    assert "LSTM: tasks 1-20 (1 run each); RotLSTM: tasks 1-20 (1 run each)." in text


def test_figures_have_no_lonely_panel(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    plan = make_plan(EXPERIMENTS["lstm"], tasks=(1, 2, 4, 5, 8, 20), seeds=1)
    folder.adopt(plan)
    for run in plan.runs:
        save_made_up(folder, run, 0.5)
    (summary,) = summarise(tmp_path)
    assert convergence(summary).columns == 3


def test_without_matplotlib_there_are_still_tables(
    partial: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    written = write_report(partial, partial / "report")
    assert "No figures: figures need matplotlib" in written.markdown
    assert "| 1 single-supporting-fact |" in written.markdown
