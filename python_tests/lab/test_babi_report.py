"""Reports: tables, figures, claims, and what they say about a sweep that is not finished."""

from __future__ import annotations

import csv
import gzip
import json
import re
import statistics
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from training_helpers import MADE_UP, save_made_up

from rotcell.lab import cli
from rotcell.lab.errors import ResultError, SettingsError
from rotcell.lab.report.statistics import signed
from rotcell.lab.tasks.babi.data.catalog import TASK_NAMES
from rotcell.lab.tasks.babi.data.source import DataName, Source, SplitName
from rotcell.lab.tasks.babi.experiments import EXPERIMENTS, Experiment, Plan, make_plan
from rotcell.lab.tasks.babi.report import claims, measures, tables
from rotcell.lab.tasks.babi.report.constant import constant_accuracy
from rotcell.lab.tasks.babi.report.figures import convergence
from rotcell.lab.tasks.babi.report.page import is_collection, write_report
from rotcell.lab.tasks.babi.report.summary import Summary, comparable, summarize
from rotcell.lab.tasks.babi.sweep.collect import collect, restore
from rotcell.lab.tasks.babi.sweep.results import Result, load_lines
from rotcell.lab.tasks.babi.sweep.runner import Folder

OTHER = DataName(SplitName("generated", "generated", "3"), SplitName("generated", "generated", "4"))


def filled(folder: Path, plan: Plan, accuracy: float = 0.5) -> Folder:
    """A folder with a made-up result for every run."""
    Folder(folder).adopt(plan)
    for run in plan.runs:
        save_made_up(Folder(folder), run, accuracy)
    return Folder(folder)


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


def test_a_partial_sweep_is_reported_with_what_is_missing(partial: Path) -> None:
    written = write_report(partial, partial / "report")
    text = written.markdown
    assert "8 of 18 runs are done" in text
    assert "data: made up." in text
    assert "Failed: task18-lstm-size50-seed1: RuntimeError: boom & bust" in text
    assert "Damaged: " in text
    assert "task18-rotlstm-size50-seed1.json" in text
    missing = next(line for line in text.splitlines() if line.startswith("Missing"))
    # 10 of 18 runs have no result, 1 of them failed; a damaged file counts as missing.
    assert missing == (
        "Missing: 9 runs. LSTM: task 18 (1 run), task 20 (3 runs); RotLSTM: task 18 (2 runs), "
        "task 20 (3 runs). Not in the table and the figure: task 20, without any result."
    )
    # Welch's interval and p are of one test: Student's with 4 degrees of freedom, t = 48.99.
    assert (
        "| 1 single-supporting-fact | 51.0 ± 1.0 | 49.8 ± 3.3 | **91.0 ± 1.0** † "
        "| **52.3 ± 1.1** | **+40.0 [+37.7, +42.3]** | <0.001 | 3 |"
    ) in text
    assert (
        "| 18 size-reasoning | 70.0 | 70.3 ± 20.8 | **90.0** | **90.5 ± 0.9** | - | - | 1 |"
    ) in text
    assert "mean of 2 tasks" in text
    assert "20 agents" not in text

    names = {path.name for path in written.files}
    assert names == {
        "index.html",
        "README.md",
        "runs.csv",
        "lstm.tex",
        "lstm-convergence.png",
        "lstm-convergence.svg",
    }
    assert (partial / "report" / "README.md").read_text() == f"{text}\n"


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


def test_latex_has_the_best_bold_and_marks(partial: Path) -> None:
    (summary,) = summarize(partial)
    text = tables.latex(summary)
    assert r"\textbf{91.0 $\pm$1.0}$^\dagger$" in text
    assert "Task: & 1 & 18" in text
    for line in text.splitlines():
        if line.endswith(r"\\"):
            assert line.count("&") == 2
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


def test_other_cells_and_more_of_them(tmp_path: Path) -> None:
    plan = make_plan(
        EXPERIMENTS["lstm"],
        tasks=(1, 2),
        seeds=2,
        cells=("lstm", "rotlstm", "lstm-torch"),
        gates="sigmoid",
    )
    filled(tmp_path, plan)
    text = write_report(tmp_path, tmp_path / "report").markdown
    assert (
        "| task | LSTM | LSTM, paper | RotLSTM | RotLSTM, paper | nn.LSTM | RotLSTM - LSTM |"
        in text
    )
    assert "Not the paper's protocol: gates sigmoid and not hard_sigmoid." in text


def test_runs_that_do_not_compare_are_refused(tmp_path: Path) -> None:
    plan = make_plan(EXPERIMENTS["lstm"], tasks=(1, 2), seeds=2)
    folder = filled(tmp_path / "data", plan)
    save_made_up(folder, plan.runs[0], 0.5, data=OTHER)
    with pytest.raises(SettingsError, match=r"differ in their data .*size50-seed0.*\(generated\)"):
        summarize(tmp_path / "data")
    same_name = replace(MADE_UP, test=replace(MADE_UP.test, digest="5"))
    save_made_up(folder, plan.runs[0], 0.5, data=same_name)
    with pytest.raises(SettingsError, match="different data of the same name"):
        summarize(tmp_path / "data")
    save_made_up(folder, plan.runs[0], 0.5)
    summarize(tmp_path / "data")
    lines = tmp_path / "lstm.jsonl"
    with pytest.raises(SettingsError, match="holds no sweep gru"):
        collect(tmp_path / "data", tmp_path / "gru.jsonl")
    collect(tmp_path / "data", lines)
    other = make_plan(EXPERIMENTS["lstm"], tasks=(4,), seeds=1, lr=0.1)
    filled(tmp_path / "lr", other)
    collect(tmp_path / "lr", lines)
    with pytest.raises(SettingsError, match="differ in their protocol"):
        summarize(lines)


def test_differences_in_the_environment_of_runs_are_reported(tmp_path: Path) -> None:
    plan = make_plan(EXPERIMENTS["lstm"], tasks=(1,), seeds=2)
    folder = filled(tmp_path, plan)
    save_made_up(folder, plan.runs[0], 0.5, environment={"torch": "1", "commit": "c" * 40})
    text = write_report(tmp_path, tmp_path / "report").markdown
    assert "The runs differ in torch: 1 (1 runs), 0 (3 runs)." in text


def test_collected_runs_give_the_same_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(EXPERIMENTS["lstm"], tasks=(1, 18), seeds=3)
    folder = filled(tmp_path / "out", plan)
    save_made_up(folder, plan.runs[1], 0.0, error="boom")
    lines = tmp_path / "page" / "runs" / "lstm.jsonl"
    assert cli.main(["collect", str(tmp_path / "out"), str(lines)]) == 0
    assert "0 runs known before, 11 new, 11 in all; 1 failed" in capsys.readouterr().out
    first = lines.read_bytes()
    save_made_up(folder, plan.runs[1], 0.5)
    assert cli.main(["collect", str(tmp_path / "out"), str(lines)]) == 0
    assert "11 runs known before, 1 new" in capsys.readouterr().out
    assert set(first.splitlines()) < set(lines.read_bytes().splitlines())
    assert [result.settings for result in load_lines(lines)] == sorted(
        plan.runs, key=lambda run: run.order
    )
    save_made_up(folder, plan.runs[0], 0.6)
    assert cli.main(["collect", str(tmp_path / "out"), str(lines)]) == 1
    assert "have other numbers for task1-lstm-size50-seed0" in capsys.readouterr().err

    assert cli.main(["report", str(tmp_path / "page")]) == 0  # next to the runs
    text = (tmp_path / "page" / "README.md").read_text()
    assert "## Which claims of the paper are reproduced" in text
    assert "Experiments: [lstm](lstm.md)" in text
    of_experiment = (tmp_path / "page" / "lstm.md").read_text()
    assert of_experiment.startswith("# lstm: LSTM and RotLSTM")
    assert "12 of 400 runs are done" in of_experiment
    rows = list(csv.DictReader((tmp_path / "page" / "runs.csv").open()))
    assert len(rows) == 12
    assert (rows[0]["task"], rows[0]["cell"], rows[0]["test"]) == ("1", "lstm", "0.5")

    # And back: none of these is computed again.
    assert restore(lines, plan, Folder(tmp_path / "again")) == 12
    assert restore(lines, plan, Folder(tmp_path / "again")) == 0
    assert Folder(tmp_path / "again").result(plan.runs[3]).outcome.test == 0.5

    # Notes of people are linked and not touched.
    assert "notes.md" not in text
    (tmp_path / "page" / "notes.md").write_text("As expected.")
    assert cli.main(["report", str(tmp_path / "page")]) == 0
    assert "](notes.md)" in (tmp_path / "page" / "README.md").read_text()
    assert 'href="notes.md"' in (tmp_path / "page" / "index.html").read_text()
    assert (tmp_path / "page" / "notes.md").read_text() == "As expected."

    lines.write_text(lines.read_text() + "{}\n")
    with pytest.raises(ResultError, match=r"lstm\.jsonl:13: not the result"):
        summarize(tmp_path / "page")
    (tmp_path / "other.jsonl").write_text("")
    with pytest.raises(SettingsError, match="not named after an experiment"):
        summarize(tmp_path / "other.jsonl")


def test_compressed_runs_are_read_like_plain_ones(tmp_path: Path) -> None:
    plan = make_plan(EXPERIMENTS["lstm"], tasks=(1,), seeds=2)
    filled(tmp_path / "out", plan)
    plain, compressed = tmp_path / "lstm.jsonl", tmp_path / "runs" / "lstm.jsonl.gz"
    collect(tmp_path / "out", plain)
    collect(tmp_path / "out", compressed)
    first = compressed.read_bytes()
    assert gzip.decompress(first) == plain.read_bytes()
    assert collect(tmp_path / "out", compressed).known == 4
    assert compressed.read_bytes() == first
    assert load_lines(compressed) == load_lines(plain)
    assert is_collection(tmp_path)
    assert summarize(tmp_path) == summarize(compressed) == summarize(plain)

    # Runs that were added later are in a plain file of the same name.
    lines = plain.read_bytes().splitlines(keepends=True)
    compressed.write_bytes(gzip.compress(lines[0]) + gzip.compress(lines[1]))
    later = tmp_path / "runs" / "lstm.jsonl"
    later.write_bytes(b"".join(lines[2:]))
    assert summarize(tmp_path) == summarize(plain)
    with pytest.raises(SettingsError, match=r"lstm\.jsonl already holds runs of lstm"):
        collect(tmp_path / "out", compressed)
    with pytest.raises(SettingsError, match=r"lstm\.jsonl\.gz already holds runs of lstm"):
        collect(tmp_path / "out", later)
    later.write_bytes(b"".join(lines[1:]))
    with pytest.raises(SettingsError, match="task1-rotlstm-size50-seed0 more than once"):
        summarize(tmp_path)
    compressed.write_bytes(first[:-9])
    with pytest.raises(ResultError, match=r"lstm\.jsonl\.gz: not a whole gzip file"):
        summarize(tmp_path)


@pytest.mark.parametrize(
    ("low", "high", "amount", "verdict"),
    [
        (0.1, 3.0, None, claims.REPRODUCED),
        (-0.1, 3.0, None, claims.UNDECIDED),
        (-3.0, -0.1, None, claims.NOT),
        (0.0, 0.0, None, claims.NOT),
        (15.0, 25.0, 20.0, claims.REPRODUCED),
        (3.3, 13.4, 22.1, claims.SMALLER),
        (26.0, 52.0, 20.2, claims.LARGER),
        (-1.0, 20.8, 22.1, claims.NOT),  # holds 0, excludes the amount
        (-1.0, 25.0, 22.1, claims.UNDECIDED),  # holds both
        (-5.0, -1.0, 22.1, claims.NOT),
    ],
)
def test_an_interval_decides_the_verdict(
    low: float, high: float, amount: float | None, verdict: str
) -> None:
    assert claims.judge(low, high, amount) == verdict


def test_equality_needs_an_interval_within_the_margin() -> None:
    assert claims.judge_within(-1.0, 2.0, -2.5, 2.5) == claims.REPRODUCED
    assert (
        claims.judge_within(-1.0, 3.0, -2.5, 2.5) == claims.UNDECIDED
    )  # no finding is not equality
    assert claims.judge_within(2.6, 3.0, -2.5, 2.5) == claims.NOT
    assert claims.by_task({1: claims.NOT, 2: claims.NOT}) == claims.NOT
    assert claims.by_task({1: claims.NOT, 2: claims.REPRODUCED, 4: claims.NOT}) == (
        "reproduced: task 2; not reproduced: tasks 1, 4"
    )


def verdicts(summaries: dict[str, Summary]) -> dict[str, tuple[str, str, str]]:
    """Claim -> the paper's value, what was measured with hard gates, and the verdict."""
    rows = claims.claims_table(summaries).rows
    return {row[0].text: (row[1].text, row[2].text, row[3].text) for row in rows}


def test_every_claim_is_judged_by_its_runs(tmp_path: Path) -> None:
    plan = make_plan(EXPERIMENTS["lstm"], seeds=3)
    folder = Folder(tmp_path)
    folder.adopt(plan)
    ahead = {18: 0.202, 7: 0.05, 5: 0.0}
    for run in plan.runs:
        gain = ahead.get(run.task, 0.02) if run.cell == "rotlstm" else 0.0
        save_made_up(folder, run, 0.5 + gain + 0.001 * run.seed)
    (summary,) = summarize(tmp_path)
    found = verdicts({"lstm": summary})
    assert found["task 18: accuracy better by 20"] == (
        "+20.2", "+20.2 [+20.0, +20.4], n = 3", "reproduced",
    )  # fmt: skip
    assert found["task 7: accuracy better by 14"] == (
        "+14.0", "+5.0 [+4.8, +5.2], n = 3", "smaller than claimed",
    )  # fmt: skip
    assert found["task 5: accuracy better by 22.1"] == (
        "+22.1", "0.0 [-0.2, +0.2], n = 3", "not reproduced",
    )  # fmt: skip
    # 17 tasks by 2 points, one by 20.2, one by 5, one by 0.
    assert found["rotation gives a slight improvement overall"][1:] == (
        "+3.0 [+2.7, +3.2], 20 tasks, n = 3 seeds", "reproduced",
    )  # fmt: skip
    assert found["mean of the table of LSTM and RotLSTM"][0] == "+3.9"
    assert found["mean of the table of LSTM and RotLSTM"][2] == "smaller than claimed"
    assert found["it has a positive impact on most tasks"] == (
        "higher on 15, lower on 4 of 20 tasks",
        "higher on 19, lower on 0 of 20 tasks, sign test p < 0.001",
        "reproduced",
    )
    similar = found["tasks 1, 11, 12, 13: the top is similar, RotLSTM better by up to 2.5"]
    assert similar[2] == "reproduced"
    assert found["task 20: a smaller state is enough for RotLSTM"][2] == "undecided"
    assert found["RotGRU does the same as GRU or slightly worse"][1:] == (
        "no runs yet", "undecided",
    )  # fmt: skip
    text = " ".join(claims.does_rotation_help({"lstm": summary}))
    assert "With hard gates, rotation helps an LSTM" in text
    assert "(paper +3.9)" in text
    assert "With sigmoid gates, there are not enough runs" in text
    # Too few runs decide nothing.
    few = replace(summary, results=tuple(r for r in summary.results if r.settings.seed < 2))
    assert {verdict for *_, verdict in verdicts({"lstm": few}).values()} == {"undecided"}
    # Some of the tasks do not decide for all.
    some = replace(summary, results=tuple(r for r in summary.results if r.settings.task > 2))
    found = verdicts({"lstm": some})
    assert found["it has a positive impact on most tasks"][2] == "undecided"
    assert found["task 18: accuracy better by 20"][2] == "reproduced"


def test_thirteen_of_twenty_tasks_are_not_most(tmp_path: Path) -> None:
    plan = make_plan(EXPERIMENTS["lstm"], seeds=3)
    Folder(tmp_path).adopt(plan)
    for run in plan.runs:
        gain = 0.02 if run.task <= 13 else -0.02
        save_made_up(Folder(tmp_path), run, 0.5 + gain * (run.cell == "rotlstm"))
    (summary,) = summarize(tmp_path)
    measured, verdict = claims.better_on_most(summary)
    assert measured == "higher on 13, lower on 7 of 20 tasks, sign test p = 0.263"
    assert verdict == "undecided"


@pytest.mark.parametrize(
    ("ahead", "verdict"), [(0.03, "reproduced"), (0.0, "undecided"), (-0.05, "not reproduced")]
)
def test_gru_is_judged_by_the_mean_paired_by_seed(
    tmp_path: Path, ahead: float, verdict: str
) -> None:
    # Every second task is far ahead or behind, so that tasks won say nothing of the mean.
    for name in ("lstm", "gru"):
        plan = make_plan(EXPERIMENTS[name], seeds=3)
        Folder(tmp_path).adopt(plan)
        for run in plan.runs:
            gain = ahead + 0.2 * (-1) ** run.task + 0.001 * (-1) ** run.seed
            save_made_up(
                Folder(tmp_path),
                run,
                0.5 + 0.05 * run.seed + gain * (run.cell in ("gru", "rotgru")),
            )
    found = {summary.title: summary for summary in summarize(tmp_path)}
    finding = claims.gru_beats_both(found)
    assert finding.verdict == verdict
    # The seeds' own spread of 5 points cancels in pairs.
    assert finding.measured.startswith(f"{signed(100 * ahead + 0.1 / 3)} [")
    assert finding.measured.count("n = 3 seeds") == 2


def test_tasks_with_few_runs_do_not_hide_the_other_tasks(tmp_path: Path) -> None:
    plan = make_plan(EXPERIMENTS["lstm"], tasks=(1, 2, 4), seeds=3)
    folder = Folder(tmp_path)
    folder.adopt(plan)
    for run in plan.runs:
        if run.task != 2 or run.seed == 0:
            gain = {1: 0.1, 2: 0.5, 4: 0.2}[run.task] * (run.cell == "rotlstm")
            save_made_up(folder, run, 0.3 + gain + 0.01 * run.seed)
    (summary,) = summarize(tmp_path)
    # Task 2, with one run per cell, has no part in the mean, which is of the other two.
    last = tables.comparison(summary).rows[-1]
    assert (last[0].text, last[5].text[:5]) == ("mean of 2 tasks", "+15.0")
    found = claims.better_overall()(summary)
    assert found.measured.startswith("+15.0 [")
    assert found.measured.endswith(", n = 3 seeds (fewer than 3 runs of a task and cell)")
    assert found.verdict == "undecided"
    one = replace(summary, results=tuple(r for r in summary.results if r.settings.seed == 0))
    assert claims.better_overall()(one) == ("fewer than 3 runs of a task and cell", "undecided")
    assert claims.better(18)(one) == ("no runs yet", "undecided")
    assert tables.paper_table(one) is None


def test_experiments_side_by_side(tmp_path: Path) -> None:
    accuracies = {"lstm": 0.5, "hard-angle": 0.6, "batch-64": 0.4, "packed": 0.55, "gru": 0.7}
    for name, accuracy in accuracies.items():
        plan = make_plan(EXPERIMENTS[name], tasks=(4,), seeds=3)
        for run in plan.runs:
            Folder(tmp_path / name).adopt(plan)
            save_made_up(Folder(tmp_path / name), run, accuracy + 0.01 * run.seed)
        collect(tmp_path / name, tmp_path / "page" / "runs" / f"{name}.jsonl")
    text = write_report(tmp_path / "page", tmp_path / "page").markdown
    text += "".join((tmp_path / "page" / f"{name}.md").read_text() for name in accuracies)
    assert (
        "| 4 two-arg-relations, RotLSTM | 61.0 ± 1.0 | 51.0 ± 1.0 | **+10.0 [+7.7, +12.3]** "
        "| <0.001 | 3 / 3 |"
    ) in text
    for cell in ("LSTM", "RotLSTM"):
        assert f"| 4 two-arg-relations, {cell} | 41.0 ± 1.0 | 51.0 ± 1.0 | **-10.0 [" in text
    assert "# packed: LSTM and RotLSTM without padding" in text
    assert "| 4 two-arg-relations, LSTM | 56.0 ± 1.0 | 51.0 ± 1.0 | **+5.0 [" in text
    assert "## All cells: LSTM, RotLSTM, GRU and RotGRU, hard gates" in text
    assert (
        "| 4 two-arg-relations | 51.0 ± 1.0 | 51.0 ± 1.0 | **71.0 ± 1.0** | **71.0 ± 1.0** "
        "| 63.7 ± 9.4 | 65.8 ± 3.6 | 69.8 ± 1.9 | **70.8 ± 1.2** | 3 |"
    ) in text
    # On other data they do not meet.
    found = {summary.title: summary for summary in summarize(tmp_path / "page")}
    one = found["lstm"]
    other = replace(one, results=tuple(replace(r, data=OTHER) for r in one.results))
    assert comparable(one, found["gru"])
    assert not comparable(other, found["gru"])
    assert comparable(one, found["hard-angle"], but=("angle",))
    assert not comparable(one, found["hard-angle"])


def test_the_means_of_all_cells_come_first(tmp_path: Path) -> None:
    accuracies = {"lstm": 0.5, "rotlstm": 0.6, "gru": 0.7, "rotgru": 0.65}
    for name in ("lstm", "gru"):
        plan = make_plan(EXPERIMENTS[name], seeds=3)
        for run in plan.runs:
            Folder(tmp_path / name).adopt(plan)
            accuracy = accuracies[run.cell] + 0.01 * (run.seed - 1) + 0.002 * (run.task - 10.5)
            save_made_up(Folder(tmp_path / name), run, accuracy)
        collect(tmp_path / name, tmp_path / "page" / "runs" / f"{name}.jsonl")
    text = write_report(tmp_path / "page", tmp_path / "page").markdown
    # 4.303 / sqrt(3): the two-sided 95 % point with two degrees of freedom, of a mean of three.
    assert (
        "| mean of 20 tasks | LSTM | RotLSTM | GRU | RotGRU | seeds |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| our runs | 50.0 [47.5, 52.5] | 60.0 [57.5, 62.5] | **70.0 [67.5, 72.5]** "
        "| 65.0 [62.5, 67.5] | 3 |\n"
        "| paper | 51.6 | 55.5 | 57.9 | **58.0** | 10 |"
    ) in text
    assert text.index("mean of 20 tasks") < text.index("## Which claims")
    # Without all tasks there is no such line.
    found = summarize(tmp_path / "page")
    some = replace(found[0], results=tuple(r for r in found[0].results if r.settings.task != 7))
    assert tables.means_table([some, found[1]]) is None
    assert tables.means_table([]) is None


def test_epochs_and_sizes_to_95_percent_of_the_top(tmp_path: Path) -> None:
    sizes = Experiment("state-size", "", ("lstm", "rotlstm"), sizes=(6, 10, 20, 50))
    plan = make_plan(sizes, tasks=(1,), seeds=2)
    folder = Folder(tmp_path)
    folder.adopt(plan)
    accuracy = {
        "lstm": {6: 0.2, 10: 0.3, 20: 0.88, 50: 0.9},
        "rotlstm": {6: 0.2, 10: 0.86, 50: 0.8},
    }
    for run in plan.runs:
        save_made_up(folder, run, accuracy[run.cell].get(run.state_size, 0.85))
    (summary,) = summarize(tmp_path)
    assert measures.sufficient_size(summary, 1, "rotlstm") == 10  # 0.95 * 0.9 = 0.855
    assert measures.sufficient_size(summary, 1, "lstm") == 20
    # Curves rise in a straight line to their end: LSTM's 0.9 is the top, 0.855 the threshold.
    assert measures.epochs_to_top(summary, 1, "lstm") == [38.0, 38.0]
    assert measures.epochs_to_top(summary, 1, "rotlstm") == [float("inf")] * 2
    assert measures.gaps(summary, 1, "lstm") == [0.0, 0.0]


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
    assert "| 1 RotLSTM | 6.0 | 10.0 | 10 |" in written.markdown
    assert "Not the paper's protocol: epochs 2 and not 40." in written.markdown
    assert "## gru: GRU and RotGRU" in written.markdown
    assert "## gru, packed: GRU and RotGRU" in written.markdown
    names = {path.name for path in written.files}
    assert {"state-size.png", "gru.tex", "gru-packed.tex"} <= names
    assert "gru-packed-convergence.svg" in names


def test_an_experiment_takes_its_runs_from_a_study(tmp_path: Path) -> None:
    packed, runs = EXPERIMENTS["packed"], tmp_path / "runs"
    made = Folder(tmp_path / "made")
    sizes = [make_plan(packed, tasks=(1,), seeds=2, sizes=(size,)) for size in (10, 50)]
    for run in (run for plan in sizes for run in plan.runs):
        save_made_up(made, run, run.state_size / 100)
    runs.mkdir()
    files = [made.file(run) for plan in sizes for run in plan.runs]
    plain = [Result.load(file).plain() for file in files]
    for number, each in enumerate(plain):
        each["environment"]["load"] = number
    lines = [json.dumps(each) for each in plain]
    (runs / "packed-sizes.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (summary,) = summarize(tmp_path)
    assert summary.experiment is packed
    assert summary.values(1, "rotlstm") == (50.0, 50.0)
    assert len(summary.results) == 4  # none with 10 units
    assert "load" not in write_report(tmp_path, tmp_path / "report").markdown
    (runs / "packed.jsonl").write_text(next(line for line in lines if '"state_size": 50' in line))
    with pytest.raises(SettingsError, match=r"the files of packed have .* more than once"):
        summarize(tmp_path)


def test_a_sweep_without_results_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="holds no sweep"):
        write_report(tmp_path, tmp_path / "report")
    Folder(tmp_path).adopt(make_plan(EXPERIMENTS["lstm"], seeds=1))
    text = write_report(tmp_path, tmp_path / "report").markdown
    assert "0 of 40 runs are done" in text
    assert "LSTM: tasks 1-20 (1 run each); RotLSTM: tasks 1-20 (1 run each)." in text


def test_figures_have_no_lonely_panel(tmp_path: Path) -> None:
    filled(tmp_path, make_plan(EXPERIMENTS["lstm"], tasks=(1, 2, 4, 5, 8, 20), seeds=1))
    (summary,) = summarize(tmp_path)
    assert convergence(summary).columns == 3


def test_without_matplotlib_there_are_still_tables(
    partial: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    written = write_report(partial, partial / "report")
    assert "No figures: figures need matplotlib" in written.markdown
    assert "| 1 single-supporting-fact |" in written.markdown


def test_the_constant_answer_of_the_official_data(real_babi: Path) -> None:
    source = Source.at(str(real_babi / "en"))
    for task in TASK_NAMES:
        questions = source.load(task)
        ((answer, _), *_) = Counter(q.answer for q in questions.train).most_common(1)
        right = statistics.fmean(100.0 * (q.answer == answer) for q in questions.test)
        assert constant_accuracy("official 1k", task) == pytest.approx(right, abs=0.051)
    assert constant_accuracy("made up", 1) is None
